"""Test figures with the sum of two loads, and with the larger load alone."""

from __future__ import annotations

import pandas as pd
import pytest
import synthetic
from table_figures import draw, select_figure_data

from chaosity.errors import UserError
from chaosity.figures.figure_captions import figure_caption
from chaosity.figures.figure_data_and_value_limits import find_round_value_limits
from chaosity.figures.figure_spec import FigureSpec

GB = 1e9
TOPOLOGY = synthetic.small().topology()
ENTRY = {
    "name": "together",
    "kind": "lines",
    "title": "Two loads",
    "load": ["memory", "storage"],
    "metric": synthetic.BANDWIDTH,
    "x": "storage.target",
    "series": "load",
    "sum": True,
    "where": {"load_count": 2},
}


def table(*points: dict[str, float], noise: float = 0.01) -> pd.DataFrame:
    """Points with the values of their loads in GB/s; the drives of point n are those of node n."""
    tidy = synthetic.small().tidy()
    rows = tidy[tidy["experiment"] == "memory_bandwidth"]
    rows = rows[rows["point"] == rows["point"].iloc[0]].reset_index(drop=True)
    parts = []
    for number, loads in enumerate(points):
        for role, rate in loads.items():
            name, target = role.split()
            values = rate * GB * (1 + noise * (rows["replicate"] - 2))
            parts.append(
                rows.assign(
                    experiment="e",
                    point=f"point{number}",
                    load=name,
                    initiator="node0",
                    target=target,
                    value=values,
                )
            )
    return pd.concat(parts, ignore_index=True)


# Each load alone, then two pairs: one below the larger load alone, one above it.
ALONE = [{"memory node0": 40.0}, {"storage node0drives": 10.0}, {"storage node1drives": 25.0}]
BELOW = {"memory node0": 28.0, "storage node0drives": 8.0}
ABOVE = {"memory node0": 35.0, "storage node1drives": 25.0}


def selected(tidy: pd.DataFrame):
    return select_figure_data(FigureSpec.from_yaml_entry("e", ENTRY), tidy, TOPOLOGY)


def medians(tidy: pd.DataFrame) -> dict[tuple[str, str], float]:
    marks = selected(tidy).marks
    return {
        (mark["series"], mark["x"]): round(mark["median"] / GB, 3)
        for mark in marks.to_dict("records")
    }


def caption(tidy: pd.DataFrame) -> str:
    data = selected(tidy)
    return figure_caption(data, find_round_value_limits(synthetic.BANDWIDTH, [data]).scale)


def test_each_pair_has_its_sum_and_the_larger_load_alone():
    found = medians(table(*ALONE, BELOW, ABOVE))
    assert found["sum", "node0drives"] == 36.0
    assert found["sum", "node1drives"] == 60.0
    assert found["larger_load_alone", "node0drives"] == 40.0
    assert found["larger_load_alone", "node1drives"] == 40.0
    assert found["memory", "node0drives"] == 28.0


def test_the_caption_says_where_the_sum_stays_below_and_by_how_much():
    said = caption(table(*ALONE, BELOW, ABOVE))
    assert said.startswith(
        "The sum of memory and storage is more than 1 % below the larger load alone in 1 of 2 cases"
        " (node 0)."
    )
    assert "Ratio of the sum to the larger load alone: 0.90 (95 % interval 0.90 to 0.90" in said
    assert "to 1.50 (95 % interval 1.50 to 1.50; node 1)." in said


def test_a_ratio_within_its_interval_of_one_is_not_below():
    equal = {"memory node0": 30.0, "storage node0drives": 9.99}
    tidy = table(*ALONE, equal)
    second = tidy["point"].eq("point3") & tidy["replicate"].eq(2)
    tidy.loc[second, "value"] *= 1.02
    assert "in 0 of 1 case." in caption(tidy)


def test_a_ratio_that_is_barely_below_one_is_not_counted():
    nearly = {"memory node0": 29.9, "storage node0drives": 9.9}  # 39.8 of 40: noise of many cases
    assert "in 0 of 1 case. Ratio" in caption(table(*ALONE, nearly))


def test_the_larger_load_is_the_one_with_the_larger_median():
    alone = [{"memory node0": 40.0}, {"storage node0drives": 39.5}]
    tidy = table(*alone, BELOW)
    # One replicate of the smaller load is above the larger load.
    lucky = tidy["point"].eq("point1") & tidy["replicate"].eq(3)
    tidy.loc[lucky, "value"] = 50 * GB
    marks = selected(tidy).marks
    [larger] = marks[marks["series"] == "larger_load_alone"].to_dict("records")
    assert larger["maximum"] == pytest.approx(40.4 * GB)


def test_a_pair_with_a_failed_load_has_no_sum():
    tidy = table(*ALONE, BELOW, ABOVE)
    failed = tidy["point"].eq("point3") & tidy["load"].eq("storage")
    tidy.loc[failed, "status"] = "failed"
    found = medians(tidy)
    assert ("sum", "node0drives") not in found
    assert ("sum", "node1drives") in found


def test_a_load_that_was_not_measured_alone_leaves_its_pairs_without_a_bound():
    found = medians(table(*ALONE[:2], BELOW, ABOVE))
    assert ("larger_load_alone", "node0drives") in found
    assert ("larger_load_alone", "node1drives") not in found
    assert ("sum", "node1drives") in found


def test_roles_do_not_matter_for_a_load_alone():
    renamed = [{"reader node0": 40.0}, *ALONE[1:]]
    assert medians(table(*renamed, BELOW))["larger_load_alone", "node0drives"] == 40.0


def test_the_figure_is_drawn_without_lines_between_names(tmp_path):
    [file] = draw(
        [{"experiment": "e", "figures": [ENTRY]}], table(*ALONE, BELOW), TOPOLOGY, tmp_path
    )
    assert file.problem is None
    assert file.marks == 4
    rows = pd.read_csv(tmp_path / file.csv)
    assert list(rows["load"]) == ["memory", "storage", "sum", "larger_load_alone"]


@pytest.mark.parametrize("change", [{"series": "placement"}, {"metric": "latency_ns"}])
def test_only_rates_of_loads_have_a_sum(change):
    with pytest.raises(UserError, match="figure together"):
        FigureSpec.from_yaml_entry("e", {**ENTRY, **change})
