"""The virtual environment: exact versions, and a clear word where none can be made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# A project that needs one package.
PROJECT = """
[project]
name = "empty"
version = "1"
requires-python = ">=3.11"
dependencies = ["click"]
"""
LOCK = """
version = 1
requires-python = ">=3.11"

[[package]]
name = "empty"
version = "1"
source = { editable = "." }
dependencies = [{ name = "click" }]

"""


def test_the_lock_fits_the_project_and_names_the_index_that_everybody_has(root: Path) -> None:
    lock = tomllib.loads((root / "uv.lock").read_text())
    addresses = set(re.findall(r"https?://([^/\"]+)", (root / "uv.lock").read_text()))
    assert addresses == {"pypi.org", "files.pythonhosted.org"}
    files = [file for package in lock["package"] for file in package.get("wheels", [])]
    assert files
    assert all(file["hash"].startswith("sha256:") for file in files)
    command = [Path(sys.executable).with_name("uv"), "lock", "--check", "--offline"]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def environment_of(tmp_path: Path, root: Path, python: str, path: str) -> tuple[int, str]:
    """Status and words of environment.sh with an interpreter, in a folder of its own."""
    answer = subprocess.run(
        ["/bin/sh", root / "workflow/environment.sh"],
        cwd=tmp_path,
        env={"PYTHON": python, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode, answer.stderr


def interpreter(folder: Path, name: str, *refusals: str) -> str:
    """An interpreter that fails on code with certain words in it and on nothing else."""
    script = folder / name
    tests = "".join(f'case "$2" in *{word}*) exit 1;; esac\n' for word in refusals)
    script.write_text(f"#!/bin/sh\n{tests}exit 0\n")
    script.chmod(0o755)
    return str(script)


def test_a_python_that_is_old_or_lacks_ensurepip_is_refused_with_what_to_install(
    tmp_path: Path, root: Path
) -> None:
    old = interpreter(tmp_path, "python3", "version_info")
    status, said = environment_of(tmp_path, root, old, "/usr/bin:/bin")
    assert status == 2
    assert "no Python 3.11 or newer" in said
    assert "python3-venv" in said
    needed = tmp_path / "bin"
    needed.mkdir()
    (needed / "basename").symlink_to("/usr/bin/basename")
    without = interpreter(tmp_path, "python3.12", "ensurepip")
    status, said = environment_of(tmp_path, root, without, str(needed))
    assert status == 2
    assert "apt-get install python3.12-venv" in said
    assert not (tmp_path / ".venv").exists()


@pytest.mark.thorough
def test_pip_installs_what_uv_cannot(tmp_path: Path, root: Path) -> None:
    few = [
        text
        for text in re.split(r"(?=\[\[package]]\n)", (root / "uv.lock").read_text())
        if re.match(r'\[\[package]]\nname = "(click|setuptools|uv)"', text)
    ]
    (tmp_path / "uv.lock").write_text(LOCK + "".join(few))
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "workflow/chaosity").mkdir(parents=True)
    answer = subprocess.run(
        ["/bin/sh", root / "workflow/environment.sh"],
        cwd=tmp_path,
        env={**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "uv could not install the packages, so pip does" in answer.stderr
    subprocess.run([tmp_path / ".venv/bin/python", "-c", "import click, setuptools"], check=True)


def test_make_alone_lists_the_targets(root: Path) -> None:
    answer = subprocess.run(["make"], cwd=root, capture_output=True, text=True, check=True)
    targets = re.findall(r"^  make (\w+)", answer.stdout, re.MULTILINE)
    assert {"run", "test", "lint", "format", "clean", "lock", "bench"} <= set(targets)
