"""Steps of latency over the working set, at the ends of caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.check_config import read_config
from chaosity.documents.config import Config
from chaosity.documents.shipped_documents import load_experiment
from chaosity.figures.draw_and_write_figures import draw_figures
from chaosity.statistics.latency_steps import find_latency_steps
from machines import SimulatedHost, planned, shipped_machine

KIB, MIB, GIB = 2**10, 2**20, 2**30
# Document 003, serial mode: medians of the eight ranks for 1 MB to 16384 MB.
DOCUMENT_003_NS = [
    *(10.36, 12.945, 14.245, 14.945, 18.62, 35.7, 67.55, 85.95, 95.43, 101.2, 104.195),
    *(107.38, 110.88, 112.58, 130.32),
]


def rows(latencies: dict[float, float], noise: float = 0.0, replicates: int = 3) -> pd.DataFrame:
    random = np.random.default_rng(1)
    return pd.DataFrame(
        {"x": size, "replicate": replicate, "value": value * np.exp(random.normal(0, noise))}
        for replicate in range(1, replicates + 1)
        for size, value in latencies.items()
    )


def test_the_published_sweep_has_the_end_of_its_l3_cache():
    sizes = [MIB * 2**power for power in range(15)]
    first, l3 = find_latency_steps(rows(dict(zip(sizes, DOCUMENT_003_NS, strict=True)), 0.005))
    assert first.is_open_below  # the smallest size is larger than the L2 cache
    assert (l3.first_bytes, l3.last_bytes) == (8 * MIB, 128 * MIB)
    assert (l3.below_bytes, l3.above_bytes) == (32 * MIB, 64 * MIB)
    assert l3.end_bytes.low < l3.end_bytes.median < l3.end_bytes.high
    assert l3.end_bytes.low > 34 * MIB and l3.end_bytes.high < 40 * MIB
    assert (l3.lower_ns, l3.upper_ns) == pytest.approx((14.2, 105.8), rel=0.02)
    assert not (l3.is_open_below or l3.is_open_above)


def test_no_step_without_a_clear_rise():
    flat = {KIB * 2**power: 100.0 for power in range(10)}
    assert find_latency_steps(rows(flat, 0.03)) == ()
    slow_rise = {KIB * 2**power: 10.0 * 1.1**power for power in range(20)}
    assert find_latency_steps(rows(slow_rise, 0.01)) == ()
    once = {**flat, KIB * 512: 130.0}
    [step] = find_latency_steps(rows(once))
    assert (step.is_open_above, step.upper_ns) == (True, pytest.approx(130.0))
    torn = rows(once)
    torn.loc[(torn["x"] == KIB * 512) & (torn["replicate"] == 1), "value"] = 90.0
    assert find_latency_steps(torn) == ()  # one of three replicates shows the reverse
    assert find_latency_steps(rows({KIB: 1.0})) == ()
    assert find_latency_steps(rows(flat).assign(value=np.nan)) == ()


@pytest.fixture(scope="module")
def trento() -> tuple[SimulatedHost, Config]:
    """The machine of document 003 with the sizes of `profiles/latency_sizes`."""
    config = read_config()
    working_set = {**config["working_set"], "sweep_at_most_bytes": 16 * GIB}
    # One kind of pages, so that the plan is short.
    levels = {"latency_by_size": {"pages": 1}}
    config = {**config, "working_set": working_set, "levels": levels}
    config["experiments"] = ["latency_by_size"]
    return planned("epyc_7a53", all_points=True, **config), config


@pytest.mark.thorough
def test_a_simulated_sweep_to_16_gib_marks_the_caches_that_the_topology_names(trento, tmp_path):
    host, _ = trento
    files = draw_figures(
        [load_experiment("latency_by_size")], host.table(1), host.topology, tmp_path
    )
    [levels] = [file for file in files if file.name == "latency_levels"]
    assert levels.problem is None
    for text in (
        "L1 ends between 32 KiB and 64 KiB, at about ",
        "L2 ends between 512 KiB and 1 MiB, at about ",
        "L3 ends between 32 MiB and 64 MiB, at about ",
        "; hwloc reports 32 KiB. ",
        "; hwloc reports 512 KiB. ",
        "; hwloc reports 32 MiB.",
        "n = 3): latency rises from ",
    ):
        assert text in levels.sentence
    drawing = (tmp_path / levels.svg).read_text()
    assert (
        drawing.count("stroke-dasharray: 0.9") == 4
    )  # a dotted line for each cache, and the legend
    steps = pd.read_csv(tmp_path / levels.numbers)
    assert (steps["end_bytes_low"] < steps["end_bytes_median"]).all()
    # The model finds 79 % of the lines in a cache as large as the working set, so the middle of the
    # step lies a little above the size of the cache.
    truth = np.array([32 * KIB, 512 * KIB, 32 * MIB])
    assert (steps["end_bytes_median"] / truth).between(1.0, 1.4).all()


def test_all_cores_run_at_once_with_sizes_that_fit(trento):
    host, _ = trento
    together = [point for point in host.points if len(point["loads"]) == 64]
    assert {point["factors"]["mode"] for point in together} == {"all_cores"}
    assert max(point["loads"][0]["memory_bytes"] for point in together) == 4 * GIB
    one_a_domain = [point for point in host.points if len(point["loads"]) == 8]
    assert {point["factors"]["mode"] for point in one_a_domain} == {"concurrent"}
    assert max(point["loads"][0]["memory_bytes"] for point in one_a_domain) == 16 * GIB


def test_the_analysis_says_which_anomalies_of_size_it_could_not_find(trento):
    host, _ = trento
    table = host.table(1)
    assert host.findings(1).notes == (
        "Inversions could not be found: it must be clear which cores of a node are faster at three "
        "sizes below the largest size; no core was clearly faster",
    )
    sizes = table.factor_level_of_each_row("bytes").astype(float)
    few = analyse_host(table.select(sizes >= 4 * GIB))
    assert few.notes[-1].endswith("below the largest size; measured were 2")
    mode = table.factor_level_of_each_row("mode")
    alone = analyse_host(table.select(mode == "serial"))
    assert alone.notes[0].startswith("Contention could not be found: ")
    assert alone.notes[0].endswith("measured was serial")
    assert not any("latency over sizes" in tested for tested in alone.checked)
    one_core = analyse_host(table.select(table.rows["initiator"].isin(["pu0", "pu112"])))
    assert one_core.notes[0].startswith("Contention and inversions could not be found: ")


def test_half_of_the_l3_domains_wait_beside_others_as_the_document_shows(trento):
    """The means of ranks 0, 2, 4 and 6 in concurrent mode over serial mode, without sizes above."""
    [fault] = shipped_machine("epyc_7a53", trento[0].topology)["faults"]
    host = replace(trento[0], machine={**trento[0].machine, "faults": [fault]})
    rows = host.true_table.where(replicate=1, metric="latency_ns")
    levels = {name: rows.factor_level_of_each_row(name) for name in ("mode", "bytes")}
    for size, expected in ((128 * MIB, 12), (GIB, 46), (2 * GIB, 55), (4 * GIB, 68)):
        same = levels["bytes"].astype(float) == size
        serial, concurrent = (
            rows.select(same & (levels["mode"] == mode)).rows.set_index("initiator")["value"]
            for mode in ("serial", "concurrent")
        )
        waits = (concurrent - serial).sort_index(key=lambda names: names.str[2:].astype(int))
        assert waits.to_numpy()[::2] == pytest.approx(expected, abs=12)
        assert waits.to_numpy()[1::2] == pytest.approx(0, abs=0.5)


def test_the_contention_of_the_document_is_found_on_the_simulated_machine(trento):
    [fault] = shipped_machine("epyc_7a53", trento[0].topology)["faults"]
    host = replace(trento[0], machine={**trento[0].machine, "faults": [fault]})
    found = [one for one in host.findings(1).anomalies if one.where["mode"] == "concurrent"]
    assert {one.kind for one in found} == {"contention_within_node"}
    assert {one.components[0]: one.initiator for one in found} == {
        "node0": "pu0",
        "node1": "pu32",
        "node2": "pu64",
        "node3": "pu96",
    }
    assert all(25.0 < one.loss_percent < 60.0 for one in found)
