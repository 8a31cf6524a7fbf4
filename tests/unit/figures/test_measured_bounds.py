"""Test the bounds of a figure, and what its caption says about them (figure 8 of 000)."""

from __future__ import annotations

import json
import re

import pytest

from chaosity.documents.shipped_documents import load_experiment
from chaosity.errors import UserError
from chaosity.figures.captions import figure_caption
from chaosity.figures.figure_data import FigureSpec, find_round_value_limits
from chaosity.figures.figure_files import draw_figures
from chaosity.figures.select import select_figure_data
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from table_rows import BANDWIDTH, GB, rows, table

THROUGHPUT = "processing_throughput_bytes_per_second"
EXPERIMENT = load_experiment("streaming_compute")
ENTRY, _ = EXPERIMENT["figures"]


def spec_of(**changes):
    return FigureSpec.from_yaml_entry("streaming_compute", {**ENTRY, **changes})


def load(name, value, target="node0", kind="node", drives=0, placement="same_package", **more):
    """The rows of a load of node 0: the drives alone, the reads of memory, or a sum."""
    return rows(
        lambda i, j: value * GB,
        [0],
        [0],
        THROUGHPUT if name == "sum" else BANDWIDTH,
        experiment="streaming_compute",
        point=f"{name}={target}+{placement}",
        load=name,
        kernel="read" if name == "read" else None,
        target=target,
        target_kind=kind,
        drives=drives,
        factors=json.dumps({"drives": drives, "placement": placement, **more}),
    )


def streams(drive=6.9, memory=80.0, done=0.95):
    """A host that sums what up to 8 drives give, at most half of its memory's read bandwidth."""
    found = [load("read", memory), load("sum", 0.97 * memory)]
    # A point of the other figure, which varies how drives are read.
    found.append(load("sum", memory, "8x4", "all_of_package", 8, queue_depth=4))
    for placement, share in (("same_package", 1.0), ("other_package", 0.8)):
        for count in range(1, 9):
            given = share * drive * count
            name = f"package{placement}drives{count}"
            of = (name, "first_of_package", count, placement)
            found.append(load("drives", given, *of))
            found.append(load("sum", done * min(given, memory / 2), *of))
    return Measurements.from_table(table(*found))


def bounds(measured, **changes):
    """The bounds of each mark: placement and number of drives -> title -> bound."""
    data = select_figure_data(spec_of(**changes), measured, Topology())
    found = data.bounds_of_marks().assign(series=data.marks["series"], x=data.marks["x"])
    return found.set_index(["series", "x"])


def caption(measured):
    data = select_figure_data(spec_of(), measured, Topology())
    return figure_caption(data, find_round_value_limits(THROUGHPUT, [data]).scale)


@pytest.mark.parametrize(
    ("drive", "last_of_drives"),
    # 5 drives give 34.5 of 40 GB/s, 6 give 41.4; from the other package, 7 and 8. Slow ones: all.
    [(6.9, {"same_package": 5, "other_package": 7}), (2.0, {})],
)
def test_the_bottleneck_moves_where_drives_give_more_than_half_the_memory(drive, last_of_drives):
    found = bounds(streams(drive))
    for placement in ("same_package", "other_package"):
        titles = list(found.loc[placement].idxmin(axis=1))
        last = last_of_drives.get(placement, 8)
        assert titles == [found.columns[0]] * last + [found.columns[1]] * (8 - last)
        moves = f"up to {last} (number of drives)" if last < 8 else "for every number of drives"
        assert moves in caption(streams(drive))


def test_a_bound_in_a_panel_without_marks_is_left_out(tmp_path):
    rows_of = streams().rows
    other = rows_of["point"].str.contains("other_package") & (rows_of["load"] == "sum")
    measured = Measurements.from_table(rows_of[~other])
    entry = {**ENTRY, "panels": "placement", "series": None}
    [file] = draw_figures([{**EXPERIMENT, "figures": [entry]}], measured, Topology(), tmp_path)
    assert (tmp_path / f"{file.name}.svg").exists()


def test_of_a_bound_that_is_exceeded_it_is_said_by_how_much():
    said = caption(streams(drive=2.0, done=1.9))
    assert re.search(r"the largest value is 9\d % above the bound", said)
    assert "above the bound" not in caption(streams(drive=2.0))


def test_a_bound_of_a_column_that_is_not_there_is_an_error():
    wrong = [{**ENTRY["bounds"][0], "where": {"colour": "blue"}}]
    with pytest.raises(UserError, match="unknown column colour"):
        bounds(streams(), bounds=wrong)
