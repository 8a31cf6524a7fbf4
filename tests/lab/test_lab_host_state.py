"""Host state on a machine with several nodes and systemd, over SSH."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import plays

pytestmark = pytest.mark.lab

ANSIBLE = Path(sys.executable).parent / "ansible"
HOST = ("-i", "inventories/lab", "--limit", "small")
NODE = "/sys/devices/system/node/node"
PAGES = "hugepages/hugepages-2048kB/nr_hugepages"
WEIGHTS = "/sys/kernel/mm/mempolicy/weighted_interleave/node"
KNOBS = [
    f"{NODE}0/{PAGES}",
    f"{NODE}1/{PAGES}",
    f"{WEIGHTS}0",
    f"{WEIGHTS}1",
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/transparent_hugepage/enabled",
]
SERVICE = "irqbalance.service"
WANTED = {
    "host_state_huge_pages": {"all": {"2M": 16}, "1": {"2M": 40}},
    "host_state_weighted_interleave": {"all": 2, "0": 3},
    "host_state_numa_balancing": 0,
    "host_state_transparent_huge_pages": "never",
    "host_state_irq_balance": True,
}


class Small:
    """The lab's small host, as a person at its console sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, module: str, *arguments: str) -> str:
        """What Ansible says of one module's work on the host."""
        answer = subprocess.run(
            [ANSIBLE, *HOST, "small", "-o", "-m", f"ansible.builtin.{module}", *arguments],
            cwd=self.root,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def ask(self, *command: str) -> list[str]:
        """Lines that a program on the host prints."""
        said = self.run("command", "-a", " ".join(command))
        return said.partition("(stdout) ")[2].strip().split("\\n")

    def reading(self) -> list[str]:
        """What every knob is at, and whether the service runs."""
        state = self.ask("systemctl", "show", "--property=ActiveState", SERVICE)
        return [*self.ask("cat", *KNOBS), *state]

    def play(self, playbook: str, *arguments: str, **extra: Any) -> plays.Outcome:
        """Run a playbook on the host."""
        return plays.play(self.root, *HOST, *arguments, playbook=playbook, extra=extra)


@pytest.fixture(scope="module")
def small(root: Path) -> Iterator[Small]:
    """The host, up, with the service that its image keeps from starting by itself."""
    up = plays.play(root, *HOST, playbook="lab.yml")
    assert up.status == 0, up.said
    host = Small(root)
    host.ask("systemctl", "unmask", SERVICE)
    yield host
    host.play("restore.yml")
    host.ask("systemctl", "mask", SERVICE)


def test_every_node_is_set_read_back_and_given_back(small: Small) -> None:
    before = small.reading()
    first = small.play("configure.yml", **WANTED)
    assert (first.status, first.count("changed")) == (0, 1), first.said
    assert small.reading() == [
        "16", "40", "3", "2", "0", "always madvise [never]", "ActiveState=active"
    ]  # fmt: skip
    again = small.play("configure.yml", **WANTED)
    assert (again.status, again.count("changed")) == (0, 0), again.said
    back = small.play("restore.yml")
    assert (back.status, back.count("changed")) == (0, 1), back.said
    assert small.reading() == before


def test_a_node_that_gives_too_few_pages_is_named_with_the_figures(small: Small) -> None:
    before = small.reading()
    [total] = small.ask("awk", "/MemTotal/{print$4}", f"{NODE}1/meminfo")
    # All of the node's memory: the kernel keeps some of it for itself.
    pages = int(total) // 2048
    outcome = small.play("configure.yml", host_state_huge_pages={"1": {"2M": pages}})
    assert outcome.status != 0
    assert outcome.says("small: node 1 gives", f"instead of {pages} huge pages of 2 MiB, with")
    back = small.play("restore.yml")
    assert back.status == 0, back.said
    assert small.reading() == before


def test_a_boot_puts_everything_back_and_nothing_is_written_over_it(small: Small) -> None:
    before = small.reading()
    assert small.play("configure.yml", **WANTED).status == 0
    small.run("reboot")
    booted = small.reading()
    assert booted[:-1] == before[:-1]
    back = small.play("restore.yml")
    assert back.says("small has booted since"), back.said
    assert small.reading() == booted
