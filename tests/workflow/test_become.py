"""A host whose login user becomes root by sudo: provisioned, measured, configured and restored.

The user has a umask of 077, as many sites set it for all users, and so has sudo's root.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from chaosity.hosts.runner_command import ROOT_DIRECTORY
from login_user import EVERYTHING, WITH_PASSWORD, LoginUser, login_user
from playbooks import Outcome
from workflow_folder import Workflow

pytestmark = [pytest.mark.alone, pytest.mark.thorough]

INSTALLED = Path(ROOT_DIRECTORY)
# The file by which make knows that a host is provisioned.
NOTE = "build/provisioned/far"
DEFRAG = Path("/sys/kernel/mm/transparent_hugepage/defrag")
SAVED = Path("/var/lib/chaosity/host_state.json")
ONLY_THE_RUNNER = f"NOPASSWD: /usr/bin/python3 {INSTALLED}/chaosity-run.pyz *"


@pytest.fixture(scope="module")
def user() -> Iterator[LoginUser]:
    with login_user(umask=0o077) as found:
        yield found


@pytest.fixture
def workflow(root: Path, tmp_path: Path, user: LoginUser) -> Workflow:
    """One host, `far`, whose runner is started with sudo."""
    found = Workflow(root, tmp_path)
    found.config["experiments"] = ["memory_bandwidth"]
    found.config["sample"] = {"memory_bandwidth": 2}
    found.hosts({"far": {**user.variables, "ansible_become": True}})
    return found


def play(root: Path, workflow: Workflow, playbook: str, *words: str, **extra: Any) -> Outcome:
    """Run a playbook on the workflow's hosts."""
    return playbooks.play(
        root,
        *("-i", workflow.folder / "hosts.yml", *words),
        playbook=playbook,
        extra=extra,
    )


@pytest.fixture(scope="module")
def provisioned(root: Path, user: LoginUser, tmp_path_factory: Any) -> Iterator[Outcome]:
    """What provision.yml said; the folder of the programs is the default one."""
    if INSTALLED.exists():
        pytest.skip(f"{INSTALLED} exists")
    workflow = Workflow(root, tmp_path_factory.mktemp("provision"))
    workflow.hosts({"far": {**user.variables, "ansible_become": True}})
    try:
        with user.allowed(EVERYTHING):
            first = play(root, workflow, "provision.yml")
            again = play(root, workflow, "provision.yml", provisioned_file=NOTE)
        assert (again.status, again.count("changed")) == (0, 0), again.said
        # make provisions such hosts each time, since it cannot see their files.
        assert not (root / NOTE).exists()
        yield first
    finally:
        shutil.rmtree(INSTALLED, ignore_errors=True)


def test_only_root_may_write_what_root_runs(provisioned: Outcome, user: LoginUser) -> None:
    assert provisioned.status == 0, provisioned.said
    paths = [INSTALLED, *INSTALLED.rglob("*")]
    assert any(path.name == "chaosity-latency" for path in paths)
    for path in paths:
        status = path.stat()
        assert (status.st_uid, status.st_mode & 0o022) == (0, 0), path
    # Others may run it, whatever root's umask was, so that a user may measure without sudo.
    for program in ("chaosity-run.pyz", "chaosity-place", "kernels/chaosity-latency"):
        assert (INSTALLED / program).stat().st_mode & 0o055 == 0o055, program
        assert all(folder.stat().st_mode & stat.S_IXOTH for folder in (INSTALLED / program).parents)
    assert not (user.home / ".local").exists()


def test_sudo_for_the_runner_alone_is_enough_to_measure_as_root(
    root: Path, workflow: Workflow, user: LoginUser, provisioned: Outcome
) -> None:
    with user.allowed(ONLY_THE_RUNNER):
        workflow.measure()
        refused = play(root, workflow, "provision.yml")
    found = workflow.records("far")
    assert found
    for record in found.values():
        assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
        assert record["loads"][0]["program"]["path"].startswith(f"{INSTALLED}/kernels/")
    host = json.loads((workflow.folder / "results/far/host.json").read_text())
    assert host["transport"]["runner"][:2] == ["sudo", "-n"]
    assert refused.status != 0
    assert refused.says("far has ansible_become: true, but its login user cannot become root")


def test_sudo_with_a_password_is_one_sentence(
    root: Path, workflow: Workflow, user: LoginUser, provisioned: Outcome
) -> None:
    with user.allowed(WITH_PASSWORD):
        refused = play(root, workflow, "provision.yml")
        run = workflow.snakemake()
    assert refused.says("(Task failed: Missing sudo password). Let sudo work without a password")
    assert run.returncode == 2
    assert "cannot be described: sudo: a password is required; let sudo start" in run.stdout


def test_settings_are_changed_and_restored(root: Path, workflow: Workflow, user: LoginUser) -> None:
    """By a play that becomes root, and by one of which only the tasks that need root do."""
    if not DEFRAG.exists() or SAVED.exists():
        pytest.skip("this kernel has no transparent huge pages, or settings are saved already")
    before = DEFRAG.read_text()
    wanted = "defer" if "[defer]" not in before else "never"
    with user.allowed(EVERYTHING):
        done = play(
            root,
            workflow,
            "playbooks/configure.yml",
            host_state_transparent_huge_pages_defrag=wanted,
        )
        changed = DEFRAG.read_text()
        workflow.hosts({"far": user.variables})
        restored = play(root, workflow, "playbooks/configure.yml", host_state_restore=True)
    assert done.status == 0, done.said
    assert f"[{wanted}]" in changed
    assert (restored.status, DEFRAG.read_text()) == (0, before), restored.said


def test_a_folder_that_the_user_may_change_is_refused(
    workflow: Workflow, user: LoginUser, provisioned: Outcome
) -> None:
    own = user.home / "installed"
    shutil.copytree(INSTALLED, own)
    shutil.chown(own, user.name)
    workflow.hosts(
        {"far": {**user.variables, "ansible_become": True, "chaosity_directory": str(own)}}
    )
    with user.allowed(EVERYTHING):
        run = workflow.snakemake()
    assert run.returncode == 2
    assert f"{own}" in run.stdout
    assert "users other than root may change the programs that sudo runs as root" in run.stdout


def test_without_become_everything_is_below_the_users_home(
    root: Path, workflow: Workflow, user: LoginUser
) -> None:
    workflow.hosts({"far": user.variables})
    with user.allowed(EVERYTHING):  # `--become` on the command line moves nothing to root's home
        done = play(root, workflow, "provision.yml", "--become")
    assert done.status == 0, done.said
    installed = [*(user.home / ".local/share/chaosity").rglob("*")]
    assert installed
    assert {path.lstat().st_uid for path in installed} == {user.home.stat().st_uid}
    workflow.measure()
    for record in workflow.records("far").values():
        assert record["verdict"]["status"] == "valid", record["verdict"]["reason"]
        assert record["loads"][0]["program"]["path"].startswith(str(user.home))
