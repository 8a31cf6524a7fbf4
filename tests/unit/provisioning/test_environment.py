"""The virtual environment: exact versions, and a clear word where none can be made."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def pins(lock: Path) -> dict[str, set[str]]:
    """Versions by package; one package may have several, for different versions of Python."""
    found: dict[str, set[str]] = {}
    for name, version in PINNED.findall(lock.read_text()):
        found.setdefault(name, set()).add(version)
    return found


def test_what_the_project_needs_is_locked(root: Path) -> None:
    document = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = document["project"]["dependencies"] + document["build-system"]["requires"]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in wanted}
    assert names <= set(pins(root / "requirements.lock"))


def test_a_larger_lock_has_all_of_the_smaller_one_and_every_version_has_a_checksum(
    root: Path,
) -> None:
    locks = [root / f"requirements{name}.lock" for name in ("", "-firmware", "-test")]
    for small, large in pairwise(map(pins, locks)):
        assert {name: large.get(name) for name in small} == small
    for lock in locks:
        text = lock.read_text()
        assert all("--hash=sha256:" in stanza for stanza in re.split(r"\n(?=\S)", text))
        assert "://" not in text


def environment_of(tmp_path: Path, root: Path, python: str, path: str) -> tuple[int, str]:
    """Status and words of environment.sh with an interpreter, in a folder of its own."""
    answer = subprocess.run(
        ["/bin/sh", root / "environment.sh", root / "requirements.lock"],
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
    stanzas = re.split(r"\n(?=\S)", (root / "requirements.lock").read_text())
    few = [text for text in stanzas if re.match("(setuptools|uv|click)==", text)]
    (tmp_path / "few.lock").write_text("\n".join(few) + "\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "empty"\nversion = "1"\n')
    (tmp_path / "workflow/chaosity").mkdir(parents=True)
    answer = subprocess.run(
        ["/bin/sh", root / "environment.sh", "few.lock"],
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
