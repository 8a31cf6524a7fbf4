"""Programs of a benchmark on simulated machines: what its file says changes their speed."""

from __future__ import annotations

import pytest

from chaosity.documents.shipped_documents import load_benchmark
from chaosity.simulation.machine_model import true_values
from machines import planned, shipped_machine, shipped_topology

PROGRAMS = load_benchmark("chaosity_tasks")["simulation"]["programs"]


@pytest.fixture(scope="module")
def runs_per_second() -> dict[tuple[str, str, str], float]:
    """Runs per second by program, runtime and cores, on the machine of document 004."""
    host = planned("xeon_e5_4620", all_points=True, experiments=["numa_runtime"])
    rates = {}
    for point in host.points:
        [load] = point["loads"]
        values = true_values(point, host.model)[load["name"]]
        key = load["kernel"], load["levels"]["runtime"], point["factors"]["cores"]
        rates[key] = values["runs_per_second"]
    return rates


def speedup(rates, program: str, runtime: str) -> float:
    return rates[program, runtime, "all_cores"] / rates[program, runtime, "one_core"]


def test_one_core_needs_the_time_of_the_program_for_a_run(runs_per_second):
    """All data are far larger than one core's caches, and they are local with this runtime."""
    data, near = 2**27, shipped_machine("xeon_e5_4620", shipped_topology("xeon_e5_4620"))
    rate = near["memory"]["core_bytes_per_second"]
    for name, program in PROGRAMS.items():
        expected = rate * program["time_in_memory"] / (data * program["moves"])
        found = runs_per_second[name, "locality", "one_core"]
        assert found == pytest.approx(expected, rel=0.01)


def test_all_cores_are_faster_until_the_controllers_are_full(runs_per_second):
    # A quarter of the bytes are written, which takes the controllers 1.1 times as long. An L3 cache
    # of 16 MiB holds 12.5 % of 128 MiB, see `machine_description`.
    controllers = 4 * 34e9 / 1.025 / 0.875 / 9e9
    found = {name: speedup(runs_per_second, name, "vanilla") for name in PROGRAMS}
    assert found == pytest.approx(
        {
            name: min(32, controllers / program["time_in_memory"])
            for name, program in PROGRAMS.items()
        },
        rel=0.01,
    )
    assert found["matmul"] > found["stencil"] > found["spmv"]


def test_first_touch_by_one_thread_leaves_all_pages_on_its_node():
    """One controller serves what all workers' controllers serve with uniform-workers."""
    host = planned("opteron_6272", experiments=["page_placement"], all_points=True)
    rows = host.true_table.where(replicate=1, load="work", metric="elements_per_second").rows
    alone = rows[rows["point"].str.endswith("triad")]
    rates = alone.groupby(["initiator", "target"])["value"].median().unstack()
    ratio = rates["first_touch"] / rates["uniform_workers"]
    assert ratio["node0"] == 1.0
    assert ratio["nodes0-1"] == pytest.approx(1 / 2)
    assert ratio["nodes0-7"] == pytest.approx(1 / 8)
    settled = rates["autonuma"] / rates["uniform_workers"]  # shares of pages have three digits
    assert settled.to_numpy() == pytest.approx(1.0, abs=1e-3)
