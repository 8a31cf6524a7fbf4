"""Test the bounds of a figure, and what its caption says about them (figure 8 of 000)."""

from __future__ import annotations

import csv
import re

import pandas as pd
import pytest
import synthetic_streaming as streaming
from lxml import etree
from table_figures import draw, select_figure_data

from chaosity.checked_yaml_files import load_experiment
from chaosity.errors import UserError
from chaosity.figures.column_values_and_upper_bounds import (
    lowest_bound_of_mark,
    read_measured_limits,
)
from chaosity.figures.figure_captions import figure_caption
from chaosity.figures.figure_data_and_value_limits import find_round_value_limits
from chaosity.figures.figure_spec import FigureSpec
from chaosity.store.measurements import Measurements

GB = 1e9
EXPERIMENT = load_experiment("streaming_compute")
ENTRY, READING = EXPERIMENT["figures"]


def spec_of(**changes):
    return FigureSpec.from_yaml_entry("streaming_compute", {**ENTRY, **changes})


def drawn(folder, tidy):
    files = draw([EXPERIMENT], tidy, streaming.machine().topology(), folder)
    assert [file.problem for file in files] == [None, None]
    return files[0]


def test_the_bottleneck_moves_where_drives_give_more_than_half_the_memory(tmp_path):
    said = drawn(tmp_path, streaming.tidy(drive=6.9 * GB, memory=80 * GB)).sentence
    # 5 drives give 34.5 and 6 give 41.4 of 40 GB/s; from the other package, 0.8 of it, 7 and 8
    half = "(number of drives), half the memory's read bandwidth from"
    assert f"Lowest bound for same package: the drives alone up to 5 {half} 6; " in said
    assert f"Lowest bound for other package: the drives alone up to 7 {half} 8; " in said


def test_slow_drives_are_the_limit_everywhere(tmp_path):
    said = drawn(tmp_path, streaming.tidy(drive=2 * GB)).sentence
    assert said.startswith(
        "Lowest bound: the drives alone for every number of drives; the values reach 9"
    )
    assert "half" not in said
    assert "exceeds" not in said


def test_of_a_bound_that_is_exceeded_it_is_said_by_how_much(tmp_path):
    tidy = streaming.tidy(drive=2 * GB)
    low = tidy["value"].where(tidy["load"] != "drives", tidy["value"] / 2)
    said = drawn(tmp_path, tidy.assign(value=low)).sentence
    # Half of the bound, of which 95 % are reached with noise of 1 %.
    [exceeded] = re.findall(
        r"% of this bound; the largest value is (\d+) % above the bound, so", said
    )
    assert 85 <= int(exceeded) <= 95


def test_one_drive_alone_says_what_limits_it():
    tidy = streaming.tidy()
    small = tidy["target"].isin(["package0drives1", "node0"]) | tidy["target"].str.contains("x")
    one = tidy[(tidy["initiator"] == "node0") & small]
    data = select_figure_data(spec_of(), one, streaming.machine().topology())
    said = figure_caption(data, find_round_value_limits(streaming.THROUGHPUT, [data]).scale)
    assert re.search(r"; the values reach [^;]* of this bound\.$", said)
    assert "Lowest bound: the drives alone for every number of drives" in said


def test_bounds_are_medians_and_their_multiples_by_panel_series_and_x():
    drives, half, memory = read_measured_limits(
        spec_of(), Measurements.from_table(streaming.tidy())
    )
    assert (drives.along_x, half.along_x, memory.along_x) == (True, False, False)
    assert drives.bound_of_mark("node0", "same_package", "3") == pytest.approx(20.7 * GB, rel=0.02)
    assert drives.bound_of_mark("node0", "other_package", "3") == pytest.approx(16.6 * GB, rel=0.02)
    assert drives.bound_of_mark("node0", "same_package", "9") is None
    assert half.bound_of_mark("node1", "other_package", "8") == pytest.approx(40 * GB, rel=0.02)
    assert memory.bound_of_mark("node1", None, None) == pytest.approx(77.6 * GB, rel=0.02)
    title, value = lowest_bound_of_mark((drives, half, memory), "node0", "same_package", "8")
    assert (title, value) == (half.title, half.bound_of_mark("node0", None, None))
    assert lowest_bound_of_mark((), "node0", None, None) is None


def test_what_was_not_measured_bounds_nothing():
    tidy = streaming.tidy()
    failed = tidy.assign(status=tidy["status"].where(tidy["load"] != "drives", "failed"))
    titles = [
        bound.title for bound in read_measured_limits(spec_of(), Measurements.from_table(failed))
    ]
    assert titles == ["half the memory's read bandwidth", "the array in memory"]
    assert (
        read_measured_limits(spec_of(), Measurements.from_table(tidy[tidy["load"] == "nothing"]))
        == ()
    )


def test_a_bound_of_a_column_that_is_not_there_is_said():
    wrong = [{**ENTRY["bounds"][0], "where": {"colour": "blue"}}]
    with pytest.raises(UserError, match="unknown column colour"):
        read_measured_limits(spec_of(bounds=wrong), Measurements.from_table(streaming.tidy()))


@pytest.mark.parametrize(
    "change", [{"times": 0}, {"metric": None}, {"along": True}, {"where": {"x": {}}}]
)
def test_a_wrong_bound_is_said(change):
    with pytest.raises(UserError, match="bounds"):
        spec_of(bounds=[{**ENTRY["bounds"][0], **change}])


def test_the_figure_has_room_for_its_bounds_and_the_table_has_their_values(tmp_path):
    tidy = streaming.tidy(memory=200 * GB)
    data = select_figure_data(spec_of(), tidy, streaming.machine().topology())
    assert find_round_value_limits(streaming.THROUGHPUT, [data]).high >= 190 * GB
    file = drawn(tmp_path, tidy)
    with (tmp_path / file.csv).open() as text:
        rows = list(csv.DictReader(text))
    column = f"bound_half_the_memory's_read_bandwidth_{streaming.THROUGHPUT}"
    assert {round(float(row[column]) / GB, -1) for row in rows} == {100}
    words = etree.parse(tmp_path / file.svg).getroot().xpath("//*[local-name()='desc']/text()")
    assert any("Lowest bound" in text for text in words)


def test_a_figure_without_bounds_is_as_it_was(tmp_path):
    entry = {key: value for key, value in ENTRY.items() if key != "bounds"}
    data = select_figure_data(
        FigureSpec.from_yaml_entry("e", entry),
        streaming.tidy().assign(experiment="e"),
        streaming.machine().topology(),
    )
    assert data.bounds == ()
    assert isinstance(data.marks, pd.DataFrame)
