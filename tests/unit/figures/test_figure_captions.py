"""Limits of colours; transcripts show captions."""

from __future__ import annotations

import numpy as np
import pytest

from chaosity.figures.captions import figure_caption
from chaosity.figures.figure_data import FigureSpec, find_round_value_limits
from chaosity.figures.select import select_figure_data
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from chaosity.units import choose_scale
from table_rows import BANDWIDTH, rows, table

BASE = {"name": "f", "title": "t", "load": "memory", "metric": BANDWIDTH}
NODES = {**BASE, "kind": "heatmap", "rows": "initiator", "columns": "target"}
LOSS = {**BASE, "kind": "bars", "x": "initiator", "series": "target", "loss_to": "node0"}


def data_of(entry, measured, experiment="memory_bandwidth"):
    spec = FigureSpec.from_yaml_entry(experiment, entry)
    return select_figure_data(spec, measured, Topology())


def caption(entry, measured, experiment="memory_bandwidth"):
    data = data_of(entry, measured, experiment)
    return figure_caption(data, choose_scale(BANDWIDTH, data.marks["median"]))


def matrix(value, nodes=4, **columns):
    return Measurements.from_table(table(rows(value, range(nodes), range(nodes), **columns)))


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
        ([0.6, 0.6, 0.6], ": 0.60 ("),
        ([1.1, 1.1, 1.1], ": 1.10 ("),
        ([0.99, 1.02, 1.0], "no difference detected at n = 3"),
    ],
)
def test_bar_caption_has_the_difference_to_the_reference(shares, words):
    alone = table(rows(lambda i, j: 40e9, [0], [0]))
    beside = alone.assign(point="beside", target="node1", value=alone["value"] * shares)
    tables = map(Measurements.from_table, (alone, beside))
    assert words in caption(LOSS, Measurements.concatenated(tables))
