"""Every linter and format check of the project; `make lint` runs this file alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent

CHECKS = {
    # The cache does not notice that a module moved, which changes the order of imports elsewhere.
    "ruff": ["ruff", "check", "--no-cache", "."],
    "mypy": ["mypy"],
    "ruff format": ["ruff", "format", "--check", "."],
    "snakefmt": ["snakefmt", "--check", "Snakefile", "workflow/Snakefile", "workflow/rules"],
    "ansible-lint": ["ansible-lint", "--nocolor"],
    "yamllint": ["yamllint", "--strict", "."],
}


# What `snakemake --lint` finds and why it stays; the linter itself has no way to say so.
EXPLAINED = {
    "Specify a conda environment or container for each rule.": (
        "all rules share the environment that uv.lock pins, and what runs on a host is"
        " installed and checked by provision.yml: a container in between would change the numbers"
    ),
}


def run(command: list[str], root: Path) -> tuple[int, str]:
    """Status and words of one of the environment's programs, run in the repository."""
    answer = subprocess.run(
        [BIN / command[0], *command[1:]],
        cwd=root,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    "command",
    [
        # ansible-lint takes half a minute.
        pytest.param(command, id=name, marks=pytest.mark.thorough if name == "ansible-lint" else ())
        for name, command in CHECKS.items()
    ],
)
def test_is_content(command: list[str], root: Path) -> None:
    status, said = run(command, root)
    assert status == 0, said


def test_snakemake_finds_nothing_that_is_not_explained(root: Path) -> None:
    status, said = run(["snakemake", "--lint"], root)
    found = set(re.findall(r"^    \* (.+):$", said, re.MULTILINE))
    # A workflow that cannot be read gives another status and no finding.
    assert status == 0 or found, said
    assert found <= EXPLAINED.keys(), said
