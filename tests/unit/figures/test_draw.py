"""Figures of a small machine as files: SVG, PNG and CSV."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from chaosity.documents.shipped_documents import EXPERIMENTS, load_experiment
from chaosity.errors import UserError
from chaosity.figures.bar_charts import draw_bar_chart
from chaosity.figures.draw_and_write_figures import FigureFile, draw_figures
from chaosity.figures.figure_data_and_value_limits import (
    find_round_value_limits,
    select_figure_data,
)
from chaosity.figures.figure_spec import FigureSpec, parse_figure_specs
from chaosity.records.record_types_and_verdict import FAILED
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_outcome
from chaosity.store.tidy_table_parquet import COLUMNS, rows_to_table
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
    "where": {
        **{"initiator_kind": "node", "relation": "same_node"},
        "kernel": ["triad", "copy"],
    },
}
DRIVES = {**MAP, "name": "drives", "load": "storage", "where": {"target_kind": "drive"}}


def experiment(*figures: dict[str, Any], name: str = "memory_bandwidth") -> dict[str, Any]:
    return {"experiment": name, "question": "How much?", "figures": list(figures)}


def draw(
    folder: Path, *figures: dict[str, Any], name: str = "memory_bandwidth", table=TABLE
) -> list[FigureFile]:
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


def marks(folder: Path, name: str) -> dict[str, str]:
    """Text of every mark by its id."""
    groups = tree(folder, name).iter(f"{SVG}g")
    return {
        mark.get("id"): mark.find(f"{SVG}title").text
        for mark in groups
        if mark.get("class") == "mark"
    }


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def names(folder: Path, figure: str, column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows(folder, figure)))


def style(folder: Path, name: str, cell: str) -> str:
    path = f"//*[@id='{name}-cell-{cell}']//*[local-name()='path']/@style"
    return tree(folder, name).xpath(path)[0]


def test_every_figure_is_written_as_svg_png_and_csv_and_listed(drawn):
    folder, files = drawn
    assert [file.problem for file in files] == [None] * 4
    for file in files:
        assert {path.suffix for path in folder.glob(f"{file.name}.*")} == {".svg", ".png", ".csv"}
    assert (folder / "nodes.png").read_bytes().startswith(b"\x89PNG")
    text = (folder / "figures.json").read_text(encoding="utf-8")
    wanted = json.loads(json.dumps([asdict(file) for file in files]))
    assert all(entry.pop("shown") for entry in wanted)
    assert json.loads(text) == wanted and text.endswith("]\n")


@pytest.mark.thorough
def test_an_experiment_whose_points_all_failed_is_drawn(tmp_path):
    for name in sorted(path.stem for path in EXPERIMENTS.glob("*.yaml")):
        try:
            host = planned("two_packages", experiments=[name], replicates=1, all_points=True)
        except UserError:  # this host has no GPU, and no drive of it may be written
            continue
        killed = ReplicateOutcome(FAILED, "killed", order=1)
        rows = [row for point in host.points for row in tidy_rows_of_outcome(point, 1, killed)]
        table = Measurements.from_table(rows_to_table(rows, COLUMNS))
        files = draw_figures([load_experiment(name)], table, host.topology, tmp_path)
        assert [file.problem for file in files if file.problem] == [], name


def test_the_csv_is_the_data(drawn):
    table = {(row["initiator"], row["target"]): row for row in rows(drawn[0], "nodes")}
    assert len(table) == 16
    values = TABLE.where(point="memory=node0+node1+triad").rows["value"]
    cell = table["node0", "node1"]
    assert float(cell[f"median_{BANDWIDTH}"]) == values.median()
    assert float(cell[f"interval_low_{BANDWIDTH}"]) < values.median()
    assert cell["replicates_valid"] == "3"
    failed = table["node1", "node2"]
    assert (failed["status"], failed["reason"]) == ("failed", "killed")
    assert failed[f"median_{BANDWIDTH}"] == ""


def test_every_mark_says_what_it_is(drawn):
    folder, _ = drawn
    for name in ("nodes", "beside", "kernels", "drives"):
        assert len(marks(folder, name)) == len(rows(folder, name)) > 0
    cells = marks(folder, "nodes")
    assert re.match(r"node0 -> node1: \d\d\.\d GB/s, .* n = 3", cells["nodes-cell-0-1"])
    assert cells["nodes-cell-1-2"].startswith("node1 -> node2: failed in 3 replicates: killed")
    assert cells["nodes-cell-2-2"].startswith("node2 -> node2: not measured yet")


def test_failed_unmeasured_and_meaningless_cells_look_different(drawn, tmp_path):
    folder, _ = drawn
    assert {row["status"] for row in rows(folder, "nodes")} == {"valid", "failed", "missing"}
    assert "url(#nodes-" in style(folder, "nodes", "1-2")  # the hatch
    assert "url(#" not in style(folder, "nodes", "2-2")
    assert len({style(folder, "nodes", cell) for cell in ("0-0", "1-2", "2-2")}) == 3
    # Local cells only: the others were never meant to be measured.
    draw(tmp_path, {**HEATMAP, "where": {**NODES, "relation": "same_node"}})
    table = {(row["initiator"], row["target"]): row for row in rows(tmp_path, "nodes")}
    assert table["node0", "node1"]["status"] == "absent"


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


def test_names_stand_in_their_order_and_packages_are_apart(drawn):
    folder, _ = drawn
    assert names(folder, "kernels", "kernel") == ["triad", "copy"]
    drives = [f"drive-0000-{node}{place}-00-0" for node in range(4) for place in (1, 2)]
    assert names(folder, "drives", "target") == drives

    def left(cell):
        path = f"//*[@id='nodes-cell-{cell}']//*[local-name()='path']/@d"
        [line] = tree(folder, "nodes").xpath(path)[:1]
        return min(float(x) for x in re.findall(r"[ML] ([\d.]+)", line))

    assert left("0-2") - left("0-1") > left("0-1") - left("0-0") + 1.0


def test_numbers_of_bars_stand_in_a_column_beyond_all_intervals():
    """Behind the end of its interval, a number would read as the value of this end."""
    spec = FigureSpec.from_yaml_entry("memory_bandwidth", KERNELS)
    data = select_figure_data(spec, TABLE, HOST.topology)
    limits = find_round_value_limits(BANDWIDTH, [data], with_intervals=True)
    figure, _ = draw_bar_chart(data, limits)
    [axes] = [each for each in figure.axes if each.get_xlabel()]
    [column] = {text.get_position()[0] for text in axes.texts}
    assert column > axes.get_xlim()[1] >= data.marks["high"].max() / limits.scale.factor


def test_one_replicate_has_no_interval(tmp_path):
    [file] = draw(tmp_path, HEATMAP, table=TABLE.where(replicate=1))
    assert "no intervals, since each point has one replicate" in file.sentence
    assert "no interval: n = 1" in marks(tmp_path, "nodes")["nodes-cell-0-0"]
    assert rows(tmp_path, "nodes")[0][f"interval_low_{BANDWIDTH}"] == ""


def test_a_file_that_stands_in_for_a_drive_is_named(tmp_path):
    files = TABLE.with_columns(file_backed=True, label="file-backed")
    [file] = draw(tmp_path, DRIVES, name="storage_bandwidth", table=files)
    assert file.title == "t (file-backed)"
    assert "(file-backed)" in marks(tmp_path, "drives")["drives-cell-0-0"]


def test_figures_that_are_compared_share_limits_and_unit(tmp_path):
    of_pu = {"initiator_kind": "pu", "kernel": "triad"}
    threads = {**HEATMAP, "name": "threads", "where": of_pu, "colour_scale": "memory"}
    alone = {**HEATMAP, "name": "alone", "where": of_pu}
    draw(tmp_path, {**HEATMAP, "colour_scale": "memory"}, threads, alone)
    colours = [
        re.search(r"fill: (#\w+)", style(tmp_path, name, "0-2")).group(1)
        for name in ("threads", "alone")
    ]
    assert colours[0] != colours[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        # A level of points that this host does not have is no error: nothing is drawn.
        ({"where": {"initiator_kind": "machines"}}, None),
        ({"where": {"target_kind": "all_of_package", "queue_depth": 4}}, None),
        ({"where": {"initiator_kind": "node"}}, "points fall on the mark rows node0"),
        ({"rows": "initator"}, "unknown column initator"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(change, problem, tmp_path):
    [file] = draw(tmp_path, {**HEATMAP, **change})
    assert file.svg is None
    assert file.problem is None if problem is None else problem in file.problem
    assert not list(tmp_path.glob("nodes.*"))


def test_a_column_of_another_load_can_be_shown(tmp_path):
    where = {"storage.target_kind": "first_of_node"}
    figure = {**MAP, "name": "map", "columns": "storage.target", "where": where}
    [file] = draw(tmp_path, figure | {"combine": "median"}, name="interference")
    assert file.problem is None
    assert names(tmp_path, "map", "storage.target") == [f"node{n}drives1" for n in range(4)]


def test_two_figures_of_one_name_and_two_hosts_in_a_table_are_errors(tmp_path):
    twice = [experiment(HEATMAP), experiment(HEATMAP, name="other")]
    with pytest.raises(UserError, match="already has a figure of this name"):
        draw_figures(twice, TABLE, HOST.topology, tmp_path)
    hosts = TABLE.with_columns(host=["other", *TABLE.rows["host"][1:]])
    with pytest.raises(UserError, match="several hosts"):
        draw(tmp_path, HEATMAP, table=Measurements.from_table(hosts))


def test_the_figures_of_the_experiments_are_described_rightly():
    assert parse_figure_specs([load_experiment(path.stem) for path in EXPERIMENTS.glob("*.yaml")])
