"""The two runtimes on a machine with eight nodes: who touches whose memory is real there.

The study as a whole is not measured on them: an emulated processor takes a minute for a product of
matrices.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from chaosity.cpusets import parse_cpu_list
from lab_machines import KERNELS, Machine

pytestmark = pytest.mark.lab

NODES = 8
BYTES = 16 << 20
PROGRAMS = ("stencil", "matmul", "mergesort", "spmv")
# Stealing at random makes 1/8 of the accesses local: 0.125. How far a share of so many blocks may
# be from that by chance: a task's blocks are in turns on the nodes and depart from 1/8 by less than
# single blocks would, and a run has more than 1000 tasks; were each one block, the standard
# deviation were (1/8 x 7/8 / 1000)^(1/2) = 0.0105. Five of them.
STOLEN = (0.125 - 0.053, 0.125 + 0.053)
AT_HOME = (0.95, 1.0)


def run(machine: Machine, program: str, runtime: str) -> dict[str, Any]:
    """One run on all units; returns what its lines say, the last of them first in rank."""
    cpus = machine.says("cat", "/sys/devices/system/cpu/online").strip()
    words = ["--program", program, "--runtime", runtime, "--cpus", cpus, "--bytes", str(BYTES)]
    said = machine.says(f"{KERNELS}/chaosity-tasks", *words, "--max-seconds", "0.1")
    lines = [json.loads(line) for line in said.splitlines()]
    assert {thread["cpu"] for thread in lines[0]["threads"]} == set(parse_cpu_list(cpus))
    return {**lines[0], **lines[-1]}


@pytest.mark.parametrize(("runtime", "low", "high"), [("vanilla", *STOLEN), ("locality", *AT_HOME)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_one_runtime_stays_at_home_and_the_other_steals_from_anywhere(
    server: Machine, program: str, runtime: str, low: float, high: float
) -> None:
    found = run(server, program, runtime)
    print(f"{program} on {runtime}: {found['locality']:.4f} of {found['block_accesses']} accesses")
    assert found["valid"] is True
    assert found["moved_blocks"] == 0
    assert len(found["blocks_by_node"]) == NODES
    assert low <= found["locality"] <= high


def test_a_node_without_memory_keeps_no_data(traps: Machine) -> None:
    """On the machine of traps, whose CPUs are not all on a node with memory."""
    [bare, *_] = traps.inventory["memoryless_nodes"]
    listed = traps.says("cat", f"/sys/devices/system/node/node{bare}/cpulist")
    cpu = min(parse_cpu_list(listed))
    program = f"{KERNELS}/chaosity-tasks"
    options = f"--program stencil --cpus {cpu} --bytes 4194304 --max-seconds 0.1"
    refused = traps.ssh(f"{program} --runtime locality {options}")
    assert refused.returncode == 2
    assert f"CPU {cpu} is on node {bare}, which has no memory" in refused.stderr
    assert traps.ssh(f"{program} --runtime vanilla {options}").returncode == 0
