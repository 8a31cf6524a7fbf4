"""Lines over a factor, one per series, in one panel or several with the same axes."""

from __future__ import annotations

import math
from itertools import pairwise

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from chaosity.errors import UserError
from chaosity.figures import style
from chaosity.figures.figure_data import Axis, FigureData
from chaosity.figures.mark_texts import Limits, hover, tick_label
from chaosity.figures.panel_grid import (
    Look,
    Panel,
    draw_panels,
    draw_series,
    look_of,
    panel_width,
    series_legend,
    series_names,
)
from chaosity.units import format_binary_bytes

_MOST_TICKS = 12
# Room around a label on a logarithmic axis, inches.
_LABEL_ROOM = 0.12


def draw_lines(cells: FigureData, limits: Limits) -> tuple[Figure, dict[str, str]]:
    """Draw lines with intervals.

    Args:
        cells: with the axis "x" and perhaps "series" and "panels".
        limits: of the value axis, which starts at zero unless it is logarithmic.

    Returns:
        The figure, and the text that hovers over each mark by the mark's id in the SVG.

    Raises:
        UserError: a logarithmic axis has something else than numbers above zero.
    """
    axis, width = cells.axes["x"], panel_width(cells)
    positions = _positions(cells)
    upright = 0.0 if cells.spec.x_scale != "linear" else _upright(axis, width)
    texts: dict[str, str] = {}

    def fill(panel: Panel) -> None:
        _fill(panel, cells, limits, positions, texts)
        if cells.spec.x_scale == "linear":
            _label_places(panel, axis, positions, bool(upright))
        else:
            _label_powers(panel, cells, positions, width)

    figure = draw_panels(
        cells, limits, x_title=axis.title, legend=_legend(cells), upright=upright, fill=fill
    )
    return figure, texts


def _upright(axis: Axis, width: float) -> float:
    """Height of upright tick labels when they do not fit side by side; 0 when they do."""
    labels = [tick_label(place, axis) for place in axis.places]
    widest = max(style.text_width(text, style.SMALL_POINTS) for text in labels)
    plain = all(place.kind == "number" for place in axis.places)
    return 0.0 if plain or widest * len(labels) < 0.9 * width else widest


def _legend(cells: FigureData) -> list[tuple[str, Look]]:
    """What stands in the legend: the series, what was measured alone, and failures."""
    entries = series_legend(cells)
    if entries and cells.cells["series"].isna().any():
        entries.append(("alone", {"color": style.GREY, "dashes": (2, 2), "marker": ""}))
    if entries and (cells.cells["status"] == "failed").any():
        entries.append(("failed", {"color": style.FAILED, "marker": "x", "linestyle": "none"}))
    entries += [(bound.title, _bound_look(index)) for index, bound in enumerate(cells.bounds)]
    return entries


def _bound_look(index: int) -> Look:
    """A bound has dashes of its own and no markers, for it is not what was measured here."""
    dashes = [look for look in style.DASHES if look]
    return {"color": style.GREY, "marker": "", "dashes": dashes[index % len(dashes)]}


def _draw_bounds(
    panel: Panel, cells: FigureData, factor: float, positions: dict[str, float]
) -> None:
    """Bounds as dashed lines; one that changes along x in the colour of its series."""
    names = series_names(cells)
    for index, bound in enumerate(cells.bounds):
        look = {**_bound_look(index), "lw": 1.1, "zorder": 1}
        level = None if bound.along_x else bound.at(panel.name, None, None)
        if level is not None:
            panel.axes.axhline(level / factor, **{k: v for k, v in look.items() if k != "marker"})
        for number, series in enumerate(names if bound.along_x else []):
            known = {name: bound.at(panel.name, series, name) for name in positions}
            points = sorted((positions[n], v / factor) for n, v in known.items() if v is not None)
            own = {"color": look_of(number)["color"]} if len(names) > 1 else {}
            # A single value is a short line, or it would not be seen.
            single = {"marker": "_", "markersize": 14} if len(points) == 1 else {}
            panel.axes.plot([x for x, _ in points], [y for _, y in points], **look | own | single)


def _fill(
    panel: Panel,
    cells: FigureData,
    limits: Limits,
    positions: dict[str, float],
    texts: dict[str, str],
) -> None:
    """All series of one panel."""
    axes, factor, number = panel.axes, limits.scale.factor, panel.number
    table = panel.of(cells.cells)
    low, high = min(positions.values()), max(positions.values())
    spread = high - low or 1.0
    axes.set_xlim(low - 0.06 * spread, high + 0.06 * spread)
    names = series_names(cells)
    lone = table[table["series"].isna()] if "series" in cells.axes else table.iloc[:0]
    _alone(axes, lone, factor)
    _draw_bounds(panel, cells, factor, positions)
    step = min((b - a for a, b in pairwise(sorted(set(positions.values())))), default=1.0)
    for index, name in enumerate(names):
        chosen = table if name is None else table[table["series"] == name]
        # Side by side where they meet: an interval behind another cannot be read.
        aside = (index - (len(names) - 1) / 2) * min(0.03, 0.12 / len(names)) * step
        points = [(positions[row["x"]] + aside, row) for row in chosen.to_dict("records")]
        points.sort(key=lambda pair: pair[0])
        draw_series(axes, points, look_of(index), factor, f"mark-{number}-{index}")
        for place, (_, row) in enumerate(points):
            texts[f"mark-{number}-{index}-{place}"] = hover(row, cells, limits.scale)
    points = [(positions[row["x"]], row) for row in lone.to_dict("records")]
    look = {"color": style.GREY, "marker": "o", "linestyle": "none", "mfc": "white"}
    draw_series(axes, points, look, factor, f"mark-{number}-alone")
    for place, (_, row) in enumerate(points):
        texts[f"mark-{number}-alone-{place}"] = hover(row, cells, limits.scale)


def _positions(cells: FigureData) -> dict[str, float]:
    """Where each value stands: at its number or that number's power of two or ten, else in turn."""
    axis, scale = cells.axes["x"], cells.spec.x_scale
    if scale == "linear":
        if axis.numeric:
            return {place.name: float(place.sort[0]) for place in axis.places}
        return {place.name: float(number) for number, place in enumerate(axis.places)}
    if not axis.numeric or any(place.sort[0] <= 0.0 for place in axis.places):
        raise UserError(
            f"x_scale {scale} needs numbers above zero, and {axis.column} has others",
            cells.spec.where_from,
        )
    power = math.log2 if _in_twos(cells) else math.log10
    return {place.name: power(place.sort[0]) for place in axis.places}


def _in_twos(cells: FigureData) -> bool:
    """Whether the axis is in powers of two; sizes always are."""
    sizes = any(place.kind == "size" for place in cells.axes["x"].places)
    return sizes or cells.spec.x_scale == "log2"


def _alone(axes: Axes, lone: pd.DataFrame, factor: float) -> None:
    """A dashed line for what was measured without company, to compare the series with."""
    valid = lone[lone["status"] == "valid"]
    if len(valid) == 1:
        axes.axhline(valid["median"].iloc[0] / factor, color=style.GREY, lw=0.9, dashes=(2, 2))


def _label_places(panel: Panel, axis: Axis, positions: dict[str, float], upright: bool) -> None:
    """Ticks at measured values, where they are few."""
    axes, ticks = panel.axes, sorted(set(positions.values()))
    named = len(ticks) <= _MOST_TICKS or not axis.numeric
    if not named:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    if panel.lowest:
        labels = {positions[place.name]: tick_label(place, axis) for place in axis.places}
        axes.set_xticks(ticks, [labels[tick] for tick in ticks], rotation=90 if upright else 0)


def _label_powers(
    panel: Panel, cells: FigureData, positions: dict[str, float], width: float
) -> None:
    """Ticks at whole powers, as many of them with a label as fit."""
    sizes = any(place.kind == "size" for place in cells.axes["x"].places)
    base = 2.0 if _in_twos(cells) else 10.0
    low, high = panel.axes.get_xlim()
    powers = list(range(math.ceil(low), math.floor(high) + 1))
    if not powers:  # a single value between two powers
        powers = sorted({math.floor(min(positions.values())), math.ceil(max(positions.values()))})
        panel.axes.set_xlim(powers[0] - 0.1, powers[-1] + 0.1)
    texts = {
        power: format_binary_bytes(base**power) if sizes else f"{base**power:g}" for power in powers
    }
    # Every tenth power of two changes the unit: steps that divide ten keep round labels.
    for step in (1, 2, 5, 10, 20):
        labelled = [power for power in powers if power % step == 0] or powers[:1]
        needed = sum(style.text_width(texts[p], style.SMALL_POINTS) + _LABEL_ROOM for p in labelled)
        if needed <= width:
            break
    panel.axes.set_xticks(labelled, [texts[power] for power in labelled])
    panel.axes.set_xticks([power for power in powers if power not in labelled], minor=True)
    panel.axes.tick_params(axis="x", which="minor", length=1.5, color=style.RULE)
