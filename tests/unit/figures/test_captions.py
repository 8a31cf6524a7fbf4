from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import synthetic

from chaosity.figures.captions import caption_of
from chaosity.figures.figure_data import select_data
from chaosity.figures.figure_spec import FigureSpec
from chaosity.figures.mark_texts import limits_of
from chaosity.units import choose_scale

NODES = {
    "name": "nodes", "kind": "heatmap", "title": "t", "load": "memory",
    "metric": synthetic.BANDWIDTH, "rows": "initiator", "columns": "target",
    "where": {"initiator_kind": "node", "kernel": "triad"},
}  # fmt: skip
BESIDE = {
    "name": "beside", "kind": "lines", "title": "t", "load": "memory",
    "metric": synthetic.BANDWIDTH, "x": "drives", "series": "placement", "panels": "storage_node",
}  # fmt: skip


def machine(**keys):
    drives = {0: 2, 1: 2, 2: 2, 3: 2}
    return synthetic.Machine("h", ((0, 1), (2, 3)), drives, **{"noise": 0.001, **keys})


def said(entry, found, experiment="memory_bandwidth"):
    cells = select_data(FigureSpec.of(experiment, entry), found.tidy(), found.topology())
    return caption_of(cells, choose_scale(entry["metric"], cells.cells["median"]))


def test_a_map_says_best_worst_and_what_distance_costs():
    text = said(NODES, machine())
    assert text.startswith("Best is node")
    assert "33 % less" in text
    assert "another node of the package gives 0.97 times as much (95 % interval 0.97 to" in text
    assert "another package gives 0.67 times as much" in text


def test_noise_is_not_called_a_difference():
    found = machine(noise=0.02)
    found.memory_rate = lambda initiator, target, share=1.0: 40e9 * share
    text = said(NODES, found)
    assert text.startswith("No difference between the 16 marks detected at n = 3")
    assert "compared with" not in text


def test_lines_say_how_much_is_left_and_where_least():
    text = said(BESIDE, machine(), "interference")
    assert "With the number of drives going from 0 to 2, bandwidth goes to 0.70 times" in text
    assert "same node; 95 % interval 0.69 to 0.70; worst panel: node" in text


def test_one_value_is_just_told():
    text = said(NODES, synthetic.small())
    assert text.startswith("One value: node0 -> node0 gives 4")
    assert text.endswith("n = 3.")


def test_nothing_valid_is_said():
    found = synthetic.small()
    found.failed = {"memory=node0+node0+triad": "killed"}
    assert said(NODES, found) == "No valid value: 1 mark failed or not measured."


def test_colour_limits_are_round_and_wide_enough_to_keep_noise_quiet():
    found = machine(noise=0.01)
    found.memory_rate = lambda initiator, target, share=1.0: 40e9 * share
    cells = select_data(FigureSpec.of("memory_bandwidth", NODES), found.tidy(), found.topology())
    limits = limits_of(synthetic.BANDWIDTH, [cells])
    values = cells.cells["median"].to_numpy()
    assert limits.low <= 0.75 * values.max()
    assert limits.low <= values.min() <= values.max() <= limits.high
    assert limits.high == pytest.approx(np.round(limits.high, -8))


def loss_of(device_rate, **keys):
    """What bars of the cores say, alone and beside a device, of three replicates."""
    found = machine(**keys)
    rows = found.tidy()
    rows = rows[
        (rows["experiment"] == "memory_bandwidth") & (rows["point"] == rows["point"].iloc[0])
    ]
    beside = rows.assign(point="beside", value=rows["value"] * device_rate, target="node1")
    both = pd.concat([rows, beside], ignore_index=True)
    entry = {
        "name": "loss", "kind": "bars", "title": "t", "load": "memory",
        "metric": synthetic.BANDWIDTH, "x": "initiator", "series": "target", "loss_to": "node0",
    }  # fmt: skip
    cells = select_data(FigureSpec.of("memory_bandwidth", entry), both, found.topology())
    return caption_of(cells, choose_scale(entry["metric"], cells.cells["median"]))


def test_bars_tell_what_is_lost_beside_another():
    text = loss_of(0.6)
    assert "node 1 has 40 % less (95 % interval of the ratio 0.60 to 0.60)" in text
    assert "has 10 % more" in loss_of(1.1)
    assert "which is no difference at n = 3" in loss_of(np.array([0.99, 1.02, 1.0]))
