"""Derived metrics in the tidy table, and metrics without a value: what is done with both."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import records_by_hand
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.compare.two_sides import compare_selections
from chaosity.records.record_format import VALID
from chaosity.statistics.anova import find_anova_studies
from chaosity.statistics.cell_summary import UNMEASURED, summarise_cells
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import build_tidy_table
from records_by_hand import load, write_point, write_record

RATE, SHARE, SPEEDUP = "runs_per_second", "local_ratio", "speedup"


METRICS = {
    RATE: {"event": "done", "key": "rate", "at_most": None},
    SHARE: {"event": "done", "key": "share", "optional": True, "at_most": None},
}


def point(cores, program, replicates):
    name = f"{program}{cores}"
    initiator = {"name": f"cores{cores}", "kind": "machine", "nodes": [0], "threads": cores}
    own = load(
        "work",
        role="work",
        levels={"program": program},
        initiator={**initiator, "cpus": "0"},
        metrics=METRICS,
        progress=None,
    )
    relative = {"name": SPEEDUP, "load": "work", "metric": RATE}
    relative["to"] = {"point": f"{program}1", "load": "work"}
    points = {"definition": name, "factors": {}, "loads": [own], "relative": [relative]}
    return records_by_hand.point(name, replicates, **points)


def record(planned, replicate, rate, share=0.5, reason=None):
    said = json.dumps({"event": "done", "rate": rate, "share": share})
    loads = [{**one, "outputs": {"stdout": said, "stderr": ""}} for one in planned["loads"]]
    verdict = {"status": "failed" if reason else VALID, "reason": reason, "checks": []}
    return records_by_hand.record(planned, replicate, loads=loads, verdict=verdict)


def study(folder, values, points=None):
    """A study's table; `values` has a rate, a reason of failure or None by cores and program."""
    for (cores, program), found in values.items():
        planned = point(cores, program, len(found)) | (points or {}).get((cores, program), {})
        write_point(folder, planned)
        for replicate, value in enumerate(found, start=1):
            failed = value if isinstance(value, str) else None
            if value is not None:
                made = record(planned, replicate, 1 if failed else value, reason=failed)
                write_record(folder, made, planned["point"], replicate)
    return build_tidy_table(folder / "points", folder)


def derived(table, name):
    rows = table[(table["metric"] == SPEEDUP) & (table["point"] == name)]
    return rows.set_index("replicate")


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(*[st.floats(1e-3, 1e9)] * 2), min_size=1, max_size=4))
def test_a_ratio_pairs_values_of_one_replicate(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("study")
    table = study(folder, {(1, "sort"): [a for a, _ in pairs], (4, "sort"): [b for _, b in pairs]})
    rows = derived(table, "sort4")
    for replicate, (one, four) in enumerate(pairs, start=1):
        assert rows.loc[replicate, "value"] == pytest.approx(four / one)
    assert not rows["reference"].any()
    assert (derived(table, "sort1")["value"] == 1.0).all()
    assert derived(table, "sort1")["reference"].all()
    assert table.loc[table["metric"] == RATE, "reference"].isna().all()


def test_a_row_without_a_reference_value_has_a_reason_instead_of_a_ratio(tmp_path):
    values = {(1, "sort"): [2.0, "it died", None, 2.0], (4, "sort"): [6.0, 6.0, 6.0, "it broke"]}
    rows = derived(study(tmp_path, values), "sort4")
    assert rows.loc[1, "value"] == 3.0
    assert rows["value"].isna().tolist() == [False, True, True, True]
    assert rows["status"].tolist() == [VALID, VALID, VALID, "failed"]
    assert rows.loc[2, "reason"] == "its reference sort1 is failed: it died"
    assert rows.loc[3, "reason"] == "its reference sort1 is missing: not measured yet"
    assert rows.loc[4, "reason"] == "it broke"


def test_a_reference_that_is_not_planned_is_the_reason(tmp_path):
    without = [{"name": SPEEDUP, "load": "work", "metric": RATE, "reason": "there is none"}]
    points = {(4, "sort"): {"relative": without}}
    rows = derived(study(tmp_path, {(4, "sort"): [6.0]}, points), "sort4")
    assert rows["reason"].tolist() == ["there is none"]
    # A point whose file has gone, or one that was measured less often.
    rows = derived(study(tmp_path / "other", {(4, "sort"): [6.0]}), "sort4")
    assert rows["reason"].tolist() == ["its reference sort1 is missing: it is not in the plan"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(1)
    return study(
        tmp_path,
        {
            (cores, program): list(speed * cores**0.9 * rng.normal(1, 0.01, 6))
            for cores in (1, 2, 4)
            for program, speed in [("sort", 3.0), ("stencil", 5.0)]
        },
    )


def test_the_analysis_of_variance_skips_references(table):
    by_metric = {
        found.metric: found for found in find_anova_studies(Measurements.from_table(table))
    }
    speedup = by_metric[SPEEDUP]
    assert set(speedup.factors) == {"initiator", "program"}
    assert set(speedup.frame["initiator"]) == {"cores2", "cores4"}
    assert set(by_metric[RATE].frame["initiator"]) == {"cores1", "cores2", "cores4"}
    found = speedup.analyse_variance_of_table()
    share = {term.name: term.variation_percent for term in found.terms}
    assert share["initiator"] > 90.0  # the programs differ in speed and not in speedup


def test_a_ratio_is_not_analysed_as_performance(table):
    assert (
        analyse_host(Measurements.from_table(table)).checked
        == analyse_host(Measurements.from_table(table[table["metric"] == RATE])).checked
    )
    both = [Measurements.from_table(table.assign(configuration=name)) for name in ("nps1", "nps4")]
    assert {cell["metric"] for cell in compare_selections(*both).cells.to_dict("records")} == {RATE}


def test_an_optional_metric_without_a_value_is_neither_failed_nor_zero(tmp_path):
    planned = point(1, "sort", 2)
    write_point(tmp_path, planned)
    for replicate in (1, 2):
        write_record(tmp_path, record(planned, replicate, 2.0, share=None), "sort1", replicate)
    found = build_tidy_table(tmp_path / "points", tmp_path)
    rows = found[found["metric"] == SHARE]
    assert rows["status"].tolist() == [VALID, VALID]
    assert rows["value"].isna().all()
    assert rows["reason"].tolist() == ["the tool reported no value"] * 2
    assert found.loc[found["metric"] == RATE, "value"].tolist() == [2.0, 2.0]
    cells = summarise_cells(found).set_index("metric")
    assert cells.loc[SHARE, ["status", "n", "n_failed"]].tolist() == [UNMEASURED, 0, 0]
    assert cells.loc[SHARE, "reason"] == "the tool reported no value"
    assert cells.loc[RATE, ["status", "n"]].tolist() == [VALID, 2]
    assert (
        find_anova_studies(Measurements.from_table(found))
        == find_anova_studies(Measurements.from_table(found[found["metric"] != SHARE]))
        == []
    )


def test_a_metric_that_is_not_optional_fails_without_a_value(tmp_path):
    planned = point(1, "sort", 1)
    planned["loads"][0]["metrics"][SHARE] = {"event": "done", "key": "share", "at_most": None}
    rows = study(tmp_path, {(1, "sort"): [1.0]}, {(1, "sort"): planned})
    assert rows["status"].unique().tolist() == [VALID]
    write_record(tmp_path, record(planned, 1, 2.0, share=None), "sort1")
    assert build_tidy_table(tmp_path / "points", tmp_path)["status"].unique().tolist() == ["failed"]
