"""Metrics without a value, zeros and ratios in figures and the report, never NaN."""

from __future__ import annotations

import csv
import re

import pandas as pd
from report_inputs import run_of
from table_figures import draw
from test_report import MEMORY, machine

from chaosity.anomalies.anomaly_results import Findings
from chaosity.report.best_places_of_resources import resource_table_rows
from chaosity.report.problems import check_results
from chaosity.report.sections import experiment_section
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology

COUNT, RATIO = "misses_remote_memory_count", "advantage"
REASON = "this machine has no such counter (ENOENT)"
NOTHING = {
    "findings": Findings(None, "", "", None, (), (), None, None),
    **{"topology": Topology(), "system_facts": {}, "record_summaries": (), "figures": ()},
}
WHERE = {"initiator_kind": "node", "kernel": "triad"}


def figures(metric):
    common = {"title": "Misses", "load": "memory", "metric": metric, "where": WHERE}
    return [
        {"name": "map", "kind": "heatmap", "rows": "initiator", "columns": "target", **common},
        {"name": "bars", "kind": "bars", "x": "initiator", "series": "target", **common},
        {"name": "lines", "kind": "lines", "x": "initiator", "series": "target", **common},
        {"name": "table", "kind": "table", "rows": "initiator", "columns": "target", **common},
    ]


def with_metric(tidy, metric, values, reasons=None):
    """Return a table with one more metric of loads on memory, computed from each row's value."""
    rows = tidy[(tidy["experiment"] == "memory_bandwidth") & (tidy["status"] == "valid")]
    more = rows.assign(metric=metric, value=values(rows), reason=None)
    if reasons is not None:
        more["reason"] = reasons(more)
    return pd.concat([tidy, more.astype(tidy.dtypes)], ignore_index=True)


def nothing(rows):
    return pd.Series(pd.NA, rows.index, dtype="Float64")


def everywhere(rows):
    return pd.Series(REASON, rows.index)


def of_node0(rows):
    """Return no value for initiator node 0, and a value for all others."""
    return rows["value"].where(rows["initiator"] != "node0").div(1e6).round()


def where_empty(rows):
    return pd.Series(REASON, rows.index).where(rows["value"].isna())


def drawn(folder, tidy, metric, *names):
    """Draw the figures of these names, or all."""
    wanted = [each for each in figures(metric) if each["name"] in names or not names]
    experiment = {"experiment": "memory_bandwidth", "figures": wanted}
    files = draw([experiment], tidy, machine().topology(), folder)
    return {file.name: file for file in files}


def texts(folder):
    """Return all written texts, without the data of pictures."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".png"}


def test_a_figure_without_values_has_the_reason_and_no_drawing(tmp_path):
    tidy = with_metric(machine().tidy(), COUNT, nothing, everywhere)
    for file in drawn(tmp_path, tidy, COUNT).values():
        assert file.problem is None
        assert file.sentence == f"Not measured: {REASON}."
        assert file.svg is None and file.marks == 0
        with (tmp_path / file.csv).open(newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["status"] != "absent"]
        assert {row["status"] for row in rows} == {"unmeasured"}
        assert {row["reason"] for row in rows} == {REASON}
        assert {row[f"median_{COUNT}"] for row in rows} == {""}
    for text in texts(tmp_path).values():
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_marks_without_a_value_differ_from_unmeasured_marks(tmp_path):
    found = machine(missing=("memory=node1+node1+triad",))
    tidy = with_metric(found.tidy(), COUNT, of_node0, where_empty)
    files = drawn(tmp_path, tidy, COUNT)
    for name, noun in {"map": "cells", "bars": "bars", "lines": "points"}.items():
        assert f"{REASON} (2 of 3 {noun})" in files[name].unmeasured
        assert f"not measured: {REASON}" in texts(tmp_path)[f"{name}.svg"]
    [table] = files["table"].tables
    shown = [cell for row in table.rows for cell in row]
    assert sum(f"not measured: {REASON}" in cell.detail for cell in shown) == 2
    for text in texts(tmp_path).values():
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_zero_is_a_value(tmp_path):
    files = drawn(
        tmp_path, with_metric(machine().tidy(), COUNT, lambda rows: rows["value"] * 0), COUNT
    )
    for file in files.values():
        assert file.problem is None and file.marks > 0
    assert "0" in files["map"].sentence
    for text in texts(tmp_path).values():
        assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_the_report_lists_unmeasured_metrics_with_reasons(tmp_path):
    plain = machine().tidy()
    tidy = with_metric(plain, COUNT, nothing, everywhere)
    [file] = drawn(tmp_path, tidy, COUNT, "map").values()
    known = {"figures": [file], "record_summaries": (), "experiments": [MEMORY]}
    shown = experiment_section(run_of(tidy, tmp_path, **known), MEMORY)
    assert shown["remarks"] == [f"misses remote memory of memory: not measured: {REASON}"]
    # It is no gap, no failure and no resource of the machine.
    for judge in (
        lambda rows: check_results(run_of(rows, **NOTHING)),
        lambda rows: resource_table_rows(Measurements.from_table(rows), [MEMORY]),
    ):
        assert judge(tidy) == judge(plain)
