"""Reading the inventory through Ansible, and the errors of wrong inventories."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaosity.errors import UserError
from chaosity.hosts import ansible_inventory
from chaosity.hosts.ansible_inventory import read_inventory, share_inventory_with_processes_below
from chaosity.hosts.host_discovery import checked_tool_versions_and_hashes, parse_version_number
from chaosity.runner.describe_host import find_tool_path_version_and_hash as tool_on_host


def inventory(folder, text):
    path = folder / "hosts.yml"
    path.write_text(text)
    return str(path)


def test_hosts_with_their_own_variables(tmp_path):
    path = inventory(
        tmp_path,
        "all:\n  vars: {chaosity_storage_file: {directory: /x, bytes: 99999999}}\n"
        "  hosts:\n    a: {ansible_host: 10.0.0.1}\n    b: {chaosity_topology: b.xml}\n",
    )
    [a, b] = read_inventory(path)
    assert (a.name, a.topology_source) == ("a", "live")
    assert (b.name, b.topology_source) == ("b", "b.xml")
    assert set(a.variables) == {"chaosity_storage_file"}
    assert [one.name for one in read_inventory(path, ["b"])] == ["b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("all: {hosts: {a: {chaosity_toplogy: live}}}", "did you mean chaosity_topology"),
        ("all: {hosts: {a: {chaosity_storage_file: {directory: /x}}}}", "'bytes' is missing"),
        ("all: {hosts: {}}", "has no host"),
        ("all: [hosts", "cannot read"),
    ],
)
def test_a_wrong_inventory_is_an_error(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read_inventory(inventory(tmp_path, text))


UNREADABLE = {
    "a host named no": (
        "all: {hosts: {no: {}}}",
        "hosts.yml: .*Host pattern False must be a string",
    ),
    "a tab": (
        "all:\n  hosts:\n\ta: {}\n",
        r"hosts.yml, line 3: .*Tabs are usually invalid in YAML\.$",
    ),
}


@pytest.mark.parametrize(("text", "message"), UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("others_can_write", [False, True])
def test_the_reason_of_an_unreadable_inventory_names_its_file(
    tmp_path, monkeypatch, text, message, others_can_write
):
    working, folder = tmp_path / "working", tmp_path / "inventories"
    working.mkdir()
    if others_can_write:  # Ansible ignores the ansible.cfg there, and goes on with the other files
        working.chmod(0o777)
        monkeypatch.chdir(working)
    folder.mkdir()
    (folder / "a.yml").write_text("all: {hosts: {a: {}}}")
    inventory(folder, text)
    with pytest.raises(UserError, match=message):
        read_inventory(str(folder))


def test_the_reason_for_an_ini_file_is_that_of_its_format(tmp_path):
    (tmp_path / "hosts").write_text("[all]\na b=c d\n")
    with pytest.raises(UserError, match=r"hosts: .*: Expected key=value .*, got: d"):
        read_inventory(str(tmp_path / "hosts"))


def test_an_xml_file_in_a_folder_of_inventories_does_not_belong_there(tmp_path, root):
    inventory(tmp_path, "all: {hosts: {a: {}}}")
    shutil.copy(root / "machines/topologies/desktop.xml", tmp_path)
    with pytest.raises(UserError, match=r"desktop\.xml: an XML file is no inventory; move it out"):
        read_inventory(str(tmp_path))


@pytest.mark.parametrize("through", ["", "{{ secret }}"])
def test_an_inline_vault_value_is_decrypted_with_the_password_of_the_vault(
    tmp_path, monkeypatch, root, through
):
    shipped = root / "tests/data/inventories"
    text = (shipped / "inline-vault.yml").read_text()
    if through:
        text = text.replace("ansible_password:", f"ansible_password: '{through}'\n      secret:")
    path = inventory(tmp_path, text)
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    with pytest.raises(UserError, match=r"line \d+: .* ANSIBLE_VAULT_PASSWORD_FILE"):
        read_inventory(path)
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(shipped / "inline-vault.password"))
    [host] = read_inventory(path)
    assert host.connection_variables["ansible_password"] == "secret"


@pytest.mark.parametrize("locale", ["C", "xx_XX.UTF-8"])
def test_any_locale_and_an_environment_that_is_not_active(tmp_path, monkeypatch, locale):
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    [host] = read_inventory(inventory(tmp_path, "all: {hosts: {a: {}}}"))
    assert host.name == "a"


def run_ansible(*, user: int, home: str) -> str:
    """What is said before a playbook of a user starts."""
    code = (
        "import os; from chaosity.hosts.ansible_programs import ansible_command; "
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


def test_an_unknown_host_is_an_error(tmp_path):
    path = inventory(tmp_path, "all: {hosts: {milan: }}")
    with pytest.raises(UserError, match="did you mean milan"):
        read_inventory(path, ["milano"])


def test_a_missing_inventory_is_an_error(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read_inventory(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("fio-3.33", (3, 33)), ("v2.9.0 of", (2, 9, 0)), ("0.1.0+4ab", (0, 1, 0)), ("none", ())],
)
def test_version_numbers(text, numbers):
    assert parse_version_number(text) == numbers


def tool(folder, name, says):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)


def seen(monkeypatch, folder, need):
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return [tool_on_host(need)]


def test_a_missing_tool_is_an_error_that_says_how_to_install_it(tmp_path, monkeypatch):
    need = {"program": "no-such-tool", "install": "install it"}
    with pytest.raises(UserError, match="no-such-tool: the program is not installed; install it"):
        checked_tool_versions_and_hashes([need], seen(monkeypatch, tmp_path, need))


def test_an_optional_tool_may_be_missing_but_not_too_old(tmp_path, monkeypatch):
    need = {
        "program": "clpeak",
        "install": "x",
        "optional": True,
        "at_least": "1.1",
        "version": ["clpeak", "--version"],
    }
    assert (
        checked_tool_versions_and_hashes(
            [{**need, "program": "no-such-tool"}], [{"path": None, "version": None}]
        )
        == {}
    )
    tool(tmp_path, "clpeak", "clpeak version: 1.0.2")
    with pytest.raises(UserError, match=r"too old; 1\.1 or later is needed"):
        checked_tool_versions_and_hashes([need], seen(monkeypatch, tmp_path, need))


@pytest.mark.parametrize("says", ["fio-3.1", "rubbish"])
def test_a_tool_that_is_too_old_is_an_error(tmp_path, monkeypatch, says):
    tool(tmp_path, "fio", says)
    need = {"program": "fio", "install": "x", "version": ["fio", "-v"], "at_least": "3.16"}
    with pytest.raises(UserError, match=r"too old; 3\.16 or later is needed"):
        checked_tool_versions_and_hashes([need], seen(monkeypatch, tmp_path, need))


def test_another_build_of_a_tool_has_another_version(tmp_path, monkeypatch):
    need = {"program": "fio", "install": "x", "version": ["fio", "-v"], "at_least": "3.16"}
    tool(tmp_path, "fio", "fio-3.20")
    first = checked_tool_versions_and_hashes([need], seen(monkeypatch, tmp_path, need))
    tool(tmp_path, "fio", "fio-3.20 # built anew")
    assert first["fio"].startswith("fio-3.20")
    assert checked_tool_versions_and_hashes([need], seen(monkeypatch, tmp_path, need)) != first


def test_expressions_in_connection_variables_are_evaluated(tmp_path, monkeypatch):
    monkeypatch.setenv("THE_USER", "bench")
    path = inventory(
        tmp_path,
        "all:\n  vars:\n    lab: '{{ inventory_dir }}/keys'\n"
        "    ansible_user: \"{{ lookup('env', 'THE_USER') }}\"\n"
        "  hosts: {a: {ansible_ssh_private_key_file: '{{ lab }}/id', ansible_port: 2201}}\n",
    )
    [a] = read_inventory(path)
    assert a.local_or_ssh == "ssh"
    assert a.connection_variables == {
        "ansible_ssh_private_key_file": f"{tmp_path}/keys/id",
        "ansible_port": 2201,
        "ansible_user": "bench",
    }


def test_an_expression_with_an_unknown_variable_is_an_error(tmp_path):
    path = inventory(tmp_path, "all: {hosts: {a: {ansible_user: '{{ nobody_knows }}'}}}")
    with pytest.raises(UserError, match=r"hosts.yml, line 1: .*'nobody"):
        read_inventory(path)


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


def hosts_read_below(path: str) -> str:
    """Names of the hosts of an inventory, read by a process below this one."""
    code = (
        "import sys; from chaosity.hosts.ansible_inventory import read_inventory;"
        "print(*[host.name for host in read_inventory(sys.argv[1])])"
    )
    return subprocess.check_output([sys.executable, "-c", code, path], text=True).strip()


def test_processes_below_use_the_shared_inventory_and_no_other_file(tmp_path, monkeypatch):
    variable = ansible_inventory._SHARED_ANSWER_VARIABLE
    monkeypatch.setenv(variable, "")  # restores it after the test
    path, calls = inventory_program(tmp_path, "a")
    share_inventory_with_processes_below(path)
    assert calls.read_text().count("read") == 1
    monkeypatch.chdir(tmp_path)
    assert hosts_read_below(path) == hosts_read_below("a.sh") == "a"
    assert calls.read_text().count("read") == 1
    # Another inventory is read, and each inventory if the path belongs to another file.
    other, calls_of_other = inventory_program(tmp_path, "b")
    assert hosts_read_below(other) == "b"
    assert calls_of_other.exists()
    for gone in ("/proc/0/fd/3", f"/proc/{os.getpid()}/fd/0"):
        monkeypatch.setenv(variable, gone)
        assert hosts_read_below(path) == "a"
    assert calls.read_text().count("read") == 3
