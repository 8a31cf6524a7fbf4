"""A strict host: root may not log in, all users have a umask of 027, and few may measure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from chaosity.hosts.runner_command import ROOT_DIRECTORY
from lab_machines import Machine
from lab_workflow import Pipeline, good

pytestmark = pytest.mark.lab

HOST = "small"
# Who may become root; who may measure memory and drives; who may measure memory alone; who may not.
ADMINISTRATOR, MEMBER, WITHOUT_DISKS, STRANGER = "bench", "member", "nodisks", "stranger"
GROUP = "hwlab"
# As sites set it, for logins (pam_umask), for sudo and for the SSH server.
MAKE_STRICT = f"""set -e
printf 'UMASK 027\\n' >> /etc/login.defs
sed -i 's/^USERGROUPS_ENAB.*/USERGROUPS_ENAB no/' /etc/login.defs
printf 'Defaults umask=0027, umask_override\\n{ADMINISTRATOR} ALL=(ALL) NOPASSWD: ALL\\n' \
  > /etc/sudoers.d/strict
chmod 0440 /etc/sudoers.d/strict
visudo --check
groupadd {GROUP}
useradd --create-home --shell /bin/bash {ADMINISTRATOR}
useradd --create-home --shell /bin/bash --groups {GROUP},disk {MEMBER}
useradd --create-home --shell /bin/bash --groups {GROUP} {WITHOUT_DISKS}
useradd --create-home --shell /bin/bash {STRANGER}
for user in {ADMINISTRATOR} {MEMBER} {WITHOUT_DISKS} {STRANGER}; do
  install -d -o $user -m 0700 /home/$user/.ssh
  install -o $user -m 0600 /root/.ssh/authorized_keys /home/$user/.ssh/
done
# An emulated compiler takes minutes. tests/workflow/test_become.py builds with a strict umask.
install -d {ROOT_DIRECTORY}/kernels
cp -a .local/share/chaosity/kernels/built-* {ROOT_DIRECTORY}/kernels/
echo 'PermitRootLogin no' > /etc/ssh/sshd_config.d/00-strict.conf
systemctl reload ssh
"""
MAKE_USUAL = f"""
rm -f /etc/ssh/sshd_config.d/00-strict.conf
systemctl reload ssh
sed -i -e '/^UMASK/d' -e 's/^USERGROUPS_ENAB.*/USERGROUPS_ENAB yes/' /etc/login.defs
chgrp root /run/chaosity/*.lock; chmod 0644 /run/chaosity/*.lock
rm -rf {ROOT_DIRECTORY} /etc/tmpfiles.d/chaosity.conf
for user in {MEMBER} {WITHOUT_DISKS} {STRANGER}; do
  pkill -KILL -u $user; userdel --remove $user
done
groupdel {GROUP}
rm -f /etc/sudoers.d/strict
userdel --force --remove {ADMINISTRATOR}
"""


@pytest.fixture(scope="module")
def strict(provisioned: Machine) -> Iterator[Machine]:
    """The small host, made strict; as it was afterwards."""
    provisioned.says(MAKE_STRICT)
    yield provisioned
    provisioned.ssh(f"sudo sh -c {shlex.quote(MAKE_USUAL)}", user=ADMINISTRATOR)
    assert provisioned.says("id", "-u").strip() == "0"


@pytest.fixture
def pipeline(strict: Machine, root: Path, tmp_path: Path) -> Pipeline:
    """A point of memory and a point of a drive, measured by the administrator through sudo."""
    found = Pipeline(root, tmp_path, HOST)
    found.config |= {
        "experiments": ["memory_bandwidth", "storage_sample"],
        "sample": {"memory_bandwidth": 1, "storage_sample": 1},
        "inventory": str(tmp_path / "hosts.yml"),
    }
    log_in(found, strict, ADMINISTRATOR, ansible_become=True, runner_lock_group=GROUP)
    return found


def log_in(pipeline: Pipeline, strict: Machine, user: str, **variables: Any) -> None:
    """Let a user measure what provisioning as root has installed."""
    lab = strict.folder.parent
    options = {"UserKnownHostsFile": lab / "known_hosts", "HostKeyAlgorithms": "ssh-ed25519"}
    known = {
        "ansible_host": "127.0.0.1",
        "ansible_port": strict.port,
        "ansible_user": user,
        "ansible_ssh_private_key_file": str(lab / "id_ed25519"),
        "ansible_ssh_common_args": " ".join(f"-o {key}={value}" for key, value in options.items()),
        "ansible_python_interpreter": "/usr/bin/python3",
        "chaosity_directory": ROOT_DIRECTORY,
        "toolchain_optional": ["liburing", "tbb_headers"],
    }
    pipeline.hosts({HOST: {**known, **variables}})


def play(pipeline: Pipeline, playbook: str, **extra: Any) -> playbooks.Outcome:
    """Run a playbook on the pipeline's host."""
    found = playbooks.play(
        pipeline.root, "-i", pipeline.config["inventory"], playbook=playbook, extra=extra
    )
    assert found.status == 0, found.said
    return found


def verdicts(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """The verdict of each experiment's only point."""
    pipeline.snakemake("--until", "measure")
    folder = pipeline.folder / "results" / HOST
    found = folder.glob("*/*/*/attempts/rep1.*.json")
    return {path.parents[2].name: json.loads(path.read_text())["verdict"] for path in found}


@pytest.fixture(scope="module")
def installed(strict: Machine, root: Path, tmp_path_factory) -> None:
    """All that provisioning installs, by an administrator who becomes root through sudo."""
    pipeline = Pipeline(root, tmp_path_factory.mktemp("provision"), HOST)
    pipeline.config["inventory"] = str(pipeline.folder / "hosts.yml")
    log_in(pipeline, strict, ADMINISTRATOR, ansible_become=True, runner_lock_group=GROUP)
    play(pipeline, "provision.yml")


def test_the_host_is_strict(strict: Machine) -> None:
    assert "Permission denied" in strict.ssh("true").stderr
    assert strict.says("umask", user=ADMINISTRATOR).strip() == "0027"
    assert strict.says("sudo sh -c umask", user=ADMINISTRATOR).strip() == "0027"


def test_root_measures_through_sudo(installed, pipeline: Pipeline) -> None:
    pipeline.run()
    records = pipeline.all_records()
    assert len(records) == 2
    for record in records:
        assert good(record), record["verdict"]["reason"]
    paths = [record["loads"][0]["program"]["path"] for record in records]
    assert any(path.startswith(f"{ROOT_DIRECTORY}/kernels/") for path in paths)


def test_a_member_of_the_groups_measures_without_root(
    installed, strict: Machine, pipeline: Pipeline
) -> None:
    log_in(pipeline, strict, MEMBER)
    found = verdicts(pipeline)
    assert {verdict["status"] for verdict in found.values()} == {"valid"}, found
    assert found.keys() == {"memory_bandwidth", "storage_sample"}


def test_a_member_who_may_not_read_drives_measures_memory(
    installed, strict: Machine, pipeline: Pipeline
) -> None:
    log_in(pipeline, strict, WITHOUT_DISKS)
    found = verdicts(pipeline)
    assert found["memory_bandwidth"]["status"] == "valid", found
    assert "run as root or join the group 'disk'" in found["storage_sample"]["reason"]


def test_who_is_in_no_group_cannot_measure(installed, strict: Machine, pipeline: Pipeline) -> None:
    log_in(pipeline, strict, STRANGER)
    for verdict in verdicts(pipeline).values():
        assert "this user may not open the lock" in verdict["reason"]
        assert "runner_lock_group" in verdict["reason"]
