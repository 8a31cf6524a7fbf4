"""Mark the sizes at which latency steps up, beside the sizes of the caches by hwloc."""

from __future__ import annotations

import math
from functools import partial

from chaosity.figures import figure_style_header_and_legends as style
from chaosity.figures.figure_data_and_value_limits import FigureData
from chaosity.figures.panel_grid_and_series import LineStyle, Panel
from chaosity.figures.svg_hover_texts import IGNORE
from chaosity.statistics.latency_steps import RISE_PER_DOUBLING, LatencyStep
from chaosity.text_templates import write_text
from chaosity.units import format_binary_bytes, format_percent, join_with_and

STEP_STYLE = LineStyle(color=style.GREY, marker="", lw=0.9, zorder=1)
CACHE_STYLE = LineStyle(color=style.GREY, marker="", dashes=(1, 2), lw=0.9, zorder=1)


def cache_step_legend(data: FigureData) -> list[tuple[str, LineStyle]]:
    """Return the legend entries of the steps and of the caches that hwloc knows."""
    steps = [("latency steps up, between the grey sizes", STEP_STYLE)] if data.steps else []
    return steps + ([("size of a cache by hwloc", CACHE_STYLE)] if data.cache_bytes else [])


def cache_steps_statement(data: FigureData) -> str:
    """Return the size and the levels of each step, and what hwloc says of the caches there."""
    texts = [_step_text(step, data) for step in data.steps]
    inside = {name for step in data.steps for name, _ in _caches_within(step, data)}
    missed = [
        f"{name} ({format_binary_bytes(size)})"
        for name, size in data.cache_bytes
        if name not in inside
    ]
    if missed:
        texts.append(f"No step of the latency belongs to {join_with_and(missed)}, as hwloc reports")
    if not data.steps:
        rise = format_percent(RISE_PER_DOUBLING - 1.0)
        texts.insert(0, f"No step is found: latency never rises by {rise} for a doubled size")
    return ". ".join(texts)


def _caches_within(step: LatencyStep, data: FigureData) -> list[tuple[str, int]]:
    """Return the caches whose sizes lie between the feet of a step."""
    return [cache for cache in data.cache_bytes if step.first_bytes <= cache[1] <= step.last_bytes]


def _step_text(step: LatencyStep, data: FigureData) -> str:
    """Return a step in a sentence: "L2 ends between 512 KiB and 1 MiB, at about 590 KiB (...)"."""
    caches = _caches_within(step, data)
    return write_text(
        "captions",
        "cache_step",
        step=step,
        names=[name for name, _ in caches],
        sizes=[format_binary_bytes(size) for _, size in caches],
        has_caches=bool(data.cache_bytes),
        metric=data.spec.metric,
    )


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
