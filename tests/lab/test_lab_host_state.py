"""Host state on a machine with several nodes and systemd, over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from lab_machines import Machine
from lab_workflow import INVENTORY
from virtual_lab import power_switch

pytestmark = pytest.mark.lab

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
CONFIGURE = "playbooks/configure.yml"


def play(root: Path, playbook: str, **extra: Any) -> playbooks.Outcome:
    """Run a playbook on the host."""
    return playbooks.play(root, "-i", INVENTORY, "--limit", "small", playbook=playbook, extra=extra)


def restore(root: Path) -> playbooks.Outcome:
    """Restore what was saved on the host."""
    return play(root, CONFIGURE, host_state_restore=True)


def reading(host: Machine) -> list[str]:
    """What every knob is at, and whether the service runs."""
    state = host.says("systemctl", "show", "--property=ActiveState", SERVICE)
    return [*host.says("cat", *KNOBS).splitlines(), *state.splitlines()]


@pytest.fixture(scope="module")
def host(root: Path, small: Machine) -> Iterator[Machine]:
    """The small host, with the service that its image keeps from starting by itself."""
    small.says("systemctl", "unmask", SERVICE)
    yield small
    restore(root)
    small.says("systemctl", "mask", SERVICE)


def test_every_node_is_set_read_back_and_given_back(root: Path, host: Machine) -> None:
    before = reading(host)
    first = play(root, CONFIGURE, **WANTED)
    assert (first.status, first.count("changed")) == (0, 1), first.said
    assert reading(host) == [
        "16",
        "40",
        "3",
        "2",
        "0",
        "always madvise [never]",
        "ActiveState=active",
    ]
    again = play(root, CONFIGURE, **WANTED)
    assert (again.status, again.count("changed")) == (0, 0), again.said
    back = restore(root)
    assert (back.status, back.count("changed")) == (0, 1), back.said
    assert reading(host) == before


def test_a_node_that_gives_too_few_pages_is_named_with_the_figures(
    root: Path, host: Machine
) -> None:
    before = reading(host)
    total = int(host.says(f"awk '/MemTotal/{{print$4}}' {NODE}1/meminfo"))
    # All of the node's memory: the kernel keeps some of it for itself.
    pages = total // 2048
    outcome = play(root, CONFIGURE, host_state_huge_pages={"1": {"2M": pages}})
    assert outcome.status != 0
    assert outcome.says("small: node 1 gives", f"instead of {pages} huge pages of 2 MiB, with")
    back = restore(root)
    assert back.status == 0, back.said
    assert reading(host) == before


def test_a_boot_puts_everything_back_and_nothing_is_written_over_it(
    root: Path, host: Machine
) -> None:
    before = reading(host)
    assert play(root, CONFIGURE, **WANTED).status == 0
    power_switch.stop_machine(host.folder)
    power_switch.boot_machine(host.folder)
    booted = reading(host)
    assert booted[:-1] == before[:-1]
    back = restore(root)
    assert back.says("small has booted since"), back.said
    assert reading(host) == booted
