"""A program's version changes with its own code, and with nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_binary import SOURCES, make

from compiler_cache import path_with_cache

PROGRAMS = ("chaosity-core-to-core", "chaosity-latency")


def build(sources: Path, folder: Path, *variables: str) -> dict[str, tuple[str, bytes]]:
    """Version and content of some programs by name."""
    path = path_with_cache(folder / "compilers", os.environ["PATH"])
    targets = [str(folder / name) for name in PROGRAMS]
    make("make", "-s", "-j2", "-C", sources, f"BUILD={folder}", *variables, *targets, PATH=path)
    found = {}
    for name in PROGRAMS:
        said = subprocess.run([folder / name, "--version"], capture_output=True, text=True)
        found[name] = (said.stdout.split()[1], (folder / name).read_bytes())
    return found


# A file, what is replaced by what, and the programs that have another version then.
CHANGES: list[tuple[str, str, str, set[str]]] = [
    ("common/errors.c", "static const char", "/* A word. */\n\n\nstatic const char", set()),
    ("latency/pointer_chase.c", "BATCH = 64", "BATCH = 32", {"chaosity-latency"}),
    ("common/errors.h", "EXIT_REFUSED = 2", "EXIT_REFUSED = 3", set(PROGRAMS)),
]


def test_a_version_changes_with_the_programs_own_code(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("build")
    sources = shutil.copytree(SOURCES, tmp_path / "sources", ignore=ignored)
    after = build(sources, tmp_path / "built")
    for path, old, new, changed in CHANGES:
        before = after
        text = (sources / path).read_text()
        assert old in text
        (sources / path).write_text(text.replace(old, new))
        after = build(sources, tmp_path / "built")
        assert {name for name in PROGRAMS if before[name][0] != after[name][0]} == changed
        # The same version is the same binary, whose hash is part of the host's description.
        assert {name for name in PROGRAMS if before[name][1] != after[name][1]} == changed


@pytest.mark.thorough
def test_other_flags_are_another_version_and_warnings_are_not(tmp_path: Path) -> None:
    versions = {
        flags: build(SOURCES, tmp_path / f"flags{flags}", f"EXTRA={flags}")["chaosity-latency"][0]
        for flags in ("", "-O1", "-Wno-error")
    }
    assert versions["-O1"] != versions[""] == versions["-Wno-error"]
