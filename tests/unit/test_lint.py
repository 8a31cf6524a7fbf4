"""Every linter and format check of the project; `make lint` runs this file alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broken_runs import run_program

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


@pytest.mark.parametrize(
    "command",
    [
        # ansible-lint takes half a minute.
        pytest.param(command, id=name, marks=pytest.mark.thorough if name == "ansible-lint" else ())
        for name, command in CHECKS.items()
    ],
)
def test_is_content(command: list[str], root: Path) -> None:
    done = run_program(*command, folder=root)
    assert done.returncode == 0, done.stdout


def test_snakemake_finds_nothing_that_is_not_explained(root: Path) -> None:
    done = run_program("snakemake", "--lint", folder=root)
    found = set(re.findall(r"^    \* (.+):$", done.stdout, re.MULTILINE))
    # A workflow that cannot be read gives another status and no finding.
    assert done.returncode == 0 or found, done.stdout
    assert found <= EXPLAINED.keys(), done.stdout
