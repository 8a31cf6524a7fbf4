"""Curves over a measured quantity, such as latency over the bandwidth beside it, and scatters.

Their x has no places: each mark stands where it was measured, with the intervals of both values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.figures import style
from chaosity.figures.axis_values import axis_title
from chaosity.figures.figure_data import FigureData
from chaosity.figures.mark_texts import Limits, hover
from chaosity.figures.panel_grid import (
    Look,
    Panel,
    draw_panels,
    draw_series,
    look_of,
    series_legend,
    series_names,
)
from chaosity.figures.svg_marks import IGNORE
from chaosity.units import Scale, choose_scale, format_count, metric_words

_MOST_TICKS = 10
# Width of a group of marks that have one x: of the whole axis, and of the gap to the next value.
_WIDEST_SPREAD, _SHARE_OF_GAP = 0.12, 0.8


def draw_curve(cells: FigureData, limits: Limits) -> tuple[Figure, dict[str, str]]:
    """Draw a curve or a scatter.

    Args:
        cells: with plotted positions and perhaps the axes "series" and "panels".
        limits: of the value axis.

    Returns:
        The figure, and the text that hovers over each mark by the mark's id in the SVG.
    """
    across = x_scale_of(cells)
    texts: dict[str, str] = {}
    figure = draw_panels(
        cells, limits, x_title=x_title(cells, across), legend=_legend(cells), upright=0.0,
        fill=lambda panel: _fill(panel, cells, limits, across, texts),
    )  # fmt: skip
    return figure, texts


def x_scale_of(cells: FigureData) -> Scale:
    """The unit in which positions are shown."""
    return choose_scale(str(cells.x_metric), cells.cells[["x", "x_high"]].to_numpy(float).ravel())


def x_title(cells: FigureData, scale: Scale) -> str:
    """Title of the axis across: "Traffic (GB/s)"."""
    metric, column = str(cells.x_metric), str(cells.spec.x)
    words = cells.spec.x_title
    if words is None and metric != column:
        words = f"{column.split('.')[0]} {metric_words(metric)}"
    words = words or axis_title(column, ())
    words = words[:1].upper() + words[1:]
    if cells.spec.kind == "scatter" and cells.cells["x"].duplicated().any():
        words += ", marks of one value side by side"
    return f"{words} ({scale.symbol})" if scale.symbol else words


def _legend(cells: FigureData) -> list[tuple[str, Look]]:
    entries = series_legend(cells)
    if cells.spec.kind == "scatter":
        entries = [(words, _point_look(look)) for words, look in entries]
    if entries and cells.cells["series"].isna().any():
        entries.append(("nothing beside it", _idle_look()))
    return entries


def _point_look(look: Look) -> dict[str, Any]:
    """A series without its line, hollow so that marks that meet can be told."""
    bare = {key: value for key, value in look.items() if key != "dashes"}
    return {**bare, "linestyle": "none", "mfc": "white"}


def _idle_look() -> dict[str, Any]:
    return {"color": style.GREY, "marker": "o", "linestyle": "none", "mfc": "white"}


def _fill(
    panel: Panel, cells: FigureData, limits: Limits, across: Scale, texts: dict[str, str]
) -> None:
    """All series of one panel."""
    axes, table = panel.axes, panel.of(cells.cells)
    _place_axis(panel, cells, across)
    joined = cells.spec.kind == "curve"
    if not joined and not across.symbol:
        table = _side_by_side(table)
    lone = table[table["series"].isna()] if "series" in cells.axes else table.iloc[:0]
    for index, name in enumerate(series_names(cells)):
        chosen = table if name is None else table[table["series"] == name]
        own = _marks(chosen, across)
        look = look_of(index) if joined else _point_look(look_of(index))
        if joined and own and not lone.empty:  # the line begins where nothing runs beside
            start = _marks(lone, across)[:1]
            factor = limits.scale.factor
            axes.plot(
                [x for x, _ in start + own[:1]],
                np.array([row["median"] for _, row in start + own[:1]]) / factor,
                **{**look, "marker": ""}, lw=1.4, zorder=2,
            )  # fmt: skip
        identity = f"mark-{panel.number}-{index}"
        draw_series(axes, own, look, limits.scale.factor, identity)
        texts.update(_hovers(own, cells, limits, across, identity))
    marks, identity = _marks(lone, across), f"mark-{panel.number}-alone"
    draw_series(axes, marks, _idle_look(), limits.scale.factor, identity)
    texts.update(_hovers(marks, cells, limits, across, identity))
    failed = int((table["status"] == "failed").sum())
    if failed:
        axes.text(
            0.99, 0.03, f"{format_count(failed, 'point')} failed", transform=axes.transAxes, ha="right",
            size=style.SMALL_POINTS, color=style.FAILED, gid=IGNORE,
        )  # fmt: skip


def _side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Marks of one x beside one another, in order of their values, around their true place."""
    values = np.sort(table.loc[table["status"] == "valid", "x"].dropna().unique())
    if not len(values):
        return table
    spread = values[-1] - values[0] or 1.0
    nearest = float(np.diff(values).min()) if len(values) > 1 else spread
    width = min(_WIDEST_SPREAD * spread, _SHARE_OF_GAP * nearest)
    ranks = table.groupby("x")["median"].rank(method="first")
    sizes = table.groupby("x")["median"].transform("count")
    aside = (ranks - (sizes + 1.0) / 2.0) / sizes.clip(lower=2.0)
    return table.assign(x=table["x"] + width * aside.fillna(0.0), true_x=table["x"])


def _marks(table: pd.DataFrame, across: Scale) -> list[tuple[float, dict[str, Any]]]:
    """Marks with a value, in order of their position, positions in the unit of the axis."""
    valid = table[(table["status"] == "valid") & table["x"].notna()].sort_values(
        ["x", "median"], kind="stable"
    )
    places = ["x", "x_low", "x_high"]
    shown = valid.assign(**{name: valid[name] / across.factor for name in places})
    if not across.symbol:  # a column and nothing that was measured: no interval
        shown = shown.assign(x_low=math.nan, x_high=math.nan)
    return [(row["x"], row) for row in shown.to_dict("records")]


def _hovers(
    marks: list[tuple[float, dict[str, Any]]],
    cells: FigureData,
    limits: Limits,
    across: Scale,
    identity: str,
) -> dict[str, str]:
    """What each mark is: "pu0 -> node1, copy, beside 41.2 GB/s: 120 ns, ..."."""
    measured = str(cells.x_metric) != str(cells.spec.x)
    column = str(cells.spec.x).split(".")[-1].replace("_", " ")
    texts = {}
    for number, (x, row) in enumerate(marks):
        value = row.get("true_x", x * across.factor)
        place = across.text(value) if across.symbol else f"{value:g}"
        where = f"{'beside' if measured else column} {place}"
        texts[f"{identity}-{number}"] = hover(row, cells, limits.scale, where)
    return texts


def _place_axis(panel: Panel, cells: FigureData, across: Scale) -> None:
    """The axis across: from zero for what was measured, else around the values."""
    axes = panel.axes
    shown = ["x", "x_high"] if across.symbol else ["x"]
    known = cells.cells.loc[cells.cells["status"] == "valid", shown].to_numpy(float)
    known = known[np.isfinite(known)] / across.factor
    high = float(known.max()) if len(known) else 1.0
    ticks = sorted(set(known))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if across.symbol:
        axes.set_xlim(-0.02 * high, 1.05 * high or 1.0)
    elif ticks:
        spread = ticks[-1] - ticks[0] or 1.0
        axes.set_xlim(ticks[0] - 0.09 * spread, ticks[-1] + 0.09 * spread)
        if len(ticks) <= _MOST_TICKS:
            axes.xaxis.set_major_locator(FixedLocator(ticks))
