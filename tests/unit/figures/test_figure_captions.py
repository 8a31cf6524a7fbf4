"""What captions count and compare; their words are in the golden files."""

from __future__ import annotations

import re

import numpy as np
import pytest

from chaosity.figures.figure_captions import figure_caption
from chaosity.figures.figure_data_and_value_limits import (
    find_round_value_limits,
    select_figure_data,
)
from chaosity.figures.figure_spec import FigureSpec
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale
from machines import planned
from table_rows import BANDWIDTH, rows, table

BASE = {"name": "f", "title": "t", "load": "memory", "metric": BANDWIDTH}
NODES = {**BASE, "kind": "heatmap", "rows": "initiator", "columns": "target"}
BESIDE = {**BASE, "kind": "lines", "x": "drives", "series": "placement", "panels": "storage_node"}
LOSS = {**BASE, "kind": "bars", "x": "initiator", "series": "target", "loss_to": "node0"}


def data_of(entry, measured, experiment="memory_bandwidth"):
    spec = FigureSpec.from_yaml_entry(experiment, entry)
    return select_figure_data(spec, measured, Topology())


def caption(entry, measured, experiment="memory_bandwidth"):
    data = data_of(entry, measured, experiment)
    return figure_caption(data, choose_scale(BANDWIDTH, data.marks["median"]))


def matrix(value, nodes=4, **columns):
    return Measurements.from_table(table(rows(value, range(nodes), range(nodes), **columns)))


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_heatmap_caption_has_best_worst_and_ratios_by_relation():
    text = caption(NODES, matrix(lambda i, j: 40e9 if i == j else 30e9, noise=0.001))
    best, *_ = numbers(text)
    assert best == pytest.approx(40.0, abs=0.2)
    assert "25 % less than the best" in text
    [ratio] = re.findall(r"(0\.\d+) \(95 % interval", text)
    assert float(ratio) == 0.75


def test_noise_is_not_called_a_difference():
    text = caption(NODES, matrix(lambda i, j: 40e9, noise=0.02))
    assert "no difference between these cells is detected" in text
    assert "as a ratio to" not in text


def test_line_caption_has_the_change_and_the_worst_panel():
    host = planned("two_packages", all_points=True, experiments=["interference"])
    true = host.true_table.where(load="memory")
    text = caption(BESIDE, host.table(1), "interference")
    same = true.rows[true.rows["point"].str.startswith("memory=node0+node0+triad.storage=node0")]
    values = same.drop_duplicates("point")["value"]
    factor = values.min() / values.max()
    assert f"From number of drives 0 to 2, bandwidth changes by the factor {factor:.1f}" in text
    assert "in the worst panel, node" in text


def test_captions_count_marks_without_a_value():
    single = matrix(lambda i, j: 40e9, nodes=1)
    assert "n = 3 (node0 -> node0)" in caption(NODES, single)
    failed = matrix(lambda i, j: None, nodes=1)
    assert "1 of 1 cell has no value: 1 failed." in caption(NODES, failed)
    several = matrix(lambda i, j: None if (i, j) == (1, 2) else 40e9)
    status = several.rows["status"].mask(several.rows["point"] == "memory=node3+node3", "missing")
    text = caption(NODES, several.with_columns(status=status))
    assert "2 of 16 cells have no value: 1 failed, 1 not measured yet." in text


def test_colour_limits_are_round_and_wide_enough_to_keep_noise_quiet():
    data = data_of(NODES, matrix(lambda i, j: 40e9, noise=0.01))
    limits = find_round_value_limits(BANDWIDTH, [data])
    values = data.marks["median"].to_numpy()
    assert limits.low <= 0.75 * values.max()
    assert limits.low <= values.min() <= values.max() <= limits.high
    assert limits.high == pytest.approx(np.round(limits.high, -8))


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([0.6, 0.6, 0.6], "40 % less for"),
        ([1.1, 1.1, 1.1], "10 % more for "),
        ([0.99, 1.02, 1.0], "no difference detected at n = 3"),
    ],
)
def test_bar_caption_has_the_difference_to_the_reference(shares, words):
    alone = table(rows(lambda i, j: 40e9, [0], [0]))
    beside = alone.assign(point="beside", target="node1", value=alone["value"] * shares)
    tables = map(Measurements.from_table, (alone, beside))
    assert words in caption(LOSS, Measurements.concatenated(tables))
