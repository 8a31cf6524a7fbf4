"""Figures of a tidy table and a topology as JSON, for tests."""

from __future__ import annotations

from chaosity.figures import figure_files, select
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import topology_from_json

# Folder -> the figures that `draw` drew into it.
DRAWN = {}


def draw(experiments, tidy, topology, folder):
    measurements = Measurements.from_table(tidy)
    DRAWN[folder] = figure_files.draw_figures(
        experiments, measurements, topology_from_json(topology), folder
    )
    return DRAWN[folder]


def select_figure_data(spec, tidy, topology):
    measurements = Measurements.from_table(tidy)
    return select.select_figure_data(spec, measurements, topology_from_json(topology))
