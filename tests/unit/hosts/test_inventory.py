"""Hosts as Ansible's inventory says, whatever it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chaosity.errors import UserError
from chaosity.hosts import ansible_inventory
from chaosity.hosts.ansible_inventory import read_inventory, share_inventory_with_child_processes
from chaosity.hosts.host_discovery import checked_tool_versions_and_hashes, parse_version_number
from chaosity.hosts.runner_command import runner_command_line, ssh_transport
from chaosity.runner.describe_host import find_tool_path_version_and_hash as tool_on_host
from chaosity.slurm import (
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
    parse_slurm_jobs_of_run,
    parse_slurm_nodes,
)
from strategies import (
    ODD_TEXTS,
    Draw,
    change_document,
    change_text,
    changed,
    changed_json,
    check_any_input,
    write_text,
)

TOPOLOGY = (
    '<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
)


def inventory(folder, text):
    path = folder / "hosts.yml"
    path.write_text(text)
    return str(path)


def test_hosts_with_their_own_and_evaluated_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_USER", "bench")
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as if no environment were active
    path = inventory(
        tmp_path,
        "all:\n"
        "  vars:\n"
        "    chaosity_storage_file: {directory: /x, bytes: 99999999}\n"
        "    lab: '{{ inventory_dir }}/keys'\n"
        "    ansible_ssh_private_key_file: '{{ lab }}/{{ inventory_hostname }}'\n"
        "  hosts:\n"
        "    a:\n"
        "      ansible_user: \"{{ lookup('env', 'THE_USER') }}\"\n"
        "      ansible_port: 2201\n"
        "    milan: {chaosity_topology: b.xml, ansible_host: 10.0.0.1}\n",
    )
    [a, b] = read_inventory(path)
    assert (a.name, a.topology_source, a.local_or_ssh) == ("a", "live", "ssh")
    assert (b.name, b.topology_source) == ("milan", "b.xml")
    assert set(a.variables) == {"chaosity_storage_file"}
    assert a.connection_variables == {
        "ansible_ssh_private_key_file": f"{tmp_path}/keys/a",
        "ansible_port": 2201,
        "ansible_user": "bench",
    }
    assert [one.name for one in read_inventory(path, ["milan"])] == ["milan"]
    with pytest.raises(UserError, match="did you mean milan"):
        read_inventory(path, ["milano"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all: {hosts: {a: {chaosity_storage_file: {directory: /x}}}}", "'bytes' is missing"),
        ("all: {hosts: {}}", "has no host"),
        (
            "all: {hosts: {a: {ansible_user: '{{ nobody_knows }}'}}}",
            "hosts.yml, line 1: .*'nobody",
        ),
    ],
)
def test_a_wrong_inventory_is_an_error(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_inventory(inventory(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("hosts.yml", "all: {hosts: {no: {}}}", "hosts.yml: .*Host pattern False must be a string"),
        ("hosts.yml", "all:\n\ta: {}\n", r"hosts.yml, line 2: .*Tabs are usually invalid in YAML"),
        ("hosts", "[all]\na b=c d\n", "hosts: .*: Expected key=value .*, got: d"),
        (
            "hosts.json",
            '{"all": {"hosts": {"b": {"ansible_user": "{{ 1 / 0 }}"}}}}',
            r"hosts\.json: .*division by zero",
        ),
        ("a.xml", TOPOLOGY, r"a\.xml: an XML file is not an inventory; move it out"),
    ],
)
def test_the_reason_of_an_unreadable_file_in_a_folder_of_inventories_names_it(
    tmp_path, monkeypatch, name, text, message
):
    # Ansible ignores the ansible.cfg of a folder that others can write, and goes on with others.
    working, folder = tmp_path / "working", tmp_path / "inventories"
    working.mkdir()
    working.chmod(0o777)
    monkeypatch.chdir(working)
    folder.mkdir()
    (folder / "a.yml").write_text("all: {hosts: {a: {}}}")
    (folder / name).write_text(text)
    with pytest.raises(UserError, match=message):
        read_inventory(str(folder))


def test_an_inline_vault_value_is_decrypted_with_the_password_of_the_vault(
    tmp_path, monkeypatch, root
):
    shipped = root / "tests/data/inventories"
    text = (shipped / "inline-vault.yml").read_text()
    through = "ansible_user: '{{ ansible_password }}'\n      ansible_password:"
    path = inventory(tmp_path, text.replace("ansible_password:", through))
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    with pytest.raises(UserError, match=r"line \d+: .* ANSIBLE_VAULT_PASSWORD_FILE"):
        read_inventory(path)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(shipped / "inline-vault.password"))
    [host] = read_inventory(path)
    assert host.connection_variables["ansible_password"] == "secret"
    assert host.connection_variables["ansible_user"] == "secret"


def test_no_log_of_ansible_has_what_the_inventory_holds(tmp_path, monkeypatch):
    log = tmp_path / "ansible.log"
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(log))
    [host] = read_inventory(inventory(tmp_path, "all: {hosts: {far: {ansible_password: secret}}}"))
    assert host.connection_variables["ansible_password"] == "secret"
    assert not log.exists()


def run_ansible(*, user: int, home: str) -> str:
    """What is said before a playbook of a user starts."""
    code = (
        "import os; from chaosity.hosts.ansible_inventory import ansible_command; "
        f"from chaosity.errors import UserError; os.setuid({user})\n"
        "try: ansible_command('ansible-playbook')\n"
        "except UserError as error: print(error)"
    )
    environment = {"HOME": home, "PATH": "/usr/bin:/bin"}
    return subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_users_that_ansible_does_not_expect(tmp_path):
    said = run_ansible(user=65001, home="/nonexistent")
    assert "the folder /nonexistent/.ansible, in which Ansible keeps files, cannot be" in said
    assert "set HOME to a folder" in said
    said = run_ansible(user=65001, home="/tmp")
    assert "the user 65001 has no entry in /etc/passwd" in said
    assert run_ansible(user=0, home=str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("fio-3.33", (3, 33)), ("v2.9.0 of", (2, 9, 0)), ("0.1.0+4ab", (0, 1, 0)), ("none", ())],
)
def test_version_numbers(text, numbers):
    assert parse_version_number(text) == numbers


FIO = {"program": "fio", "install": "install it", "version": ["fio", "-v"], "at_least": "3.16"}


def checked(folder, monkeypatch, says, **need):
    """What is known of fio on a host on which it says this; None: it is not installed."""
    monkeypatch.setenv("PATH", str(folder))
    if says:
        (folder / "fio").write_text(f"#!/bin/sh\necho {says}\n")
        (folder / "fio").chmod(0o755)
    need = {**FIO, **need}
    return checked_tool_versions_and_hashes([need], [tool_on_host(need)])


@pytest.mark.parametrize(
    ("says", "optional", "message"),
    [
        (None, False, "fio: the program is not installed; install it"),
        ("fio-3.1", False, r"too old; 3\.16 or later is needed"),
        ("fio-3.1", True, r"too old; 3\.16 or later is needed"),
        ("rubbish", False, r"too old; 3\.16 or later is needed"),
    ],
)
def test_a_tool_that_is_missing_or_too_old_is_an_error(
    tmp_path, monkeypatch, says, optional, message
):
    with pytest.raises(UserError, match=message):
        checked(tmp_path, monkeypatch, says, optional=optional)


def test_an_optional_tool_may_be_missing_and_another_build_has_another_version(
    tmp_path, monkeypatch
):
    assert checked(tmp_path, monkeypatch, None, optional=True) == {}
    first = checked(tmp_path, monkeypatch, "fio-3.20")
    assert first["fio"].startswith("fio-3.20")
    assert checked(tmp_path, monkeypatch, "fio-3.20 # built anew") != first


@pytest.mark.parametrize(
    "answer",
    [
        "null", "[1]", "3", "[" * 100_000, '{"msg": 3}', '{"msg": "a"}', '{"msg": "[3]"}',
        '{"msg": "{}"}', '{"msg": "[1, 2, 3, 4]"}',
    ],
)  # fmt: skip
def test_an_answer_that_is_no_inventory_is_an_error(tmp_path, monkeypatch, answer):
    (tmp_path / "answer").write_text(answer)
    program = tmp_path / "ansible"
    program.write_text(f"#!/bin/sh\nexec cat {tmp_path}/answer\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(UserError):
        read_inventory(inventory(tmp_path, "all: {}"))


def inventory_program(folder: Path, host: str) -> tuple[str, Path]:
    """Write a program that is an inventory with this host; return its path, a file of its calls."""
    program, calls = folder / f"{host}.sh", folder / f"{host}.calls"
    program.write_text(
        f"#!/bin/sh\necho read >> {calls}\n"
        f"""echo '{{"all": {{"hosts": ["{host}"]}}, "_meta": {{"hostvars": {{}}}}}}'\n"""
    )
    program.chmod(0o755)
    return str(program), calls


def hosts_read_below(*paths: str) -> str:
    """Names of the hosts of inventories, read by a process below this one."""
    code = (
        "import sys; from chaosity.hosts.ansible_inventory import read_inventory;"
        "print(*[host.name for path in sys.argv[1:] for host in read_inventory(path)])"
    )
    return subprocess.check_output([sys.executable, "-c", code, *paths], text=True).strip()


def test_processes_below_use_the_shared_inventory_and_no_other_file(tmp_path, monkeypatch):
    variable = ansible_inventory._SHARED_ANSWER_VARIABLE
    monkeypatch.setenv(variable, "")  # restores it after the test
    path, calls = inventory_program(tmp_path, "a")
    share_inventory_with_child_processes(path)
    assert calls.read_text().count("read") == 1
    monkeypatch.chdir(tmp_path)
    # Another inventory is read, and each inventory if the path belongs to another file.
    other, calls_of_other = inventory_program(tmp_path, "b")
    assert hosts_read_below(path, "a.sh", other) == "a a b"
    assert calls.read_text().count("read") == 1
    assert calls_of_other.exists()
    for gone in ("/proc/0/fd/3", f"/proc/{os.getpid()}/fd/0"):
        monkeypatch.setenv(variable, gone)
        assert hosts_read_below(path) == "a"
    assert calls.read_text().count("read") == 3


VARIABLES = {
    "ansible_host": "10.0.0.1",
    "ansible_port": 22,
    "ansible_user": "{{ lookup('env', 'USER') }}",
    "ansible_ssh_common_args": "-o ProxyJump=gate",
    "runner_directory": "{{ inventory_dir }}/x",
    "chaosity_destructive_drives": ["S64GNE0R"],
    "chaosity_storage_file": {"directory": "/var/tmp", "bytes": 2**30},
}
LOCAL = {"ansible_connection": "local", "chaosity_topology": "live"}
INVENTORY = {"node01": VARIABLES, "node02": LOCAL}
ODD_TEMPLATES = (
    *("{{ 10 ** 10 ** 10 }}", "{{ 'a' * 10 ** 12 }}", "{{ range(10 ** 9) | list }}", "{{ 1 / 0 }}"),
    *(
        "{{ ''.__class__.__mro__ }}",
        "{{ self }}",
        "{{ x }}",
        "{{ (",
        "{{ '{{ x }}' }}",
        "'unclosed",
    ),
    *(
        "{{ inventory_hostname | attr('format') }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 'a' | center(10 ** 10) }}",
    ),
    *("{{ lookup('env') }}", "{{ lookup('pipe', 'id') }}", "{{ inventory_dir + 1 }}"),
)
NODES = (
    "NodeName=node01 Arch=x86_64 CPUAlloc=0 CPUEfctv=62 CPUTot=64 RealMemory=515000"
    " MemSpecLimit=1000 State=IDLE+DRAIN* Reason=bad DIMM [root@2026-11-20T10:00:00] Comment=x\n"
    "NodeName=node02 CPUTot=8 State=DOWN\n"
)
JOBS = (
    "12|COMPLETED|node01|1700000000|1700000010|1700000100|None|chaosity-1|/work\n"
    "13|PENDING|node01|1700000000|N/A|N/A|Resources|chaosity-2|/work\n"
)
SLURM_CONFIG = "MinJobAge = 300 sec\nAccountingStorageType = accounting_storage/none\n"


def change_variable(draw: Draw, inventory: Any) -> Any:
    """Change a variable of a host to an odd template or text."""
    name = draw(st.sampled_from(sorted(VARIABLES)))
    value = draw(st.sampled_from((*ODD_TEMPLATES, *ODD_TEXTS)))
    return {**inventory, "node01": {**inventory["node01"], name: value}}


def answer_of_ansible(inventory: Any) -> str:
    """What Ansible prints for hosts and their values."""
    hosts = inventory.items() if isinstance(inventory, dict) else [(inventory, None)]
    values = [
        [host, name, value]
        for host, variables in hosts
        for name, value in (variables if isinstance(variables, dict) else {None: None}).items()
    ]
    return "::1 | SUCCESS => " + json.dumps({"msg": "\n".join(map(json.dumps, values))})


def parse_inventory(text: str, folder: Path) -> None:
    """Read an inventory; a stand-in for ansible prints the text."""
    answer = write_text(folder / "answer", text)
    program = write_text(folder / "ansible", f"#!/bin/sh\nexec /bin/cat {answer}\n")
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        # Ansible's programs are looked for beside Python; sockets of OpenSSH are temporary files.
        patch.setattr(sys, "executable", str(folder / "python"))
        patch.setattr(tempfile, "tempdir", str(folder))
        for host in read_inventory(str(write_text(folder / "hosts.yml", ""))):
            if host.local_or_ssh == "ssh":
                command = runner_command_line(ssh_transport(host.name, host.connection_variables))
                assert all(isinstance(word, str) and "\0" not in word for word in command)
            assert isinstance(host.topology_source, str)


def parse_slurm(text: str, _folder: Path) -> None:
    [str(node.unusable_reason) for node in parse_slurm_nodes(text).values()]
    jobs = parse_slurm_jobs_of_run(text, {"node01"}, "chaosity-", "/work", 0.0)
    describe_queue_and_job_times(jobs.values(), {"node01": (3, 20.0)})
    check_finished_jobs_stay_visible(text)


def test_any_inventory_gives_hosts_or_one_sentence(tmp_path: Path) -> None:
    inputs = st.one_of(
        *[changed([INVENTORY], change_variable, 2).map(answer_of_ansible)] * 2,
        changed([INVENTORY], change_document).map(answer_of_ansible),
        changed_json([answer_of_ansible(INVENTORY)]),
    )
    check_any_input(inputs, parse_inventory, tmp_path, 0.3)


def test_any_answer_of_slurm_is_read_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([NODES, JOBS, SLURM_CONFIG], change_text), parse_slurm, tmp_path, 0.4)
