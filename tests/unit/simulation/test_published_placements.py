"""A published machine with four nodes: its placements, predicted from its single initiators.

The machine ("penguin" of the repository jlenis/NES) ran STREAM triad with eight threads on a node
and memory on a node, and with 16 threads on a pair of nodes and memory on a node or interleaved
over a pair. The model gets only the former values.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from chaosity.checked_yaml_files import read_config
from chaosity.cpusets import format_cpu_list
from chaosity.records.point_types import Load
from chaosity.simulation.machine_description import MachineDescription
from chaosity.simulation.machine_model import MachineModel
from simulated_tables import TODAY, SimulatedHost, shipped_machine, shipped_topology

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "published"
pytestmark = pytest.mark.skipif(not PUBLISHED.exists(), reason="../shared is not here")
# Four packages with one node and eight cores each, like the published machine.
TOPOLOGY = shipped_topology("xeon_e5_4620")
MB = 1e6
# Any number: the latencies are chosen for this number so that rates are as measured.
IN_FLIGHT = 640.0


def single_initiators() -> pd.DataFrame:
    """Megabytes per second of eight threads; rows are their node, columns the memory node."""
    table = pd.read_csv(PUBLISHED / "nes_penguin_stream_8t_long.csv")
    triad = table[table["kernel"] == "triad"]
    return triad.pivot_table(
        index="cpu_node", columns="mem_node", values="best_rate_MBps", aggfunc="median"
    )


def placements() -> pd.Series:
    """Megabytes per second of each policy, pair of initiator nodes and memory nodes.

    Medians over sizes and repetitions, as in the comparison of `chaosity weights`.
    """
    table = pd.read_csv(PUBLISHED / "nes_penguin_stream_16t_placement_long.csv", dtype=str)
    table["rate"] = table["triad_best_MBps"].astype(float)
    return table.groupby(["policy", "cpu_nodes", "mem_nodes"])["rate"].median()


def model_of_single_initiators(rates: pd.DataFrame) -> MachineModel:
    """The machine whose cores wait for memory as long as the single initiators show."""
    counted = 4.0 / 3.0  # a triad moves a line more than it counts: its ordinary store reads it
    core = {pair: rates.loc[pair] * MB * counted / 8 for pair in product(range(4), repeat=2)}
    local = float(np.median([core[node, node] for node in range(4)]))
    machine: MachineDescription = {
        "simulated_machine": "published",
        "description": "",
        "sources": [],
        "memory": {
            "core_bytes_per_second": local,
            "core_bytes_in_flight": IN_FLIGHT,
            "package_bytes_per_second": 8 * local,
        },
        "latency_ns": {
            **{"l1": 1.0, "l2": 4.0, "l3": 15.0, "same_node": 1e9 * IN_FLIGHT / local},
            "pairs": {f"{a}->{b}": 1e9 * IN_FLIGHT / rate for (a, b), rate in core.items()},
        },
    }
    return MachineModel(machine, TOPOLOGY, "published", TODAY)


def load_on(nodes: list[int], memory: list[int]) -> Load:
    """A triad on all cores of some nodes, with memory in equal shares on some nodes."""
    machine = shipped_machine("xeon_e5_4620", TOPOLOGY)
    config = {**read_config(), "experiments": ["memory_bandwidth"]}
    planned = SimulatedHost.planned(machine, TOPOLOGY, [], config).points
    [load] = next(p for p in planned if p["point"] == "memory=node0+node0+triad")["loads"]
    cpus = [c.cpus[0] for c in TOPOLOGY.cores if TOPOLOGY.node_of_pu[c.cpus[0]] in nodes]
    initiator = {**load["initiator"], "nodes": nodes, "cpus": format_cpu_list(cpus)}
    shares = {str(node): 1.0 / len(memory) for node in memory}
    placement = {**load["placement"], "memory_nodes": memory, "shares": shares}
    return {**load, "initiator": initiator, "placement": placement}  # type: ignore[typeddict-item]


def test_single_initiators_tell_the_ranks_of_placements_in_part():
    """The figures are in docs/simulation.md; `chaosity weights` ranks interleaved ones by 0.38."""
    model = model_of_single_initiators(single_initiators())
    predicted = {}
    for policy, cpus, memory in placements().index:
        load = load_on([*map(int, cpus.split("-"))], [*map(int, memory.split("-"))])
        result = model.noiseless_results([load])[load["name"]]
        predicted[policy, cpus, memory] = result.counted_bytes_per_second / MB
    both = pd.DataFrame({"model": pd.Series(predicted), "measured": placements()})
    apart = both["model"] / both["measured"] - 1
    interleaved, bound = both.loc["interleave"], both.loc["membind"]
    assert _rank(interleaved) == pytest.approx(0.63, abs=0.01)
    assert apart["interleave"].median() == pytest.approx(-0.23, abs=0.01)
    assert _rank(bound) == pytest.approx(0.84, abs=0.01)
    # Memory on a node of neither worker: all threads are equally slow, so no worker waits.
    near = [memory in cpus.split("-") for cpus, memory in bound.index]
    assert apart["membind"][np.invert(near)].median() == pytest.approx(0.15, abs=0.02)
    assert apart["membind"][near].min() > 0.5


def _rank(table: pd.DataFrame) -> float:
    """Spearman's rank correlation of model and measured values."""
    return float(stats.spearmanr(table["model"], table["measured"]).statistic)
