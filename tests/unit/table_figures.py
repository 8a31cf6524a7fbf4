"""Figures of a tidy table and a topology as JSON, for tests."""

from __future__ import annotations

from chaosity.figures import draw_and_write_figures, figure_data_and_value_limits
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_json import topology_from_json

# Folder -> the figures that `draw` drew into it.
DRAWN = {}


def draw(experiments, tidy, topology, folder):
    measurements = Measurements.from_table(tidy)
    DRAWN[folder] = draw_and_write_figures.draw_figures(
        experiments, measurements, topology_from_json(topology), folder
    )
    return DRAWN[folder]


def select_figure_data(spec, tidy, topology):
    measurements = Measurements.from_table(tidy)
    return figure_data_and_value_limits.select_figure_data(
        spec, measurements, topology_from_json(topology)
    )
