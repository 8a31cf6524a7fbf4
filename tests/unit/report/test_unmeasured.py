"""Metrics without a value, zeros and ratios in figures and the report, never NaN."""

from __future__ import annotations

import csv
import re

import pandas as pd
from report_inputs import measured_results, texts, write_report

from chaosity.figures.figure_files import draw_figures
from chaosity.store.measurements import Measurements
from machines import measured_host, simulated

COUNT = "misses_remote_memory_count"
REASON = "this machine has no such counter (ENOENT)"
WHERE = {"initiator_kind": "node", "kernel": "triad"}


COMMON = {"title": "Misses", "load": "memory", "metric": COUNT, "where": WHERE}
FIGURES = [
    {"name": "map", "kind": "heatmap", "rows": "initiator", "columns": "target", **COMMON},
    {"name": "bars", "kind": "bars", "x": "initiator", "series": "target", **COMMON},
    {"name": "lines", "kind": "lines", "x": "initiator", "series": "target", **COMMON},
    {"name": "table", "kind": "table", "rows": "initiator", "columns": "target", **COMMON},
]


def with_count(tidy, values, reasons=None):
    """Return a table with a count of loads on memory, computed from each row's value."""
    rows = tidy[(tidy["experiment"] == "memory_bandwidth") & (tidy["status"] == "valid")]
    more = rows.assign(metric=COUNT, value=values(rows), reason=None)
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


def machine(**keys):
    return measured_host("fleet", "memory_bandwidth", **keys)


def drawn(folder, tidy):
    experiment = {"experiment": "memory_bandwidth", "figures": FIGURES}
    topology = machine().simulated.topology
    files = draw_figures([experiment], Measurements.from_table(tidy), topology, folder)
    return {file.name: file for file in files}


def written(folder):
    """Return all written texts, without the data of pictures."""
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".png"}


def test_a_figure_without_values_has_the_reason_and_no_drawing(tmp_path):
    tidy = with_count(machine().tidy(), nothing, everywhere)
    for file in drawn(tmp_path, tidy).values():
        assert file.problem is None
        assert file.sentence == f"Not measured: {REASON}."
        assert file.svg is None and file.marks == 0
        with (tmp_path / file.csv).open(newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["status"] != "absent"]
        assert {row["status"] for row in rows} == {"unmeasured"}
        assert {row["reason"] for row in rows} == {REASON}
        assert {row[f"median_{COUNT}"] for row in rows} == {""}
    for text in written(tmp_path).values():
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_marks_without_a_value_differ_from_unmeasured_marks(tmp_path):
    found = machine(missing=("memory=node1+node1+triad",))
    tidy = with_count(found.tidy(), of_node0, where_empty)
    files = drawn(tmp_path, tidy)
    for name, noun in {"map": "cells", "bars": "bars", "lines": "points"}.items():
        assert f"{REASON} (2 of 3 {noun})" in files[name].unmeasured
        assert f"not measured: {REASON}" in written(tmp_path)[f"{name}.svg"]
    [table] = files["table"].tables
    shown = [cell for row in table.rows for cell in row]
    assert sum(f"not measured: {REASON}" in cell.detail for cell in shown) == 2
    for text in written(tmp_path).values():
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_zero_is_a_value(tmp_path):
    files = drawn(tmp_path, with_count(machine().tidy(), lambda rows: rows["value"] * 0))
    for file in files.values():
        assert file.problem is None and file.marks > 0
    assert "0" in files["map"].sentence
    for text in written(tmp_path).values():
        assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_the_report_lists_unmeasured_metrics_with_reasons(tmp_path):
    """A metric without values is no gap, no failure and no resource of the machine."""
    results = simulated("fleet", ["memory_bandwidth"])
    plain = measured_results(results, tmp_path / "plain")
    more = measured_results(
        results, tmp_path / "more", lambda table: with_count(table, nothing, everywhere)
    )
    pages = write_report(plain), write_report(more)
    first, second = (texts(page, "//section[@id='problems' or @id='resources']") for page in pages)
    assert first == second
    remarks = texts(pages[1], "//section[@id='experiment-memory_bandwidth']/ul/li")
    assert remarks == [f"Misses remote memory of memory: not measured: {REASON}."]
