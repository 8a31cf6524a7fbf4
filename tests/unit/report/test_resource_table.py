"""The lines of the resource table, of simulated machines."""

from __future__ import annotations

from chaosity.documents.shipped_documents import load_experiment
from chaosity.report.best_places_of_resources import resource_table_rows
from chaosity.store.measurements import Measurements
from machines import measured_host


def test_core_to_core_latency_names_both_cores_and_the_lines_home():
    table = Measurements.from_table(measured_host("two_packages", "core_to_core").tidy())
    [found] = (
        line
        for line in resource_table_rows(table, [load_experiment("core_to_core")])
        if line.name == "Core-to-core latency"
    )
    assert found.best.where == "processing unit 0 to processing unit 8, line on node 0"
    assert found.differ is True
