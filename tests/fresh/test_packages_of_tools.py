"""Each tool comes from the package that the role `toolchain` installs for it.

Where nothing but these packages was installed, as in the root of tests/fresh/run.sh, a tool that is
there came from one of them. Here each is looked for in the packages of its own row, so that no row
works only because of another, or of what some machine has.
"""

from __future__ import annotations

import platform
import re
import subprocess
from functools import cache
from pathlib import Path

import jinja2
import pytest
import yaml

pytestmark = pytest.mark.fresh

VARS = Path(__file__).resolve().parents[2] / "roles/toolchain/vars"
QUESTIONS = yaml.safe_load((VARS / "main.yml").read_text())["__toolchain_questions"]
TABLE = yaml.safe_load((VARS / "Debian.yml").read_text())["__toolchain_packages"]
FACTS = {"architecture": platform.machine()}


def packages_of(tool: str) -> set[str]:
    """The packages of a row of the table, which has a name, a list of names, or a template."""
    row = TABLE[tool] if isinstance(TABLE[tool], list) else [TABLE[tool]]
    return {jinja2.Template(name).render(ansible_facts=FACTS) for name in row} - {""}


def query(*arguments: str) -> list[str]:
    command = ["dpkg-query", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def owners(file: str) -> set[str]:
    """The installed packages that have a file whose path ends so."""
    found = query("--search", f"*{file}")
    return {name for line in found for name in re.findall(r"([^\s:,]+)(?::\w+)?[,:]", line)}


@cache
def with_dependencies(package: str) -> set[str]:
    """A package and what is installed with it, whatever else the machine has."""
    found, new = set(), {package}
    while new:
        found |= new
        lines = query("--show", "--showformat=${Depends}, ${Pre-Depends}\n", *new)
        new = set(re.findall(r"[a-z0-9][a-z0-9+.-]+(?=[:\s,|(]|$)", "\n".join(lines))) - found
    return found


@pytest.mark.parametrize("tool", [tool for tool in TABLE if packages_of(tool)])
def test_the_packages_of_a_tool_have_it(tool: str) -> None:
    words = QUESTIONS[tool].removeprefix("command -v ").split()
    installed = packages_of(tool)
    headers = [f"include/{words[i + 1]}" for i, word in enumerate(words) if word == "-include"]
    libraries = [f"lib{word[2:]}.so" for word in words if word.startswith("-l")]
    if headers:
        # The compiler that was asked is another tool, and has headers of its own, such as OpenMP's.
        compiler = next(name for name in TABLE if QUESTIONS[name].startswith(f"{words[0]} -dump"))
        installed = set().union(*map(with_dependencies, installed | packages_of(compiler)))
    program = words[1].lstrip("/") if words[0] == "ls" else f"bin/{words[0]}"
    for file in [*headers, *libraries] or [program]:
        assert owners(file) & installed, f"{file} is in {owners(file)}, not in {installed}"
