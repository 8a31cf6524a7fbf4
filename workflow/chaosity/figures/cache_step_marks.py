"""Mark the sizes at which latency steps up, beside the sizes of the caches by hwloc."""

from __future__ import annotations

import math
from functools import partial

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.figure_data_and_value_limits import FigureData
from chaosity.figures.panel_grid_and_series import LineStyle, Panel
from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.units import format_binary_bytes

STEP_STYLE = LineStyle(color=style.GREY, marker="", lw=0.9, zorder=1)
CACHE_STYLE = LineStyle(color=style.GREY, marker="", dashes=(1, 2), lw=0.9, zorder=1)


def cache_step_legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend entries of the steps and of the caches that hwloc knows."""
    steps = [("latency steps up, between the grey sizes", STEP_STYLE)] if data.steps else []
    return steps + ([("size of a cache by hwloc", CACHE_STYLE)] if data.cache_bytes else [])


def draw_cache_steps(panel: Panel) -> None:
    """Draw a solid line at each step, and a dotted line at the size of each cache by hwloc."""
    axes, low, high = panel.axes, *panel.axes.get_xlim()
    write = partial(axes.text, size=style.SMALL_POINTS, color=style.GREY, gid=IGNORE)
    write = partial(write, transform=axes.get_xaxis_transform())
    for step in panel.data.steps:
        below, above, end = map(
            math.log2, (step.below_bytes, step.above_bytes, step.end_bytes.median)
        )
        axes.axvspan(below, above, color=style.RULE, alpha=0.4, lw=0)
        axes.axvline(end, **STEP_STYLE)
        text = f" {format_binary_bytes(step.end_bytes.median)}"
        write(end, 0.02, text, ha="left", va="bottom")
    for name, size in panel.data.cache_bytes:
        if low <= math.log2(size) <= high:
            axes.axvline(math.log2(size), **CACHE_STYLE)
            write(math.log2(size), 0.98, f"{name} ", ha="right", va="top")
