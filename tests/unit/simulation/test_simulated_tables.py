"""Tables drawn for a seed have the values and findings of the records of that seed."""

from __future__ import annotations

import pandas as pd
import pytest

from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
from chaosity.components.make_component_documents import make_component_documents
from chaosity.documents.check_config import read_config
from chaosity.store.measurements import CELL, Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from machines import SHIPPED_MACHINES, SimulatedHost, planned, shipped_machine, shipped_topology

SEED = 7
# What a record says besides: when it was made, and the pages that its load saw.
ONLY_IN_RECORDS = ["measured_at", "seen_nodes", "reason"]


def host_with_noise(
    name: str, topology_name: str, config: dict, *, all_points: bool = False
) -> SimulatedHost:
    noise = shipped_machine(name, shipped_topology(topology_name))["noise"]
    noise = {**noise, "drift": 0.03, "disturbed_runs": 0.1, "disturbed_loss": 0.1}
    noisy = {"noise": noise}
    return planned(name, topology_name, None, all_points=all_points, change=noisy, **config)


def assert_same_table(drawn: Measurements, records: Measurements) -> None:
    columns = [column for column in COLUMNS if column not in ONLY_IN_RECORDS]
    sides = [side.rows[columns].sort_values([*CELL, "replicate"]) for side in (drawn, records)]
    sides = [side.dropna(subset="value").reset_index(drop=True) for side in sides]
    # A drawn value has no samples, so it cannot be imprecise.
    disturbed = [side.pop("remarks").fillna("").str.contains("disturbed") for side in sides]
    pd.testing.assert_series_equal(*disturbed)
    pd.testing.assert_frame_equal(*sides, rtol=1e-5)


def test_a_drawn_table_has_the_values_and_findings_of_all_records():
    host = host_with_noise("xeon_8358", "xeon_8358", read_config(), all_points=True)
    few = host_with_noise("xeon_8358", "xeon_8358", read_config())
    records = host.table_of_records(SEED)
    parts = host_component_facts(host.topology, make_component_documents(host.topology))
    from_records, drawn = analyse_host(records, parts), few.findings(SEED)
    assert drawn.checked == from_records.checked
    assert [each.sentence for each in drawn.anomalies] == [
        each.sentence for each in from_records.anomalies
    ]
    read = records.rows["point"].isin([point["point"] for point in few.points])
    assert_same_table(few.table(SEED), records.select(read))


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED_MACHINES.glob("*.yaml")))
def test_drawn_values_are_those_of_records_on_every_machine(name: str):
    from test_simulated_records import MACHINES as TOPOLOGY_OF

    config = read_config()
    config = {**config, "sample": dict.fromkeys(config["experiments"], 12)}
    host = host_with_noise(name, TOPOLOGY_OF[name], config)
    assert_same_table(host.table(SEED), host.table_of_records(SEED))
