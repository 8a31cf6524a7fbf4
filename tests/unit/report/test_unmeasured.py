"""Metrics without a value, zeros and ratios in figures and the report, never NaN."""

from __future__ import annotations

import csv
import re
from dataclasses import replace

import pandas as pd
import pytest
from report_inputs import record_summaries
from table_figures import draw
from test_report import FIGURES, machine, write

from chaosity.records.record_types_and_verdict import make_check
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table

COUNT, RATIO = "misses_remote_memory_count", "advantage"
REASON = "this machine has no such counter (ENOENT)"
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


def drawn(folder, tidy, metric):
    experiment = {"experiment": "memory_bandwidth", "figures": figures(metric)}
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
    found = machine(missing=("memory=node3+node3+triad",))
    tidy = with_metric(found.tidy(), COUNT, of_node0, where_empty)
    files = drawn(tmp_path, tidy, COUNT)
    for name, noun in {"map": "cells", "bars": "bars", "lines": "points"}.items():
        assert f"{REASON} (4 of 14 {noun})" in files[name].unmeasured
        assert f"not measured: {REASON}" in texts(tmp_path)[f"{name}.svg"]
    assert files["map"].sentence.startswith("Highest: ")  # a count is neither good nor bad
    [table] = files["table"].tables
    shown = [cell for row in table.rows for cell in row]
    assert sum(f"not measured: {REASON}" in cell.detail for cell in shown) == 4
    for text in texts(tmp_path).values():
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


@pytest.mark.parametrize("every", [True, False])
def test_zero_is_a_value(tmp_path, every):
    def zeros(rows):
        return (rows["value"] * 0).where((rows["target"] == "node0") | every, 5.0)

    files = drawn(tmp_path, with_metric(machine().tidy(), COUNT, zeros), COUNT)
    for file in files.values():
        assert file.problem is None and file.marks > 0
    if every:
        assert "0" in files["map"].sentence
    for text in texts(tmp_path).values():
        assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_the_report_lists_unmeasured_metrics_with_reasons(tmp_path):
    tidy = with_metric(machine().tidy(), COUNT, nothing, everywhere)
    experiment = {**FIGURES[0], "figures": [*FIGURES[0]["figures"], figures(COUNT)[0]]}
    folder = tmp_path / "figures"
    draw([experiment], tidy, machine().topology(), folder)
    context, page = write(tmp_path, machine(), folder, tidy=tidy, experiments=[experiment])
    [section] = context.experiments
    assert section.unmeasured == (f"misses remote memory of memory: not measured: {REASON}",)
    assert f"Misses remote memory of memory: not measured: {REASON}." in page
    assert f"Not measured: {REASON}." in page
    assert not re.search(r">\s*nan\b", page, re.IGNORECASE)
    # It is no gap, no failure and no resource of the machine.
    plain, _ = write(tmp_path, machine(), experiments=[FIGURES[0]])
    assert [c.text for c in context.problems] == [c.text for c in plain.problems]
    assert context.resources == plain.resources
    assert len(context.failed) == len(plain.failed)


@pytest.mark.thorough
def test_the_report_counts_searches_that_were_cut_short(tmp_path):
    tidy = machine().tidy()
    runs = record_summaries(tidy)
    name, short = "search to its end", "cut short after 60 s, at the best so far"
    for number in range(4):
        words = short if number else None
        check = make_check(f"memory: {name}", not words, words or "", decisive=False)
        runs[number] = replace(
            runs[number],
            experiment="memory_bandwidth",
            checks=(*runs[number].checks, check),
            tool_notes={(name, "bwap"): words},
        )
    context, page = write(tmp_path, machine(), tidy=tidy, summaries=runs)
    sections = {section.name: section.tool_notes for section in context.experiments}
    assert sections.pop("memory_bandwidth") == (f"{name}, bwap: not met in 3 of 4 runs: {short}",)
    assert set(sections.values()) <= {()}
    assert f"Search to its end, bwap: not met in 3 of 4 runs: {short}." in page
    [check] = [check for check in context.problems if check.name == "Search to its end"]
    assert check.text == f"not met in 75 % of 4 records, for example {short}"


def test_a_figure_can_omit_references(tmp_path):
    def ratios(rows):
        return rows["value"] / 4e10

    tidy = with_metric(machine().tidy(), RATIO, ratios)
    own = tidy["metric"] == RATIO
    tidy.loc[own, "reference"] = tidy.loc[own, "target"] == "node0"
    write_parquet_table(tidy, tmp_path / "table.parquet")
    tidy = read_parquet_table(tmp_path / "table.parquet")
    both = [
        {**one, "name": f"{one['name']}{number}", "where": where}
        for number, where in enumerate([WHERE, {**WHERE, "reference": False}])
        for one in figures(RATIO)
    ]
    experiment = {"experiment": "memory_bandwidth", "figures": both}
    files = {f.name: f for f in draw([experiment], tidy, machine().topology(), tmp_path / "f")}
    assert files["map0"].marks == 15 and files["map1"].marks == 11
    assert re.match(r"Highest: 0\.\d+, ", files["map1"].sentence)
