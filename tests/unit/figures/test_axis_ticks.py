"""Ticks of a logarithmic axis."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from chaosity.figures.axis_order_and_labels import Axis, make_axis_value
from chaosity.figures.figure_data_and_value_limits import FigureData, ShownValueRange
from chaosity.figures.figure_spec import FigureSpec
from chaosity.figures.line_curve_and_scatter_charts import _label_powers
from chaosity.figures.panel_grid_and_series import Panel
from chaosity.units import choose_scale


def test_no_tick_lies_beyond_the_values_where_its_label_would_be_cut_off():
    values = tuple(make_axis_value(2**power, column="bytes") for power in (14, 34))
    axis = Axis("bytes", "Working set", values, ())
    spec = FigureSpec("", "sizes", "lines", "Sizes", ("chase",), "latency_ns", x_scale="log2")
    data = FigureData(spec, {"x": axis}, pd.DataFrame(), pd.DataFrame())
    axes = Figure().add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(12.8, 35.2)
    limits = ShownValueRange(0.0, 1.0, choose_scale("latency_ns", [1.0]))
    positions = {values[0].name: 14.0, values[1].name: 34.0}
    _label_powers(Panel(data, limits, axes, None, 0, True, {}), positions, width=2.0)
    ticks = [*axes.get_xticks(), *axes.get_xticks(minor=True)]
    assert min(ticks) == 14.0 and max(ticks) == 34.0
    assert "32 MiB" in [label.get_text() for label in axes.get_xticklabels()]
