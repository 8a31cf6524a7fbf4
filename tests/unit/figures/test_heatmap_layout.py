"""Cells of a heat map of any size fit a page."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest

from chaosity.figures.cell_rows import heat_map_rows
from chaosity.figures.figure_data import (
    Axis,
    FigureData,
    FigureSpec,
    ShownValueRange,
    axis_title,
    make_axis_value,
    sort_and_group_axis_values,
)
from chaosity.figures.vega_lite import FIGURE_WIDTH_POINTS
from chaosity.units import choose_scale


def axis(column, names, packages=None):
    ordered, groups = sort_and_group_axis_values(map(make_axis_value, names), packages or {})
    return Axis(column, axis_title(column, ordered), tuple(ordered), tuple(groups))


def nodes(column, number, per_package):
    packages = {node: node // per_package for node in range(number)}
    return axis(column, [f"node{node}" for node in range(number)], packages)


def node_sets(number):
    sizes = range(1, number + 1)
    sets = itertools.chain.from_iterable(itertools.combinations(range(number), k) for k in sizes)
    return axis("target", [f"nodes{','.join(map(str, one))}drives" for one in sets])


SHAPES = {
    "one cell": (nodes("initiator", 1, 1), nodes("target", 1, 1)),
    "figure 4": (nodes("initiator", 8, 4), nodes("target", 8, 4)),
    "figure 6": (nodes("initiator", 8, 4), node_sets(8)),
    "24 nodes": (nodes("initiator", 24, 2), nodes("target", 24, 2)),
    "384 PUs": (axis("initiator", [f"pu{n}" for n in range(384)]), nodes("target", 24, 2)),
    "112 x 112": (*[axis(c, [f"pu{n}" for n in range(112)]) for c in ("initiator", "responder")],),
}


def drawn(shape):
    rows, columns = SHAPES[shape]
    spec = FigureSpec("", "map", "heatmap", "Map", ("memory",), "latency_ns")
    empty = pd.DataFrame(columns=["status", "rows", "columns"])
    data = FigureData(spec, {"rows": rows, "columns": columns}, empty, pd.DataFrame())
    return heat_map_rows(data, ShownValueRange(0.0, 1.0, choose_scale("latency_ns", [1.0])))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_map_fits_a_page_and_no_cells_overlap(shape):
    rows, values = drawn(shape)
    cells = [row for row in rows if row["role"] == "absent"]
    assert len(cells) == len(SHAPES[shape][0].values) * len(SHAPES[shape][1].values)
    assert values["sheet_width"] <= FIGURE_WIDTH_POINTS
    assert values["sheet_height"] <= 1.3 * FIGURE_WIDTH_POINTS
    assert values["row_size"] >= 5.0
    places = sorted((cell["x"], cell["y"], cell["x2"], cell["y2"]) for cell in cells)
    for one, other in itertools.pairwise(places):
        assert other[0] >= one[2] - 1e-6 or other[1] >= one[3] - 1e-6
    for axis_of in ("x", "y"):
        assert values[axis_of]["scale"]["domain"][0] == 0.0


def test_cores_are_along_x_and_memory_along_y_with_a_gap_between_packages():
    rows, values = drawn("figure 4")
    cells = {row["hover"].split(":")[0]: row for row in rows if row["role"] == "absent"}
    assert values["x"]["axis"]["title"] == "Initiator node"
    assert values["y"]["axis"]["title"] == "Target node"
    first, second, fourth, fifth = (cells[f"node{n} -> node0"] for n in (0, 1, 3, 4))
    assert first["y"] == fifth["y"]
    assert fifth["x"] - fourth["x2"] > second["x"] - first["x2"] + 1.0
    names = [row["text"] for row in rows if row["role"] in ("column_group", "row_group")]
    assert sorted(names) == ["package 0", "package 0", "package 1", "package 1"]


def test_255_drive_sets_run_down_the_page_in_blocks_with_a_column_for_each_node():
    rows, _ = drawn("figure 6")
    labels = [row for row in rows if row["role"] == "membership"]
    assert [labels[0]["text"], labels[-1]["text"]] == ["0·······", "01234567"]
    blocks = [list(own) for _, own in itertools.groupby(labels, key=lambda row: row["xm"])]
    assert list(map(len, blocks)) == [36, 56, 70, 56, 37]
    headings = [row["text"] for row in rows if row["role"] == "heading"]
    assert headings == ["1 node", *(f"{n} nodes" for n in range(2, 9))]
