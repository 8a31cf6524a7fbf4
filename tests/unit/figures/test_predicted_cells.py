"""Predicted cells are drawn as predicted, and never as measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chaosity.documents.shipped_documents import load_experiment
from chaosity.drive_set_predictions import drive_set_models, predict_drive_sets
from chaosity.figures.figure_files import FigureEntry, draw_figures
from chaosity.store.measurements import LeftOutPoints, Measurements
from chaosity.topology.topology_model import Topology
from machines import is_small_drive_set, leave_out, planned
from table_rows import BANDWIDTH

EXPERIMENT = load_experiment("storage_bandwidth")
BY_SET, BY_COUNT = "storage_bandwidth_by_node_set", "storage_bandwidth_by_count"
SHOWN = [each for each in EXPERIMENT["figures"] if each["name"] in (BY_SET, BY_COUNT)]
Tables = tuple[Measurements, LeftOutPoints, Topology]


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Some cells are measured, some are predicted, and two are neither."""
    host = planned("two_packages", experiments=["storage_bandwidth"])
    measured, unmeasured = leave_out(host, 3, is_small_drive_set, random=4)
    predictions = predict_drive_sets(drive_set_models(measured, unmeasured))
    return measured, LeftOutPoints(unmeasured, predictions.iloc[2:]), host.topology


def drawn(tables: Tables, folder: Path, *figures: dict[str, Any]) -> dict[str, FigureEntry]:
    """These figures of the experiment, or those of sets of drives, by name."""
    measured, left_out, topology = tables
    experiment = {**EXPERIMENT, "figures": list(figures) or SHOWN}
    files = draw_figures([experiment], measured, topology, folder, left_out)
    return {file.name: file for file in files}


@pytest.fixture(scope="module")
def figures(tables, tmp_path_factory) -> tuple[dict[str, FigureEntry], Path]:
    folder = tmp_path_factory.mktemp("figures")
    return drawn(tables, folder), folder


def test_predicted_cells_are_hatched_with_bounds_on_hover(figures, tables):
    svg = (figures[1] / f"{BY_SET}.svg").read_text()
    known = len(tables[1].predictions)
    assert svg.count("; not measured") == svg.count("by measured sets at least") == known
    assert svg.count("left out by the budget") >= 2
    assert "<pattern" in svg  # a hatch


@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_charts_show_predictions_apart_from_measured_values(kind, tables, tmp_path):
    """A chart of sets of nodes: two are measured, two predicted, and one is neither."""
    measured, left_out, _ = tables
    sets = measured.where(target_kind="all_of_nodes").rows
    names = [*sets["target"].unique()[:2], *left_out.predictions["target"].unique()[:2]]
    one = left_out.predictions["initiator"].iloc[0]
    figure = {**EXPERIMENT["figures"][2], "name": "chart", "kind": kind, "x": "target"}
    figure |= {"series": "initiator", "where": {"initiator": one, "target": names}}
    figure = {k: v for k, v in figure.items() if k not in ("rows", "columns", "colour_scale")}
    [file] = drawn(tables, tmp_path, figure).values()
    table = pd.read_csv(tmp_path / "chart.csv")
    predicted = table[table["status"] == "predicted"]
    number = len(predicted)
    assert number >= 1 and (table["status"] == "valid").sum() >= 2
    assert predicted[f"median_{BANDWIDTH}"].isna().all()
    svg = (tmp_path / "chart.svg").read_text()
    assert svg.count("; not measured") == svg.count("by measured sets at least") == number
    look, noun = {"lines": ("hollow", "points"), "bars": ("hatched", "bars")}[kind]
    assert f"{number} of {len(table)} {noun}" in file.sentence and f"({look})" in file.sentence
    # A line joins the measured points only.
    assert ("stroke-dasharray" if kind == "lines" else "<pattern") in svg
