"""Any inventory, and any answer of Slurm, gives hosts or one sentence."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from chaosity.hosts.ansible_inventory import read_inventory
from chaosity.hosts.runner_command import runner_command_line, ssh_transport
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
