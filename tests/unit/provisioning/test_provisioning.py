"""When provisioning is due, and what ``make run`` does then."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chaosity.runner.build_zipapp import FILES_IN_ZIPAPP, PACKAGES_IN_ZIPAPP

# Stands in for ansible-playbook: counts its runs, and makes the file that says it is done.
PLAYBOOK = """#!/bin/sh
echo "$*" >> runs
[ -e fails ] && exit 2
for word; do file=${word#provisioned_file=}; done
[ -e over_a_network ] || echo done > "$file"
"""
HERE = "inventories/here"
# The runner is packed from these. If make forgot one, this machine would keep an old runner.
RUNNER = [*(f"{room}/source.py" for room in PACKAGES_IN_ZIPAPP), *FILES_IN_ZIPAPP]
SOURCES = [
    *("provision.yml", "playbooks/firmware.yml", "ansible.cfg", "roles/kernels/files/sum.c"),
    *(f"workflow/chaosity/{name}" for name in (*RUNNER, "documents/inventory.py")),
    f"{HERE}/hosts.yml",
]


class Project:
    """The Makefile with a small inventory and a playbook that counts how often it runs."""

    def __init__(self, root: Path, makefile: Path) -> None:
        self.root = root
        shutil.copy2(makefile, root)
        for name in ("uv.lock", "pyproject.toml", "workflow/environment.sh", *SOURCES):
            self.write(name)
        self.write("tests/provision.yml")
        for name in ("snakemake", "chaosity"):
            self.write(f".venv/bin/{name}", "#!/bin/sh\n")
        self.write(".venv/bin/ansible-playbook", PLAYBOOK)
        self.write("build/kernels/chaosity-latency")
        self.write(".venv/run.installed")
        self.write(".venv/test.installed")

    def write(self, name: str, text: str = "") -> None:
        """Write a file, and make it a program if its text is a script."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)

    def let_time_pass(self) -> None:
        """Make all files older, with the same order."""
        for path in self.root.rglob("*"):
            os.utime(path, (path.stat().st_mtime - 100,) * 2)

    def runs_after_make(self, target: str = "run") -> int:
        """Return how often the playbook has run after another `make`."""
        command = ["make", target, f"INVENTORY={HERE}"]
        self.status = subprocess.run(command, cwd=self.root, capture_output=True).returncode
        return len((self.root / "runs").read_text().splitlines())


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Project:
    """A project whose host is provisioned."""
    project = Project(tmp_path, root / "Makefile")
    assert (project.runs_after_make(), project.status) == (1, 0)
    assert project.runs_after_make() == 1
    return project


def test_each_new_file_starts_the_playbook_once_more(project: Project) -> None:
    changed = (*SOURCES, "uv.lock", f"{HERE}/group_vars/all.yml", "build/kernels/chaosity-latency")
    for number, name in enumerate(changed, start=2):
        project.let_time_pass()
        project.write(name)
        if name == "uv.lock":  # the environment is new as well
            project.write(".venv/run.installed")
        assert project.runs_after_make() == number, name
        assert project.runs_after_make() == number, name


def test_tests_need_more_tools_than_a_run(project: Project) -> None:
    assert project.runs_after_make("test-tools") == 2
    assert project.runs_after_make("test-tools") == 2
    assert project.runs_after_make() == 2


def test_the_playbook_runs_each_time_if_files_cannot_tell(project: Project) -> None:
    assert project.runs_after_make("provision") == 2
    project.write("fails")
    project.let_time_pass()
    project.write("provision.yml")
    assert (project.runs_after_make(), project.status) == (3, 2)
    (project.root / "fails").unlink()
    project.write("over_a_network")
    assert (project.runs_after_make(), project.status) == (4, 0)
    assert project.runs_after_make() == 5
    (project.root / "over_a_network").unlink()
    assert project.runs_after_make() == 6
    assert project.runs_after_make() == 6
    project.write(f"{HERE}/hosts.py", "#!/bin/sh\n")
    assert project.runs_after_make() == 7
    assert project.runs_after_make() == 8


def make_run(root: Path, *arguments: str) -> subprocess.CompletedProcess:
    """What `make run` would do."""
    return subprocess.run(
        ["make", "--dry-run", "run", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "provisioned", "measured"),
    [
        ([], "inventories/localhost", "--config budget=auto"),
        (["INVENTORY=mine"], "mine", "--config inventory=mine budget=auto"),
        (["INVENTORY=mine", "BUDGET=2h"], "mine", "--config inventory=mine budget=2h"),
        (
            ["INVENTORY=mine", "SNAKEMAKE_ARGUMENTS=--configfile short.yaml"],
            "mine",
            "--configfile short.yaml --config inventory=mine",
        ),
        (
            ["SNAKEMAKE_ARGUMENTS=--config replicates=2 inventory=mine"],
            "mine",
            "--config replicates=2 inventory=mine",
        ),
    ],
)
def test_the_hosts_that_are_measured_are_provisioned(root, arguments, provisioned, measured):
    done = make_run(root, *arguments)
    # A source of provisioning that was renamed would be named here.
    assert (done.returncode, done.stderr) == (0, "")
    reported = re.findall(r"^\.venv/bin/snakemake *(.*?) *$", done.stdout, re.MULTILINE)
    assert [" ".join(words.split()) for words in reported] == [measured]
    played = re.findall(r"ansible-playbook (.*) -e", done.stdout)
    assert played in ([f"-i {provisioned} provision.yml --tags tools"], [])
    # Only this machine can be provisioned already.
    assert played or provisioned == "inventories/localhost"


def test_two_configs_are_refused_with_what_to_write_instead(root):
    done = make_run(root, "INVENTORY=mine", "SNAKEMAKE_ARGUMENTS=--config replicates=2")
    assert done.returncode != 0
    assert "add inventory=mine to that of SNAKEMAKE_ARGUMENTS" in done.stderr
