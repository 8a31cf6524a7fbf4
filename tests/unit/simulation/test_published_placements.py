"""A published machine with four nodes: its placements, predicted from its single initiators.

The machine ("penguin" of the repository jlenis/NES) ran STREAM triad with eight threads on a node
and memory on a node, and with 16 threads on a pair of nodes and memory on a node or interleaved
over a pair. The model gets only the former values: made by hand of them, or fitted to them as to
the measurements of any host. No choice in these tests was made by the values of the placements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from chaosity.cpusets import format_cpu_list
from chaosity.documents.config import read_config
from chaosity.documents.machines import MachineDescription
from chaosity.records.record_format import Load, Point
from chaosity.simulation.machine_model import MachineModel
from chaosity.store.csv_tables import read_published_csv
from chaosity.store.measurements import Measurements
from chaosity.twin.fit_machine import fit_machine
from chaosity.twin.model_values import predict_loads
from machines import TODAY, planned, shipped_topology
from shipped_data import PUBLISHED_TABLES

# Four packages with one node and eight cores each, like the published machine.
TOPOLOGY = shipped_topology("xeon_e5_4620")
MB = 1e6
# Any number: the latencies are chosen for this number so that rates are as measured.
IN_FLIGHT = 640.0


def single_initiators() -> pd.DataFrame:
    """Megabytes per second of eight threads; rows are their node, columns the memory node.

    A node has eight rows: sizes and repetitions.
    """
    return pd.read_csv(PUBLISHED_TABLES / "nes_penguin_stream_8t_long.csv").pivot_table(
        index=["slurm_job", "cpu_node"], columns="mem_node", values="best_rate_MBps"
    )


def placements() -> pd.Series:
    """Megabytes per second of each policy, pair of initiator nodes and memory nodes.

    Medians over sizes and repetitions, as in the comparison of `chaosity weights`.
    """
    table = pd.read_csv(PUBLISHED_TABLES / "nes_penguin_stream_16t_placement_long.csv", dtype=str)
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


def planned_points(benchmark: str) -> tuple[Point, ...]:
    """The points of the experiment memory_bandwidth with a benchmark."""
    benchmarks = {**read_config()["benchmarks"], "memory_bandwidth": benchmark}
    config = {"experiments": ["memory_bandwidth"], "benchmarks": benchmarks}
    return planned("xeon_e5_4620", **config).points


def load_on(nodes: list[int], memory: list[int], points: Sequence[Point]) -> Load:
    """A triad on all cores of some nodes, with memory in equal shares on some nodes."""
    [load] = next(p for p in points if p["point"] == "memory=node0+node0+triad")["loads"]
    cpus = [c.cpus[0] for c in TOPOLOGY.cores if TOPOLOGY.node_of_pu[c.cpus[0]] in nodes]
    initiator = {**load["initiator"], "nodes": nodes, "cpus": format_cpu_list(cpus)}
    shares = {str(node): 1.0 / len(memory) for node in memory}
    placement = {**load["placement"], "memory_nodes": memory, "shares": shares}
    return {**load, "initiator": initiator, "placement": placement}  # type: ignore[typeddict-item]


def compared(points: Sequence[Point], predict: Callable[[Load], dict[str, float]]) -> pd.DataFrame:
    """Predicted values of the placements in megabytes per second, measured ones, and errors.

    Column `near`: the memory is on the node of a worker.
    """
    rows = []
    for (policy, cpus, memory), measured in placements().items():  # type: ignore[misc]
        load = load_on([*map(int, cpus.split("-"))], [*map(int, memory.split("-"))], points)
        near = policy == "membind" and memory in cpus.split("-")
        rows.append({"policy": policy, "near": near, "measured": measured, **predict(load)})
    table = pd.DataFrame(rows)
    return table.assign(apart=table["model"] / table["measured"] - 1)


def test_single_initiators_tell_the_ranks_of_placements_in_part():
    """`chaosity weights` ranks interleaved ones by 0.38, see docs/explanation."""
    model = model_of_single_initiators(single_initiators().groupby("cpu_node").median())

    def predict(load: Load) -> dict[str, float]:
        rates = model.noiseless_results([load])[load["name"]]
        return {"model": rates.counted_bytes_per_second / MB}

    both = compared(planned_points("chaosity_bandwidth"), predict)
    interleaved, bound = (both[both["policy"] == name] for name in ("interleave", "membind"))
    assert _rank(interleaved) == pytest.approx(0.63, abs=0.01)
    assert interleaved["apart"].median() == pytest.approx(-0.24, abs=0.01)
    assert _rank(bound) == pytest.approx(0.88, abs=0.01)
    # Memory on a node of neither worker: all threads are equally slow, so no worker waits.
    assert bound.loc[~bound["near"], "apart"].median() == pytest.approx(0.15, abs=0.02)
    assert bound.loc[bound["near"], "apart"].min() > 0.5
    # Threads of STREAM wait for each other, so near ones are as slow as far ones.
    both = compared(planned_points("stream"), predict)
    assert both.loc[both["near"], "apart"].median() == pytest.approx(-0.31, abs=0.02)
    interleaved = both[both["policy"] == "interleave"]
    assert _rank(interleaved) == pytest.approx(0.42, abs=0.02)
    assert interleaved["apart"].median() == pytest.approx(-0.39, abs=0.02)


@pytest.mark.thorough  # 42 predictions of 200 draws each
def test_the_fit_to_single_initiators_says_how_little_they_determine(tmp_path: Path):
    """No number is stated, and the intervals hold 30 of 42, as docs/explanation says."""
    single_initiators().droplevel("slurm_job").to_csv(tmp_path / "penguin_MBps.csv")
    table = read_published_csv(tmp_path / "penguin_MBps.csv", "stream_matrix", "penguin")
    points = planned_points("stream")
    fitted = fit_machine(Measurements.from_table(table), points, TOPOLOGY)
    assert fitted.cells == 16
    assert not any(each.is_determined for each in fitted.parameters)
    # Links or waiting explain the remote values, and cores or controllers the local ones.
    names = {parameter.name for parameter in fitted.others}
    assert "links.package_to_package_bytes_per_second" in names
    assert {"memory.core_bytes_per_second", "memory.package_bytes_per_second"} <= names

    def predict(load: Load) -> dict[str, float]:
        [found] = predict_loads(fitted, TOPOLOGY, [load])
        assert found.low and found.high
        return {"model": found.value / MB, "low": found.low / MB, "high": found.high / MB}

    both = compared(points, predict)
    held = (both["low"] <= both["measured"]) & (both["measured"] <= both["high"])
    interleaved, near = both["policy"] == "interleave", both["near"]
    assert [int(held[own].sum()) for own in (interleaved, near, ~interleaved & ~near)] == [18, 8, 4]
    assert _rank(both[interleaved]) == pytest.approx(-0.65, abs=0.02)
    for own, apart in ((interleaved, 0.18), (near, -0.29), (~interleaved & ~near, 0.19)):
        assert both.loc[own, "apart"].median() == pytest.approx(apart, abs=0.01)


def _rank(table: pd.DataFrame) -> float:
    """Spearman's rank correlation of model and measured values."""
    return float(stats.spearmanr(table["model"], table["measured"]).statistic)
