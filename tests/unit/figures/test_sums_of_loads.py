"""Test figures with the sum of two loads, and with the larger load alone."""

from __future__ import annotations

import pytest

from chaosity.figures.captions import figure_caption
from chaosity.figures.figure_data import FigureSpec, find_round_value_limits
from chaosity.figures.select import select_figure_data
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from table_rows import BANDWIDTH, GB, rows
from table_rows import table as tidy_table

ENTRY = {
    "name": "together",
    "kind": "lines",
    "title": "Two loads",
    "load": ["memory", "storage"],
    "metric": BANDWIDTH,
    "x": "storage.target",
    "series": "load",
    "sum": True,
    "where": {"load_count": 2},
}


def table(*points: dict[str, float], noise: float = 0.01) -> Measurements:
    """Points with the values of their loads in GB/s; the drives of point n are those of node n."""
    parts = []
    for number, loads in enumerate(points):
        for role, rate in loads.items():
            name, target = role.split()
            of = {"experiment": "e", "point": f"point{number}", "load": name, "target": target}
            parts.append(rows(lambda i, j, rate=rate: rate * GB, [0], [0], spread=noise, **of))
    return Measurements.from_table(tidy_table(*parts))


# Each load alone, then two pairs: one below the larger load alone, one above it.
ALONE = [{"memory node0": 40.0}, {"storage node0drives": 10.0}, {"storage node1drives": 25.0}]
BELOW = {"memory node0": 28.0, "storage node0drives": 8.0}
ABOVE = {"memory node0": 35.0, "storage node1drives": 25.0}


def selected(measured: Measurements):
    spec = FigureSpec.from_yaml_entry("e", ENTRY)
    return select_figure_data(spec, measured, Topology())


def medians(measured: Measurements) -> dict[tuple[str, str], float]:
    marks = selected(measured).marks
    return {
        (mark["series"], mark["x"]): round(mark["median"] / GB, 3)
        for mark in marks.to_dict("records")
    }


def caption(measured: Measurements) -> str:
    data = selected(measured)
    return figure_caption(data, find_round_value_limits(BANDWIDTH, [data]).scale)


def test_a_ratio_within_its_interval_of_one_is_not_below():
    equal = {"memory node0": 30.0, "storage node0drives": 9.99}
    measured = table(*ALONE, equal)
    second = measured.rows["point"].eq("point3") & measured.rows["replicate"].eq(2)
    values = measured.rows["value"] * (1.0 + 0.02 * second)
    assert "in 0 of 1 case." in caption(measured.with_columns(value=values))


def test_a_ratio_that_is_barely_below_one_is_not_counted():
    nearly = {"memory node0": 29.9, "storage node0drives": 9.9}  # 39.8 of 40: noise of many cases
    assert "in 0 of 1 case." in caption(table(*ALONE, nearly))


def test_the_larger_load_is_the_one_with_the_larger_median():
    alone = [{"memory node0": 40.0}, {"storage node0drives": 39.5}]
    measured = table(*alone, BELOW)
    # One replicate of the smaller load is above the larger load.
    lucky = measured.rows["point"].eq("point1") & measured.rows["replicate"].eq(3)
    values = measured.rows["value"].mask(lucky, 50 * GB)
    marks = selected(measured.with_columns(value=values)).marks
    [larger] = marks[marks["series"] == "larger_load_alone"].to_dict("records")
    assert larger["maximum"] == pytest.approx(40.4 * GB)


def test_a_pair_with_a_failed_load_has_no_sum():
    measured = table(*ALONE, BELOW, ABOVE)
    failed = measured.rows["point"].eq("point3") & measured.rows["load"].eq("storage")
    status = measured.rows["status"].mask(failed, "failed")
    found = medians(measured.with_columns(status=status))
    assert ("sum", "node0drives") not in found
    assert ("sum", "node1drives") in found


def test_a_load_that_was_not_measured_alone_leaves_its_pairs_without_a_bound():
    found = medians(table(*ALONE[:2], BELOW, ABOVE))
    assert ("larger_load_alone", "node0drives") in found
    assert ("larger_load_alone", "node1drives") not in found
    assert ("sum", "node1drives") in found
