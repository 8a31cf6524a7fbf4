"""Records of simulated machines, the output in them, and the table made of them."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, ROOT
from chaosity.runner.metric_values import metric_values_or_reasons
from chaosity.simulation.machine_description import Fault
from chaosity.simulation.machine_model import true_values
from chaosity.simulation.simulated_records import simulate_replicate, text_with_value_as_first_group
from chaosity.store.measurements import CELL_COLUMNS, Measurements
from chaosity.store.tidy_table_parquet import COLUMN_TYPES
from machines import SimulatedHost, planned, shipped_machine, shipped_topology
from published_schemas import schema_errors

MACHINES = {
    path.stem: {
        "epyc_7413": "epyc_7413_nps1",
        "epyc_9575f": "epyc_9575f_nps0",
        "fleet_with_a_slow_host": "xeon_8358",
        "hidden_fault": "epyc_7413_nps4",
    }.get(path.stem, path.stem)
    for path in sorted((ROOT / "templates/machines").glob("*.yaml"))
}
# Points of each experiment. Other machines take a minute, so they are in the thorough layer.
QUICK = {"desktop": 12, "xeon_8358": 4}
OTHERS = 4
NAMES = sorted(path.stem for path in EXPERIMENTS_FOLDER.glob("*.yaml"))


@functools.cache
def host(name: str) -> SimulatedHost:
    """A machine without noise, with some points of each experiment."""
    config = {"replicates": 2, "sample": dict.fromkeys(NAMES, QUICK.get(name, OTHERS))}
    noiseless, topology = {"noise": {}}, MACHINES[name]
    return planned(
        name, topology, None, all_points=True, change=noiseless, experiments=NAMES, **config
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough) for name in MACHINES],
)
def test_every_experiment_gives_valid_records_of_the_true_values(name):
    model = host(name).model
    for point in host(name).points:
        record, truths = simulate_replicate(point, 1, model), true_values(point, model)
        assert record["verdict"]["status"] == "valid", (point["point"], record["verdict"]["reason"])
        assert record["origin"] == "simulated"
        assert record["verdict"]["checks"][0]["name"] == "simulated"
        for load, readings in metric_values_or_reasons(record).items():
            for metric, (value, _) in readings.items():
                if metric in truths[load] and value is not None:
                    assert value == pytest.approx(truths[load][metric], rel=2e-3), point["point"]


def test_a_record_has_the_format_of_a_measured_record():
    for point in host("xeon_8358").points[::5]:
        record = simulate_replicate(point, 1, host("xeon_8358").model)
        assert schema_errors(record, "record") == []


def test_the_same_point_and_replicate_give_the_same_record_but_for_the_time():
    noisy = planned("desktop", experiments=["memory_bandwidth"])
    first, again, other = (
        simulate_replicate(noisy.points[0], number, noisy.model) for number in (1, 1, 2)
    )
    assert first["loads"] == again["loads"]
    assert first["loads"] != other["loads"]


def test_results_stay_where_they_are(tmp_path: Path):
    """A simulated host reads and writes nothing but its own results."""
    before = sorted(ROOT.iterdir())
    simulate_replicate(host("desktop").points[0], 1, host("desktop").model)
    assert sorted(ROOT.iterdir()) == before


SEED = 7
FEW = ["memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference"]
# What a record says besides: when it was made, and the pages that its load saw.
ONLY_IN_RECORDS = ["measured_at", "seen_nodes", "reason"]


def host_with_noise(name: str, *faults: Fault, all_points: bool = False, **config) -> SimulatedHost:
    noise = shipped_machine(name, shipped_topology(name))["noise"]
    noise = {**noise, "drift": 0.03, "disturbed_runs": 0.1, "disturbed_loss": 0.1}
    return planned(name, name, faults, all_points=all_points, change={"noise": noise}, **config)


def assert_same_table(drawn: Measurements, records: Measurements) -> None:
    columns = [column for column in COLUMN_TYPES if column not in ONLY_IN_RECORDS]
    sides = [
        side.rows[columns].sort_values([*CELL_COLUMNS, "replicate"]) for side in (drawn, records)
    ]
    sides = [side.dropna(subset="value").reset_index(drop=True) for side in sides]
    # A drawn value has no samples, so it cannot be imprecise.
    disturbed = [side.pop("remarks").fillna("").str.contains("disturbed") for side in sides]
    pd.testing.assert_series_equal(*disturbed)
    pd.testing.assert_frame_equal(*sides, rtol=1e-5)


def test_a_drawn_table_has_the_values_and_findings_of_all_records():
    slow: Fault = {"fault": "slow_node", "node": 1, "remaining": 0.5}
    every, few = (
        host_with_noise("fleet", slow, all_points=all_points, replicates=2, experiments=FEW)
        for all_points in (True, False)
    )
    records = every.table_of_records(SEED)
    from_records, drawn = analyse_host(records, every.component_facts), few.findings(SEED)
    reported = [
        [each.sentence for each in (*found.anomalies, *found.suspicions)]
        for found in (drawn, from_records)
    ]
    assert drawn.checked == from_records.checked
    assert reported[0] and reported[0] == reported[1]
    read = records.rows["point"].isin([point["point"] for point in few.points])
    assert_same_table(few.table(SEED), records.select(read))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["apple_m1_pro", "epyc_9554_cxl", "xeon_max_9480_snc4"])
def test_drawn_values_are_those_of_records_on_machines_with_unlike_cores_and_nodes(name: str):
    noisy = host_with_noise(name, sample=dict.fromkeys(read_config()["experiments"], 5))
    assert_same_table(noisy.table(SEED), noisy.table_of_records(SEED))


PATTERNS = [
    r"^MByte/s:\s+([0-9.]+)",
    r"^Using ([0-9]+) threads",
    r"^Size \(Byte\):\s+([0-9]+)",
    r"^Number of Threads counted = ([0-9]+)",
    r"<float[0-9]*>([0-9.e+]+)</float",
    r"^\s*Compute units\s*: ([0-9]+)",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(deadline=None)  # a busy machine is slow now and then
@given(number=st.integers(0, 10**12))
def test_a_pattern_finds_the_number_in_the_text_made_for_it(pattern, number):
    assert re.findall(pattern, text_with_value_as_first_group(pattern, str(number)), re.M) == [
        str(number)
    ]


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"^Platform: (.*?)\s*$", "Portable Computing Language"),
        (r"^Solution (Validates|Does not validate)", "Validates"),
        (r"^Test: ([a-z]+(?:_mem)?)", "stream_mem"),
    ],
)
def test_a_pattern_finds_the_text_made_for_it(pattern, value):
    assert re.findall(pattern, text_with_value_as_first_group(pattern, value), re.M) == [value]
