"""Command lines that lead to hosts, and what OpenSSH's words mean."""

from __future__ import annotations

import shlex
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.errors import UserError
from chaosity.hosts.runner_command import (
    LOCAL,
    SSH,
    connection_error_cause,
    control_socket_folder,
    runner_command_line,
    ssh_command_with_password,
    ssh_transport,
)

VARIABLES = {
    "ansible_host": "10.0.0.7",
    "ansible_port": 2201,
    "ansible_user": "bench",
    "ansible_ssh_private_key_file": "/keys/a b",
    "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o ConnectTimeout=3",
    "ansible_become": True,
}

ASKPASS = "from chaosity.hosts.runner_command import print_password; print_password()"


@given(st.lists(st.text(min_size=1), max_size=4))
def test_every_word_reaches_the_host_unchanged(words):
    way = ["ssh", "--", "host"]
    far = runner_command_line({"kind": SSH, "way": way, "runner": ["run"]}, *words)
    assert far[:3] == ["ssh", "--", "host"]
    assert shlex.split(far[3]) == ["run", *words]
    near = {"kind": LOCAL, "way": [], "runner": ["run"]}
    assert runner_command_line(near, *words) == ["run", *words]


def test_the_inventory_cannot_switch_off_key_checks():
    transport = ssh_transport("far", VARIABLES)
    way = transport["way"]
    checking = [word for word in way if word.startswith("StrictHostKeyChecking")]
    assert checking[0] == "StrictHostKeyChecking=yes"  # OpenSSH takes the first
    assert way[way.index("-p") + 1] == "2201"
    assert way[way.index("-i") + 1] == "/keys/a b"
    assert way.index("ConnectTimeout=3") < way.index("ConnectTimeout=10")
    assert "BatchMode=yes" in way  # a question for a password would wait for ever
    assert way[-2:] == ["--", "10.0.0.7"]


@pytest.mark.parametrize(
    ("variables", "runner"),
    [
        (
            {},
            "python3 .local/share/chaosity/chaosity-run.pyz --tools .local/share/chaosity/kernels",
        ),
        (
            {"ansible_become": True},
            "sudo -n python3 /opt/chaosity/chaosity-run.pyz --tools /opt/chaosity/kernels",
        ),
        # An INI inventory has texts.
        (
            {"ansible_become": "false", "chaosity_directory": "/d"},
            "python3 /d/chaosity-run.pyz --tools /d/kernels",
        ),
        (
            {"chaosity_directory": "/d", "runner_directory": "/r", "runner_python": "/p"},
            "/p /r/chaosity-run.pyz --tools /d/kernels",
        ),
        (
            {"runner_directory": "/r", "kernels_directory": "/k"},
            "python3 /r/chaosity-run.pyz --tools /k",
        ),
    ],
)
def test_the_runner_is_started_where_provisioning_installs_it(variables, runner):
    assert ssh_transport("far", variables)["runner"] == runner.split()


def test_openssh_understands_the_options():
    way = ssh_transport("far", {"ansible_host": "10.0.0.7"})["way"]
    said = subprocess.run([way[0], "-G", *way[1:]], capture_output=True, text=True, check=True)
    assert "stricthostkeychecking true" in said.stdout


def test_a_password_is_only_in_the_environment():
    command, environment = ssh_command_with_password(["ssh", "--", "host"], "secret")
    assert "secret" not in " ".join(command)
    assert command.index("BatchMode=no") < command.index("--")
    answer = subprocess.run(
        [sys.executable, "-c", ASKPASS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "secret\n"


def test_the_socket_folder_is_closed_to_other_users(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = control_socket_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for mode in (0o750, 0o705):
        folder.chmod(mode)
        with pytest.raises(UserError, match="other users can access the folder"):
            control_socket_folder()


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        (
            "@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@\nHost key verification failed.",
            "its host key has changed",
        ),
        ("No ED25519 host key is known for x\nHost key verification failed.", "is not known"),
        ("root@x: Permission denied (publickey,password).", "refused the key or the password"),
        ("ssh: connect to host x port 22: Connection refused", "nothing listens"),
        ("ssh: connect to host x port 22: Connection timed out", "does not answer"),
        ("ssh: Could not resolve hostname x: Name or service not known", "cannot be resolved"),
        ("kex_exchange_identification: Connection closed by remote host", "closed the connection"),
        ("Connection reset by 192.0.2.1 port 22", "it closed the connection"),
        ("something new", "something new"),
        ("", "without a message"),
    ],
)
def test_causes_of_failed_connections(said, meaning):
    assert meaning in connection_error_cause(said)


def test_hosts_of_one_address_with_other_options_do_not_share_a_connection():
    """Else the connection of one host would stand in for the check of the other's host key."""
    same = {"ansible_host": "192.0.2.1", "ansible_port": 22}
    other = {**same, "ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"}
    paths = [
        next(word for word in ssh_transport("far", variables)["way"] if "ControlPath=" in word)
        for variables in (same, other, same)
    ]
    assert paths[0] != paths[1]
    assert paths[0] == paths[2]
