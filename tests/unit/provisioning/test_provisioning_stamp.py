"""provision.py starts the playbook when something changed, and only then."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaosity.runner.build_zipapp import ROOMS, SHARED

ROOT = Path(__file__).resolve().parents[3]
# Stands in for ansible-playbook: counts its runs, builds a kernel and says what the host has.
ANSIBLE = """#!/bin/sh
echo "$@" >> {root}/runs
mkdir -p {root}/build/kernels
[ -e {root}/build/kernels/chaosity-latency ] || echo built > {root}/build/kernels/chaosity-latency
cp {root}/evidence.json "$CHAOSITY_EVIDENCE/localhost.json"
exit $(cat {root}/exit_code)
"""


@dataclass
class Project:
    """A small copy of the project with an ansible-playbook that counts how often it runs."""

    root: Path
    environment: dict[str, str]

    def provision(self, *arguments: str) -> str:
        """Run provision.py on the inventory; returns what it prints."""
        command = [sys.executable, "provision.py", *arguments]
        ended = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.exit_code = ended.returncode
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.stdout

    @property
    def runs(self) -> int:
        """How often the playbook was started."""
        path = self.root / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def write(self, name: str, text: str) -> None:
        """Write a file below the root, with the folders that it needs."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def tell_evidence(self, connection: str = "local") -> None:
        """Set what the playbook says of the host."""
        files = [str(self.root / "build/kernels/chaosity-latency")]
        evidence = {"connection": connection, "files": files, "programs": ["fio"]}
        self.write("evidence.json", json.dumps(evidence))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A provisioned project: a playbook, a role, an inventory and a tool called fio."""
    tools = tmp_path / "tools"
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "workflow")}
    project = Project(tmp_path, environment)
    shutil.copy2(ROOT / "provision.py", tmp_path)
    for name in ("provision.yml", "ansible.cfg", "requirements.lock"):
        project.write(name, f"# {name}\n")
    project.write("roles/kernels/files/streams/sum.c", "int sum;\n")
    project.write("inventories/here/hosts.yml", "all: {hosts: {localhost: {}}}\n")
    project.write("inventories/here/group_vars/all/kernels.yml", "kernels_compiler: gcc\n")
    project.write("workflow/chaosity/runner/run.py", "POINT = 1\n")
    project.write("exit_code", "0")
    project.write("tools/fio", "#!/bin/sh\necho fio-3.33\n")
    (tools / "fio").chmod(0o755)
    # The stand-in is where provision.py looks for the real program: beside the interpreter.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    playbook = tmp_path / "bin/ansible-playbook"
    playbook.write_text(ANSIBLE.format(root=tmp_path))
    playbook.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    project.tell_evidence()
    project.provision("inventories/here")
    assert (project.runs, project.exit_code) == (1, 0)
    return project


def append(project: Project, name: str) -> None:
    with (project.root / name).open("a") as file:
        file.write("# changed\n")


def delete(project: Project, name: str) -> None:
    (project.root / name).unlink()


CHANGES = [
    (append, "provision.yml", "new or changed"),
    (append, "roles/kernels/files/streams/sum.c", "new or changed"),
    (delete, "roles/kernels/files/streams/sum.c", "missing"),
    (append, "inventories/here/hosts.yml", "new or changed"),
    (append, "inventories/here/group_vars/all/kernels.yml", "new or changed"),
    (append, "workflow/chaosity/runner/run.py", "new or changed"),
    (append, "requirements.lock", "new or changed"),
    (delete, "build/kernels/chaosity-latency", "missing"),
    (append, "build/kernels/chaosity-latency", "new or changed"),
    (append, "tools/fio", "new or changed"),
]


def test_each_change_starts_the_playbook_once_more(project: Project) -> None:
    for number, (change, name, reason) in enumerate(CHANGES, start=2):
        change(project, name)
        assert f"{Path(name).name} is {reason}" in project.provision("inventories/here"), name
        assert project.runs == number, name
    before = project.runs
    project.provision("inventories/here")
    assert (project.runs, project.exit_code) == (before, 0)


def test_without_a_change_the_playbook_is_not_started(project: Project) -> None:
    for path in (project.root / "roles").rglob("*.c"):
        path.touch()  # a new date alone is no change
    said = project.provision("inventories/here")
    assert (project.runs, project.exit_code) == (1, 0)
    assert said == (
        "inventories/here is provisioned and unchanged; `make provision` provisions it again.\n"
    )
    project.provision("--force", "inventories/here")
    assert project.runs == 2


def test_a_removed_tool_starts_the_playbook(project: Project) -> None:
    project.environment["PATH"] = f"{project.root}/tools:/usr/bin:/bin"
    assert "Provisioning inventories/here: " in project.provision("inventories/here")
    before = project.runs
    (project.root / "tools/fio").unlink()  # with the same PATH the tool alone is the reason
    assert "fio is" in project.provision("inventories/here")
    assert project.runs == before + 1


def test_further_arguments_have_a_stamp_of_their_own(project: Project) -> None:
    project.write("more.yml", "toolchain_test_tools: [valgrind]\n")
    more = ("inventories/here", "-e", "@more.yml")
    project.provision(*more)
    assert project.runs == 2
    project.provision(*more)
    project.provision("inventories/here")
    assert project.runs == 2
    project.write("more.yml", "toolchain_test_tools: []\n")
    project.provision(*more)
    assert project.runs == 3


def test_the_playbook_runs_again_after_what_the_stamp_cannot_know(project: Project) -> None:
    project.environment["ANSIBLE_ROLES_PATH"] = "/elsewhere"
    said = project.provision("inventories/here")
    assert "environment variable ANSIBLE_ROLES_PATH is new or changed" in said
    assert project.runs == 2
    project.write("exit_code", "2")
    append(project, "provision.yml")
    project.provision("inventories/here")
    assert project.exit_code == 2
    project.write("exit_code", "0")
    project.provision("inventories/here")
    assert (project.runs, project.exit_code) == (4, 0)
    # Hosts behind a network, and an inventory that is a program, can change unnoticed.
    project.tell_evidence(connection="ssh")
    append(project, "provision.yml")
    project.provision("inventories/here")
    project.provision("inventories/here")
    assert project.runs == 6
    project.tell_evidence()
    (project.root / "inventories/here/hosts.yml").chmod(0o755)
    project.provision("inventories/here")
    project.provision("inventories/here")
    assert project.runs == 8


def test_every_source_of_provisioning_exists_and_the_whole_runner_is_among_them():
    """A renamed file once dropped out unnoticed, so its changes no longer started Ansible."""
    sources = set(runpy.run_path(str(ROOT / "provision.py"))["SOURCES"])
    named = sources - {"group_vars", "host_vars"}  # a user's own
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert {f"workflow/chaosity/{name}" for name in (*ROOMS, *SHARED)} <= named
