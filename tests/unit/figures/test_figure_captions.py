"""Limits of colours; transcripts show captions."""

from __future__ import annotations

import numpy as np
import pytest

from chaosity.figures.figure_data import FigureSpec, find_round_value_limits
from chaosity.figures.select import select_figure_data
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import Topology
from table_rows import BANDWIDTH, rows, table

BASE = {"name": "f", "title": "t", "load": "memory", "metric": BANDWIDTH}
NODES = {**BASE, "kind": "heatmap", "rows": "initiator", "columns": "target"}


def data_of(entry, measured, experiment="memory_bandwidth"):
    spec = FigureSpec.from_yaml_entry(experiment, entry)
    return select_figure_data(spec, measured, Topology())


def matrix(value, nodes=4, **columns):
    return Measurements.from_table(table(rows(value, range(nodes), range(nodes), **columns)))


def test_colour_limits_are_round_and_wide_enough_to_keep_noise_quiet():
    data = data_of(NODES, matrix(lambda i, j: 40e9, noise=0.01))
    limits = find_round_value_limits(BANDWIDTH, [data])
    values = data.marks["median"].to_numpy()
    assert limits.low <= 0.75 * values.max()
    assert limits.low <= values.min() <= values.max() <= limits.high
    assert limits.high == pytest.approx(np.round(limits.high, -8))
