"""Our own programs on eight nodes: whose policy rules, pages that move, all nodes in turn.

How fast they are means nothing in an emulated machine. Where their pages are is real.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.runner import observed_state
from lab_machines import KERNELS, Machine

pytestmark = pytest.mark.lab

MIB = 1 << 20
NODES = range(8)
ALL = "0-7"
BALANCING = "/proc/sys/kernel/numa_balancing"
# Prints what the program printed until it is asked, its numa_maps, and the rest.
SCRIPT = """
{command} > /tmp/program.out & program=$!
until grep -q sample /tmp/program.out; do sleep 0.1; done
cat /proc/$program/numa_maps > /tmp/program.before
{meanwhile}
cat /proc/$program/numa_maps > /tmp/program.after
kill $program; wait $program
"""


@pytest.fixture(scope="module")
def still(server: Machine) -> Iterator[Machine]:
    """The server, on which the kernel does not move pages by itself."""
    before = server.says("cat", BALANCING).strip()
    server.says(f"echo 0 > {BALANCING}")
    yield server
    server.says(f"echo {before} > {BALANCING}")


class Ran:
    """A program that ran on the machine, and where its pages were before and after something."""

    def __init__(self, machine: Machine, command: str, meanwhile: str = ":") -> None:
        script = SCRIPT.format(command=command, meanwhile=meanwhile)
        self.machine = machine
        answer = machine.ssh(f"bash -c {shlex.quote(script)}")
        assert answer.returncode == 0, answer.stderr
        lines = machine.says("cat", "/tmp/program.out").splitlines()
        self.ready, *self.samples, self.done = map(json.loads, lines)
        assert self.done["valid"] is True

    def pages(self, when: str = "before") -> dict[int, float]:
        """The share of each node that has pages of the program's mapping."""
        numa_maps = self.machine.says("cat", f"/tmp/program.{when}")
        found = observed_state.private_bytes_by_node(numa_maps, self.ready["mapping"])
        return {node: count / sum(found.values()) for node, count in found.items()}


def cpu_of(machine: Machine, node: int) -> str:
    """The first processing unit of a node."""
    listed = machine.says("cat", f"/sys/devices/system/node/node{node}/cpulist")
    return str(min(parse_cpu_list(listed)))


def workload(machine: Machine, nodes: list[int], *more: str, kernel: str = "gather") -> str:
    """A command with a thread on each of these nodes."""
    cpus = ",".join(cpu_of(machine, node) for node in nodes)
    words = [f"{KERNELS}/chaosity-workload", "--kernel", kernel, "--cpus", cpus]
    return shlex.join([*words, "--bytes", str(8 * MIB), "--max-seconds", "60", *more])


def near(seen: dict[int, float], wanted: dict[int, float]) -> bool:
    return all(abs(seen.get(node, 0) - wanted.get(node, 0)) < 0.02 for node in NODES)


def test_pages_are_where_they_were_touched_first(still: Machine) -> None:
    for touch, wanted in (("leader", {5: 1}), ("own", {5: 0.5, 2: 0.5})):
        assert near(Ran(still, workload(still, [5, 2], "--touch", touch)).pages(), wanted)


def test_the_policy_of_the_process_rules_and_not_the_touch(still: Machine) -> None:
    command = workload(still, [5, 2], "--touch", "leader")
    seen = Ran(still, f"numactl --interleave={ALL} {command}").pages()
    assert near(seen, dict.fromkeys(NODES, 1 / 8))


def test_pages_are_bound_when_that_is_asked(still: Machine) -> None:
    assert Ran(still, workload(still, [5], "--memory-nodes", "3")).pages() == {3: 1}


@pytest.mark.parametrize("kernel", ["triad", "gather", "stencil", "spmv"])
def test_pages_that_move_under_a_program_change_nothing(still: Machine, kernel: str) -> None:
    moves = "for node in 1 2 3 4; do migratepages $program $((node - 1)) $node; done"
    ran = Ran(still, workload(still, [0, 1], "--touch", "leader", kernel=kernel), moves)
    assert (ran.pages(), ran.pages("after")) == ({0: 1}, {4: 1})


def test_paths_read_from_a_buffer_on_each_node_in_turn(still: Machine) -> None:
    words = [f"{KERNELS}/chaosity-paths", "--cpus", cpu_of(still, 6), "--memory-nodes", ALL]
    ran = Ran(still, shlex.join([*words, "--bytes", str(2 * MIB), "--max-seconds", "60"]))
    assert near(ran.pages(), dict.fromkeys(NODES, 1 / 8))
    assert len(ran.ready["mapping"]) == len(NODES)
    assert ran.samples
    for sample in ran.samples:
        assert [*sample["bytes_by_node"]] == [*map(str, NODES)]
        assert all(count > 0 for count in sample["bytes_by_node"].values())
        assert sum(sample["bytes_by_node"].values()) == sample["bytes"]
