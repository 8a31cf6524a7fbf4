"""Tables drawn for a seed have the values and findings of the records of that seed."""

from __future__ import annotations

import pandas as pd
import pytest

from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
from chaosity.components import make_component_documents
from chaosity.documents.config import read_config
from chaosity.simulation.machine_description import Fault
from chaosity.store.measurements import CELL, Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from machines import SimulatedHost, planned, shipped_machine, shipped_topology

SEED = 7
FEW = ["memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference"]
# What a record says besides: when it was made, and the pages that its load saw.
ONLY_IN_RECORDS = ["measured_at", "seen_nodes", "reason"]


def host_with_noise(name: str, *faults: Fault, all_points: bool = False, **config) -> SimulatedHost:
    noise = shipped_machine(name, shipped_topology(name))["noise"]
    noise = {**noise, "drift": 0.03, "disturbed_runs": 0.1, "disturbed_loss": 0.1}
    return planned(name, name, faults, all_points=all_points, change={"noise": noise}, **config)


def assert_same_table(drawn: Measurements, records: Measurements) -> None:
    columns = [column for column in COLUMNS if column not in ONLY_IN_RECORDS]
    sides = [side.rows[columns].sort_values([*CELL, "replicate"]) for side in (drawn, records)]
    sides = [side.dropna(subset="value").reset_index(drop=True) for side in sides]
    # A drawn value has no samples, so it cannot be imprecise.
    disturbed = [side.pop("remarks").fillna("").str.contains("disturbed") for side in sides]
    pd.testing.assert_series_equal(*disturbed)
    pd.testing.assert_frame_equal(*sides, rtol=1e-5)


def test_a_drawn_table_has_the_values_and_findings_of_all_records():
    slow: Fault = {"fault": "slow_node", "node": 1, "remaining": 0.5}
    host, few = (
        host_with_noise("fleet", slow, all_points=all_points, replicates=2, experiments=FEW)
        for all_points in (True, False)
    )
    records = host.table_of_records(SEED)
    parts = host_component_facts(host.topology, make_component_documents(host.topology))
    from_records, drawn = analyse_host(records, parts), few.findings(SEED)
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
    host = host_with_noise(name, sample=dict.fromkeys(read_config()["experiments"], 5))
    assert_same_table(host.table(SEED), host.table_of_records(SEED))
