"""A machine with round numbers, and loads on it, whose rates can be calculated by hand."""

from __future__ import annotations

from datetime import date
from typing import Any

from chaosity.documents.machines import Fault, MachineDescription
from chaosity.simulation.machine_model import MachineModel
from machines import TODAY, shipped_topology

TOPOLOGY = shipped_topology("epyc_7413_nps4")
MACHINE: MachineDescription = {
    "simulated_machine": "by_hand",
    "description": "round numbers",
    "sources": ["this test"],
    "memory": {
        "core_bytes_per_second": 20e9,
        "package_bytes_per_second": 160e9,  # 40 GB/s for each of four nodes
    },
    "links": {"package_to_package_bytes_per_second": 30e9},
    "latency_ns": {
        "l1": 1.0,
        "l2": 4.0,
        "l3": 15.0,
        "same_node": 100.0,
        "same_package": 110.0,
        "other_package": 200.0,
        "queue": 10.0,
    },
    "core_to_core_ns": {"same_l3": 25.0, "same_package": 90.0, "other_package": 210.0},
    "drives": {"read_bytes_per_second": 7e9},
}


def load(name: str, cpus: str, node: int, **changes: Any) -> Any:
    """A load of reads with a working set far beyond the caches."""
    return {
        "name": name,
        "benchmark": "chaosity_bandwidth",
        "kernel": "read",
        "memory_bytes": 2**50,
        "writes": False,
        "metrics": {"bandwidth_bytes_per_second": {}},
        "initiator": {"cpus": cpus, "nodes": [0]},
        "target": {"drives": [], "nodes": [node]},
        "placement": {"memory_nodes": [node], "cpus": cpus},
        **changes,
    }


def drives(name: str, node: int, *numbers: int, into: int | None = None) -> Any:
    """A load that reads drives of a node, given by their place in the topology."""
    found = [f"drive-0000-{address}-00-0" for address in ("01", "02", "03", "11", "12", "13", "14")]
    targets = [{"component": found[number], "node": node} for number in numbers]
    memory = node if into is None else into
    return {
        **load(name, "0-11", memory),
        "kernel": None,
        "target": {"drives": targets, "nodes": [node]},
    }


def model(*faults: Fault, host: str = "host", today: date = TODAY, **changes: Any) -> MachineModel:
    """The machine with these faults; other keyword arguments replace keys of its description."""
    machine: Any = {**MACHINE, "faults": list(faults), **changes}
    return MachineModel(machine, TOPOLOGY, host, today)


def rate(found: MachineModel, *loads: Any) -> list[float]:
    """The rate of each of the loads, in bytes per second, if all run at the same time."""
    return [truth.moved_bytes_per_second for truth in found.noiseless_results(list(loads)).values()]
