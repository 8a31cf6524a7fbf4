from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import synthetic
from table_figures import select_figure_data

from chaosity.figures.figure_captions import figure_caption
from chaosity.figures.figure_data_and_value_limits import find_round_value_limits
from chaosity.figures.figure_spec import FigureSpec
from chaosity.units import choose_scale

NODES = {
    "name": "nodes",
    "kind": "heatmap",
    "title": "t",
    "load": "memory",
    "metric": synthetic.BANDWIDTH,
    "rows": "initiator",
    "columns": "target",
    "where": {"initiator_kind": "node", "kernel": "triad"},
}
BESIDE = {
    "name": "beside",
    "kind": "lines",
    "title": "t",
    "load": "memory",
    "metric": synthetic.BANDWIDTH,
    "x": "drives",
    "series": "placement",
    "panels": "storage_node",
}


def machine(**keys):
    drives = {0: 2, 1: 2, 2: 2, 3: 2}
    return synthetic.Machine("h", ((0, 1), (2, 3)), drives, **{"noise": 0.001, **keys})


def caption(entry, found, experiment="memory_bandwidth"):
    data = select_figure_data(
        FigureSpec.from_yaml_entry(experiment, entry), found.tidy(), found.topology()
    )
    return figure_caption(data, choose_scale(entry["metric"], data.marks["median"]))


def test_heatmap_caption_has_best_worst_and_ratios_by_relation():
    text = caption(NODES, machine())
    assert text.startswith("Best: 41.")
    assert "; 33 % less than the best)" in text
    assert ", 95 % interval 4" in text
    assert "Bandwidth as a ratio to the same node: 0.97 (95 % interval 0.97 to" in text
    assert ") for another node of the package and 0.67 (" in text
    assert text.endswith("for another package.")


def test_noise_is_not_called_a_difference():
    found = machine(noise=0.02)
    found.memory_rate = lambda initiator, target, share=1.0: 40e9 * share
    text = caption(NODES, found)
    assert text.startswith("16 cells have 3")
    assert text.endswith(" GB/s, n = 3; no difference between these cells is detected.")
    assert "as a ratio to" not in text


def test_line_caption_has_the_change_and_the_worst_panel():
    text = caption(BESIDE, machine(), "interference")
    assert "From number of drives 0 to 2, bandwidth changes by the factor 0.70 (" in text
    assert "95 % interval 0.69 to 0.70; in the worst panel, node" in text
    assert ") for same node, " in text


def test_caption_of_a_single_value():
    text = caption(NODES, synthetic.small())
    assert text.startswith("4")
    assert text.endswith("n = 3 (node0 -> node0).")


def test_caption_without_a_valid_value_counts_the_marks_by_status():
    found = synthetic.small()
    found.failed = {"memory=node0+node0+triad": "killed"}
    assert caption(NODES, found) == "1 of 1 cell has no value: 1 failed."


def test_caption_counts_the_marks_without_a_value():
    found = machine(failed={"memory=node1+node2+triad": "killed"})
    found.missing = ("memory=node3+node3+triad",)
    text = caption(NODES, found)
    assert text.endswith("2 of 16 cells have no value: 1 failed, 1 not measured yet.")


def test_colour_limits_are_round_and_wide_enough_to_keep_noise_quiet():
    found = machine(noise=0.01)
    found.memory_rate = lambda initiator, target, share=1.0: 40e9 * share
    data = select_figure_data(
        FigureSpec.from_yaml_entry("memory_bandwidth", NODES), found.tidy(), found.topology()
    )
    limits = find_round_value_limits(synthetic.BANDWIDTH, [data])
    values = data.marks["median"].to_numpy()
    assert limits.low <= 0.75 * values.max()
    assert limits.low <= values.min() <= values.max() <= limits.high
    assert limits.high == pytest.approx(np.round(limits.high, -8))


def loss_of(device_rate, **keys):
    """Return the caption of two bars: cores alone, and cores beside a device."""
    found = machine(**keys)
    rows = found.tidy()
    rows = rows[
        (rows["experiment"] == "memory_bandwidth") & (rows["point"] == rows["point"].iloc[0])
    ]
    beside = rows.assign(point="beside", value=rows["value"] * device_rate, target="node1")
    both = pd.concat([rows, beside], ignore_index=True)
    entry = {
        "name": "loss",
        "kind": "bars",
        "title": "t",
        "load": "memory",
        "metric": synthetic.BANDWIDTH,
        "x": "initiator",
        "series": "target",
        "loss_to": "node0",
    }
    data = select_figure_data(
        FigureSpec.from_yaml_entry("memory_bandwidth", entry), both, found.topology()
    )
    return figure_caption(data, choose_scale(entry["metric"], data.marks["median"]))


def test_bar_caption_has_the_difference_to_the_reference():
    text = loss_of(0.6)
    assert text.startswith(
        "Bandwidth compared with node 0: 40 % less for PU 0 with node 1, ratio 0.60"
    )
    assert "(95 % interval 0.60 to 0.60)" in text
    assert "10 % more for " in loss_of(1.1)
    assert "no difference detected at n = 3" in loss_of(np.array([0.99, 1.02, 1.0]))
