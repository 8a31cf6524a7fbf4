"""Programs whose library a host lacks are left out, and all others are built."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_binary import SOURCES

OPENCL = ("chaosity-opencl", "chaosity-copies")
# Programs, the compiler's variable, compiler and the header that it does not find.
LACKING = [
    (("chaosity-sum",), "CC", "gcc", "liburing.h"),
    (("chaosity-tasks",), "CXX", "g++", "oneapi/tbb/task_arena.h"),
    (OPENCL, "CC", "gcc", "CL/cl.h"),
    (OPENCL, "CC", "gcc", "-lOpenCL"),  # the header alone may be there
]
OF_EACH = pytest.mark.parametrize(
    ("programs", "variable", "compiler", "header"),
    LACKING,
    ids=[f"{one[0][0]} {one[3]}" for one in LACKING],
)


def without(folder: Path, compiler: str, header: str) -> Path:
    """A compiler that does not find a header or library which it is told to use."""
    program = folder / f"{compiler}-without"
    program.write_text(
        f'#!/bin/sh\nfor word; do [ "$word" = {header} ] && exit 1; done\n'
        f'exec {shutil.which(compiler)} "$@"\n'
    )
    program.chmod(0o755)
    return program


def make(folder: Path, *arguments: str) -> str:
    """What make says, or would do with -n."""
    command = ["make", "-C", str(SOURCES), f"BUILD={folder}", *arguments]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return made.stdout


def linked(said: str, folder: Path) -> set[str]:
    """Programs that would be linked."""
    outputs = (line.partition(" -o ")[2].split(" ")[0] for line in said.splitlines())
    return {Path(one).name for one in outputs if one.startswith(f"{folder}/chaosity-")}


def test_with_all_libraries_nothing_is_left_out(tmp_path: Path):
    said = make(tmp_path, "-n")
    assert "skipped" not in said
    assert {program for one in LACKING for program in one[0]} < linked(said, tmp_path)


@OF_EACH
def test_without_a_library_its_programs_alone_are_left_out(
    tmp_path: Path, programs: tuple[str, ...], variable: str, compiler: str, header: str
):
    lacking = without(tmp_path, compiler, header)
    said = make(tmp_path, "-n", f"{variable}={lacking}")
    everything = linked(make(tmp_path, "-n"), tmp_path)
    assert linked(said, tmp_path) == everything - set(programs)
    lines = [line for line in said.splitlines() if "skipped" in line]
    for program, line in zip(programs, lines, strict=True):
        assert f"{program} is skipped: the compiler does not find " in line
        assert header in line


@OF_EACH
def test_one_of_an_earlier_build_goes(
    tmp_path: Path, programs: tuple[str, ...], variable: str, compiler: str, header: str
):
    lacking = without(tmp_path, compiler, header)
    for program in programs:
        earlier = tmp_path / program
        earlier.touch()
        said = make(tmp_path, f"{variable}={lacking}", f"without-{program}")
        assert f"{program} is skipped" in said
        assert not earlier.exists()
