"""Predicted cells are drawn as predicted, and never as measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from chaosity.checked_yaml_files import load_experiment, read_config
from chaosity.figures.draw_and_write_figures import FigureFile, draw_figures
from chaosity.prediction.predict_drive_sets import predict_drive_sets
from chaosity.store.left_out_points import LeftOutPoints
from chaosity.store.measurements import Measurements
from chaosity.units import group_thousands
from simulated_tables import SimulatedHost, shipped_machine, shipped_topology
from sparse_drive_sets import SparseHost

SETS = ["all_of_node", "all_of_nodes", "all"]
EXPERIMENT = load_experiment("storage_bandwidth")


@pytest.fixture(scope="module")
def host() -> SimulatedHost:
    topology = shipped_topology("epyc_7413_nps4")
    config = read_config()
    config["experiments"] = ["storage_bandwidth"]
    return SimulatedHost.planned(shipped_machine("epyc_7413", topology), topology, [], config)


@pytest.fixture(scope="module")
def sparse(host: SimulatedHost) -> SparseHost:
    return SparseHost.of(host, seed=3)


@pytest.fixture(scope="module")
def left_out(sparse: SparseHost) -> LeftOutPoints:
    predictions = predict_drive_sets(sparse.measured, sparse.unmeasured)
    # Some cells are neither measured nor predicted.
    return LeftOutPoints(sparse.unmeasured, predictions.iloc[5:])


def drawn(
    host: SimulatedHost, sparse: SparseHost, left_out: LeftOutPoints | None, folder: Path
) -> dict[str, FigureFile]:
    """The figures of the experiment by name."""
    files = draw_figures([EXPERIMENT], sparse.measured, host.topology, folder, left_out)
    return {file.name: file for file in files}


@pytest.fixture(scope="module")
def figures(host, sparse, left_out, tmp_path_factory) -> tuple[dict[str, FigureFile], Path]:
    folder = tmp_path_factory.mktemp("figures")
    return drawn(host, sparse, left_out, folder), folder


def test_the_caption_counts_predicted_and_left_out_cells(figures, left_out):
    caption = figures[0]["storage_bandwidth_by_node_set"].sentence
    cells = left_out.rows.rows.drop_duplicates("point")
    number = int(cells["target_kind"].isin(SETS).sum())
    known = left_out.predictions["target_kind"].isin(SETS).sum()
    shown = f"{group_thousands(known)} of {group_thousands(2040)} cells"
    assert f"{shown} are predicted, not measured (hatched), with 95 % intervals of ±" in caption
    assert f"{number - known} left out by the budget" in caption


def test_captions_state_only_measured_values(figures, sparse):
    caption = figures[0]["storage_bandwidth_by_node_set"].sentence
    rows = sparse.measured.rows
    rows = rows[rows["target_kind"].isin(SETS)]
    best = rows.groupby("point")["value"].median().max()
    assert f"Best: {best / 1e9:.1f} GB/s" in caption


def test_predicted_cells_are_hatched_with_bounds_on_hover(figures):
    svg = (figures[1] / "storage_bandwidth_by_node_set.svg").read_text()
    assert "predicted, not measured" in svg
    assert svg.count("; not measured") > 1000
    assert "by measured sets at least" in svg
    assert "left out by the budget" in svg
    assert "<pattern" in svg  # a hatch


def test_the_csv_has_predictions_in_columns_of_their_own(figures, left_out):
    table = pd.read_csv(figures[1] / "storage_bandwidth_by_node_set.csv")
    predicted = table[table["status"] == "predicted"]
    assert len(predicted) > 1000
    metric = "bandwidth_bytes_per_second"
    assert predicted[f"median_{metric}"].isna().all()
    low, value, high = (
        predicted[f"predicted_{name}_{metric}"] for name in ("low", "value", "high")
    )
    assert ((low <= value) & (value <= high)).all()
    measured = table[table["status"] == "valid"]
    assert measured[f"predicted_value_{metric}"].isna().all()
    assert (table["status"] == "left_out").any()
    assert (predicted["origin"] == "simulated, predicted").all()
    assert (measured["origin"] == "simulated").all()


@pytest.fixture(scope="module", params=["lines", "bars"])
def chart(request, host, sparse, left_out, tmp_path_factory) -> tuple[str, FigureFile, Path]:
    """A chart of four sets of one node, two of them measured and two predicted."""
    kind, rows = request.param, sparse.measured.rows
    known = rows[(rows["target_kind"] == "all_of_nodes") & (rows["initiator"] == "node0")]
    predictions = left_out.predictions
    guessed = predictions[predictions["target_kind"].eq("all_of_nodes")]
    guessed = guessed[guessed["initiator"] == "node0"]
    names = [*known["target"].unique()[:2], *guessed["target"].unique()[:2]]
    # A set without a prediction is not drawn.
    other = left_out.rows.rows.set_index("point").drop(predictions["point"], errors="ignore")
    figure = {**EXPERIMENT["figures"][2], "name": "chart", "kind": kind, "x": "target"}
    figure |= {"series": "initiator", "where": {"initiator": "node0", "target": names}}
    figure["where"]["target"] += [*other.loc[other["initiator"] == "node0", "target"].unique()[:1]]
    figure = {k: v for k, v in figure.items() if k not in ("rows", "columns", "colour_scale")}
    folder = tmp_path_factory.mktemp(kind)
    experiment = {**EXPERIMENT, "figures": [figure]}
    [file] = draw_figures([experiment], sparse.measured, host.topology, folder, left_out)
    return kind, file, folder


def test_charts_show_predictions_apart_from_measured_values(chart):
    kind, file, folder = chart
    svg = (folder / "chart.svg").read_text()
    assert svg.count("; not measured") == 2
    assert svg.count("by measured sets at least") == 2
    assert "predicted, not measured" in svg
    look, noun = {"lines": ("hollow", "points"), "bars": ("hatched", "bars")}[kind]
    assert f"2 of 4 {noun} are predicted, not measured ({look})" in file.sentence
    assert "at most ±" in file.sentence
    table = pd.read_csv(folder / "chart.csv")
    assert sorted(table["status"]) == ["predicted"] * 2 + ["valid"] * 2
    predicted = table[table["status"] == "predicted"]
    assert predicted["median_bandwidth_bytes_per_second"].isna().all()
    if kind == "lines":  # the line joins the two measured points only
        assert "stroke-dasharray" in svg
    else:
        assert "<pattern" in svg


def test_figures_of_a_complete_plan_are_as_without_predictions(host, sparse, figures, tmp_path):
    nothing = LeftOutPoints(
        Measurements.from_table(sparse.unmeasured.rows.iloc[:0]),
        predict_drive_sets(sparse.measured, sparse.unmeasured.rows.iloc[:0]),
    )
    without = drawn(host, sparse, None, tmp_path / "none")
    empty = drawn(host, sparse, nothing, tmp_path / "empty")
    assert without.keys() == empty.keys()
    for path in (tmp_path / "none").iterdir():
        if path.suffix in (".svg", ".csv"):
            assert path.read_bytes() == (tmp_path / "empty" / path.name).read_bytes(), path.name
    # Lines join only measured points.
    name = "storage_bandwidth_by_count.svg"
    assert (tmp_path / "none" / name).read_bytes() == (figures[1] / name).read_bytes()
