"""Figures of a small machine as files: SVG, PNG, Vega-Lite and CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from chaosity.documents.shipped_documents import EXPERIMENTS_FOLDER, load_experiment
from chaosity.errors import UserError
from chaosity.figures.figure_data import parse_figure_specs
from chaosity.figures.figure_files import FigureEntry, draw_figures
from chaosity.records.record_format import FAILED
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_outcome
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, rows_to_table
from machines import planned
from table_rows import BANDWIDTH

SVG = "{http://www.w3.org/2000/svg}"
HOST = planned(
    "two_packages",
    experiments=["memory_bandwidth", "storage_bandwidth", "interference"],
    replicates=3,
    all_points=True,
)
KILLED = {
    "memory=node1+node2+triad": "killed",
    "memory=node3+node3+triad.storage=node3+node3drives": "too slow",
}
TABLE = HOST.table(1, failed=KILLED, missing=["memory=node2+node2+triad"], origin="measured")
BASE = {"title": "t", "load": "memory", "metric": BANDWIDTH}
NODES = {"initiator_kind": "node", "kernel": "triad"}
MAP = {**BASE, "kind": "heatmap", "rows": "initiator", "columns": "target"}
HEATMAP = {**MAP, "name": "nodes", "where": NODES}
BESIDE = {
    **{**BASE, "name": "beside", "kind": "lines", "x": "drives", "series": "placement"},
    **{"panels": "storage_node", "panels_title": "Drives of node"},
}
KERNELS = {
    **{**BASE, "name": "kernels", "kind": "bars", "x": "kernel", "series": "initiator"},
    "where": {**{"initiator_kind": "node", "relation": "same_node"}, "kernel": ["triad", "copy"]},
}
DRIVES = {**MAP, "name": "drives", "load": "storage", "where": {"target_kind": "drive"}}


def experiment(*figures: dict[str, Any], name: str = "memory_bandwidth") -> dict[str, Any]:
    return {"experiment": name, "question": "How much?", "figures": list(figures)}


def draw(
    folder: Path, *figures: dict[str, Any], name: str = "memory_bandwidth", table=TABLE
) -> list[FigureEntry]:
    return draw_figures([experiment(*figures, name=name)], table, HOST.topology, folder)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    experiments = [
        experiment({**HEATMAP, "source": "figure 4"}, KERNELS),
        experiment(BESIDE, name="interference"),
        experiment(DRIVES, name="storage_bandwidth"),
    ]
    return folder, draw_figures(experiments, TABLE, HOST.topology, folder)


def tree(folder: Path, name: str):
    return etree.parse(folder / f"{name}.svg").getroot()


def marks(folder: Path, name: str) -> dict[str, etree._Element]:
    """Every mark by its hover text."""
    found = tree(folder, name).xpath("//*[@class='mark']")
    return {mark.find(f"{SVG}title").text: mark for mark in found}


def mark_of(folder: Path, name: str, start: str) -> tuple[str, etree._Element]:
    [(text, mark)] = [each for each in marks(folder, name).items() if each[0].startswith(start)]
    return text, mark


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.thorough
def test_an_experiment_whose_points_all_failed_is_drawn(tmp_path):
    for name in sorted(path.stem for path in EXPERIMENTS_FOLDER.glob("*.yaml")):
        try:
            host = planned("two_packages", experiments=[name], replicates=1, all_points=True)
        except UserError:  # this host has no GPU, and no drive of it may be written
            continue
        killed = ReplicateOutcome(FAILED, "killed", order=1)
        rows = [row for point in host.points for row in tidy_rows_of_outcome(point, 1, killed)]
        table = Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))
        files = draw_figures([load_experiment(name)], table, host.topology, tmp_path)
        assert [file.problem for file in files if file.problem] == [], name


def test_failed_unmeasured_and_meaningless_cells_look_different(drawn, tmp_path):
    folder, _ = drawn
    assert {row["status"] for row in rows(folder, "nodes")} == {"valid", "failed", "missing"}
    places = ("node0 -> node0", "node1 -> node2", "node2 -> node2")
    looks = [mark_of(folder, "nodes", place)[1].get("fill") for place in places]
    assert len(set(looks)) == 3
    assert [look.startswith("url(#nodes-") for look in looks] == [False, True, False]
    # Local cells only: the others were never meant to be measured.
    draw(tmp_path, {**HEATMAP, "where": {**NODES, "relation": "same_node"}})
    table = {(row["initiator"], row["target"]): row for row in rows(tmp_path, "nodes")}
    assert table["node0", "node1"]["status"] == "absent"
    mark_of(tmp_path, "nodes", "node0 -> node1: not part of the experiment")


def test_a_template_draws_another_kind_of_figure(drawn, tmp_path):
    """A dot plot needs a template and an entry that names it, and no code."""
    folder, _ = drawn
    draw(tmp_path, {**KERNELS, "name": "dots", "template": "dots"})
    assert marks(tmp_path, "dots").keys() == marks(folder, "kernels").keys()
    assert rows(tmp_path, "dots") == rows(folder, "kernels")
    [file] = draw(tmp_path, {**KERNELS, "name": "unknown", "template": "unknown"})
    assert "there is no template unknown" in str(file.problem)


def test_unchanged_data_gives_equal_files_that_need_nothing_from_outside(drawn, tmp_path):
    folder, files = drawn
    draw(tmp_path, {**HEATMAP, "source": "figure 4"})
    for name in ("nodes.svg", "nodes.png", "nodes.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    seen: set[str] = set()
    for file in files:
        root = tree(folder, file.name)
        identities = root.xpath("//@id")
        assert len(identities) == len(set(identities))
        assert not seen & set(identities)
        seen |= set(identities)
        links = root.xpath("//@*[name()='href' or name()='xlink:href']")
        assert all(link.startswith("#") and link[1:] in identities for link in links)


def test_figures_that_are_compared_share_limits_and_unit(tmp_path):
    of_pu = {"initiator_kind": "pu", "kernel": "triad"}
    threads = {**HEATMAP, "name": "threads", "where": of_pu, "colour_scale": "memory"}
    alone = {**HEATMAP, "name": "alone", "where": of_pu}
    draw(tmp_path, {**HEATMAP, "colour_scale": "memory"}, threads, alone)
    first = rows(tmp_path, "alone")[0]
    place = f"{first['initiator']} -> node2"
    colours = [mark_of(tmp_path, name, place)[1].get("fill") for name in ("threads", "alone")]
    assert colours[0] != colours[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        # A level of points that this host does not have is no error: nothing is drawn.
        ({"where": {"initiator_kind": "machines"}}, None),
        ({"where": {"target_kind": "all_of_package", "queue_depth": 4}}, None),
        ({"where": {"initiator_kind": "node"}}, "points would be one mark (rows node0"),
        ({"rows": "initator"}, "unknown column initator"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(change, problem, tmp_path):
    [file] = draw(tmp_path, {**HEATMAP, **change})
    assert file.svg is None
    assert file.problem is None if problem is None else problem in file.problem
    assert not list(tmp_path.glob("nodes.*"))


def test_two_figures_of_one_name_and_two_hosts_in_a_table_are_errors(tmp_path):
    twice = [experiment(HEATMAP), experiment(HEATMAP, name="other")]
    with pytest.raises(UserError, match="already has a figure of this name"):
        draw_figures(twice, TABLE, HOST.topology, tmp_path)
    hosts = TABLE.with_columns(host=["other", *TABLE.rows["host"][1:]])
    with pytest.raises(UserError, match="several hosts"):
        draw(tmp_path, HEATMAP, table=Measurements.from_table(hosts))


def test_the_figures_of_the_experiments_are_described_rightly():
    assert parse_figure_specs(
        [load_experiment(path.stem) for path in EXPERIMENTS_FOLDER.glob("*.yaml")]
    )
