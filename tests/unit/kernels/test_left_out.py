"""Programs whose library a host lacks are left out, and all others are built."""

from __future__ import annotations

import re
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
LISTED = dict(re.findall(r"^(PROGRAMS|OPTIONAL) = (.*)$", (SOURCES / "Makefile").read_text(), re.M))
ALL = {*LISTED["PROGRAMS"].split(), *LISTED["OPTIONAL"].split()}


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
    assert linked(said, tmp_path) == ALL


@pytest.mark.parametrize(
    ("programs", "variable", "compiler", "header"),
    LACKING,
    ids=[f"{one[0][0]} {one[3]}" for one in LACKING],
)
def test_without_a_library_its_programs_alone_are_left_out(
    tmp_path: Path, programs: tuple[str, ...], variable: str, compiler: str, header: str
):
    lacking = without(tmp_path, compiler, header)
    said = make(tmp_path, "-n", f"{variable}={lacking}")
    assert linked(said, tmp_path) == ALL - set(programs)
    lines = [line for line in said.splitlines() if "skipped" in line]
    for program, line in zip(programs, lines, strict=True):
        assert f"{program} is skipped: the compiler does not find " in line
        assert header in line
    # One of an earlier build goes.
    earlier = tmp_path / programs[0]
    earlier.touch()
    assert f"{earlier.name} is skipped" in make(tmp_path, f"without-{earlier.name}")
    assert not earlier.exists()
