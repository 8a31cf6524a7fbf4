"""What values look like: shared scales, the text that hovers over a mark, what stands below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from chaosity.figures.axis_values import AxisValue, axis_value_of
from chaosity.figures.figure_data import Axis, FigureData
from chaosity.statistics import UNMEASURED
from chaosity.units import Scale, choose_scale, format_count, metric_words

# A colour scale spans at least this share of its top value, so that noise of a few per cent does
# not look like structure.
LEAST_SPAN = 0.25


@dataclass(frozen=True)
class Limits:
    """A scale that one or several figures share.

    Attributes:
        low: smallest value a colour stands for, in the metric's unit.
        high: largest value, in the metric's unit; above low.
        scale: the unit in which it is shown.
        least: smallest value, where a logarithmic axis begins; NaN when none is positive.
    """

    low: float
    high: float
    scale: Scale
    least: float = math.nan


def limits_of(
    metric: str, figures: Sequence[FigureData], *, with_intervals: bool = False
) -> Limits:
    """Round limits that hold every value of these figures.

    Args:
        metric: that they all show.
        figures: that are to be compared.
        with_intervals: whether the intervals must fit too.
    """
    columns = ["median", "low", "high"] if with_intervals else ["median"]
    shown = [each.cells[columns].to_numpy(float).ravel() for each in figures]
    shown += [np.array(list(bound.values.values())) for each in figures for bound in each.bounds]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values):
        return Limits(0.0, 1.0, choose_scale(metric, [1.0]))
    top = float(values.max())
    scale = choose_scale(metric, [top])
    if top <= 0.0:
        return Limits(float(values.min()) - 1.0, 1.0, scale)
    bottom = min(float(values.min()), (1.0 - LEAST_SPAN) * top)
    step = _round_step((top - bottom) / 10.0)
    low = math.floor(bottom / step + 1e-9) * step
    least = float(min(values[values > 0.0]))
    return Limits(low, math.ceil(top / step - 1e-9) * step, scale, least)


def _round_step(width: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least the width."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= width * 0.999)


def value_title(cells: FigureData, scale: Scale) -> str:
    """Title of the axis or colour bar, with its unit: "Memory bandwidth (GB/s)"."""
    words = cells.spec.value_title or " ".join(
        [*(cells.spec.load if len(cells.spec.load) == 1 else ()), metric_words(cells.spec.metric)]
    )
    words = words[:1].upper() + words[1:]
    return f"{words} ({scale.symbol})" if scale.symbol else words


def replicates(cells: FigureData) -> str:
    """How many replicates stand behind the marks: "median of 2 to 3 replicates"."""
    numbers = sorted(set(cells.cells.loc[cells.cells["n"] > 0, "n"]))
    if not numbers:
        return "no valid replicate"
    if numbers == [1]:
        return "one replicate, no intervals"
    if len(numbers) == 1:
        return f"median of {format_count(int(numbers[0]), 'replicate')}"
    return f"median of {numbers[0]} to {numbers[-1]} replicates"


def provenance(cells: FigureData) -> str:
    """One line below the title: host, configuration, benchmark, kernel, replicates, labels."""
    first = cells.cells.iloc[0]
    configurations = ", ".join(cells.cells["configuration"].drop_duplicates())
    parts = [f"{first['host']}, {configurations}"]
    benchmarks = cells.rows["benchmark"].dropna().unique()
    if len(benchmarks) <= 2:
        parts.append(" and ".join(str(name).replace("_", " ") for name in benchmarks))
    kernels = cells.rows["kernel"].dropna().unique()
    if len(kernels) == 1:
        parts.append(f"kernel {kernels[0]}")
    if cells.spec.combine:
        parts.append(f"{cells.spec.combine} of the points that share a mark")
    parts += [replicates(cells), *cells.labels]
    return " · ".join(part for part in parts if part)


def words_of(cell: Mapping[str, Any], axes: Mapping[str, Axis]) -> str:
    """Where a mark stands, in the words of the point's name: "node3 -> node5"."""
    if "rows" in axes and "columns" in axes:
        pair = [(axes[role].column.split(".")[-1], cell[role]) for role in ("rows", "columns")]
        pair.sort(key=lambda item: item[0] != "initiator")
        if [column for column, _ in pair] in (["initiator", "target"], ["initiator", "responder"]):
            return f"{pair[0][1]} -> {pair[1][1]}"
    parts = []
    plotted = not {"rows", "x"} & set(axes)
    if plotted:
        parts.append(f"{cell['initiator']} -> {cell['target']}")
    for role in ("panels", "series", "rows", "x", "columns"):
        if role not in axes or (plotted and axes[role].column in ("initiator", "target")):
            continue
        name = cell[role]
        if not isinstance(name, str):
            parts.append("alone")
            continue
        place = next(place for place in axes[role].places if place.name == name)
        column = axes[role].column.split(".")[-1].replace("_", " ")
        parts.append(f"{column} = {place.short}" if place.kind == "number" else place.long)
    return ", ".join(parts)


def numbers_of(cell: Mapping[str, Any], scale: Scale) -> str:
    """What a mark says: "41.2 GB/s, 95 % interval 40.8 to 41.6, n = 3", or why there is nothing."""
    if cell["status"] == "failed":
        reason = cell["reason"] or "no reason recorded"
        return f"failed in {format_count(int(cell['n_failed']), 'replicate')}: {reason}"
    if cell["status"] == UNMEASURED:
        return f"not measured: {cell['reason'] or 'no reason recorded'}"
    if cell["status"] != "valid":
        return "not measured yet"
    text = scale.text(cell["median"])
    n = int(cell["n"])
    if n < 2 or pd.isna(cell["low"]):
        text += ", no interval: one replicate"
    else:
        low, high = scale.number(cell["low"]), scale.number(cell["high"])
        text += f", 95 % interval {low} to {high}, n = {n}"
    if cell["n_failed"]:
        text += f", {format_count(int(cell['n_failed']), 'replicate')} failed"
    if not pd.isna(cell["outliers"]) and cell["outliers"]:
        text += f", {format_count(int(cell['outliers']), 'outlier')} marked and kept"
    return text


def hover(cell: Mapping[str, Any], cells: FigureData, scale: Scale, where: str = "") -> str:
    """The whole text that hovers over a mark.

    Args:
        cell: of the figure.
        cells: the figure.
        scale: of its values.
        where: more about where the mark stands.
    """
    axes = cells.axes
    shown = {axis.column for axis in axes.values()}
    kernel = cell.get("kernel")
    notes = []
    if "responder" in shown and "target" not in shown and not cells.spec.combine:
        notes.append(f"line on {cell['target']}")
    if isinstance(kernel, str) and "kernel" not in shown and not cells.spec.combine:
        notes.append(kernel)
    if isinstance(cell["label"], str):
        notes.append(cell["label"])
    if cell["file_backed"] and "file-backed" not in notes:
        notes.append("file-backed")
    if cells.spec.cell_note and not pd.isna(cell["note"]):
        notes.append(note_words(cells.spec.cell_note, cell["note"]))
    words = ", ".join(part for part in (words_of(cell, axes), where) if part)
    text = f"{words}: {numbers_of(cell, scale)}"
    return f"{text} ({', '.join(notes)})" if notes else text


def note_words(column: str, value: Any) -> str:
    """A further value of a cell in few letters: "SLIT 21" for a distance of firmware's table."""
    words = {"distance": "SLIT"}.get(column, column.split(".")[-1].replace("_", " "))
    return f"{words} {axis_value_of(value, column=column).short}"


def panel_title(cells: FigureData, panel: str) -> str:
    """What stands above a panel; with a title of its own: "Drives of node 3"."""
    axis = cells.axes["panels"]
    place = next(place for place in axis.places if place.name == panel)
    if cells.spec.panels_title or place.kind == "number":
        return f"{axis.title} {place.short}"
    return place.long


def tick_label(place: AxisValue, axis: Axis) -> str:
    """A place's label on its axis: short where the title says the kind, else in full."""
    return place.long if axis.mixed or place.kind in ("all", "file") else place.short


def failures(cells: FigureData) -> list[str]:
    """One line a failed mark: where and why."""
    failed = cells.cells[cells.cells["status"] == "failed"].to_dict("records")
    # Without a value there is no place on a measured axis, so the point's name tells which it is.
    return [
        f"{cell['point'] if cells.spec.plotted else words_of(cell, cells.axes)}: "
        f"{cell['reason'] or 'no reason recorded'}"
        for cell in failed
    ]


def unmeasured(cells: FigureData) -> list[str]:
    """One line a reason for which marks have no value, with how many these are of how many."""
    without = cells.cells[cells.cells["status"] == UNMEASURED]
    return each_reason(without["reason"], len(cells.cells), "mark")


def each_reason(reasons: pd.Series, total: int, what: str) -> list[str]:
    """Each reason once, with how many of how many things have it unless all of them do.

    Args:
        reasons: of all things without a value.
        total: number of things, those with a value among them.
        what: one of them is, such as "mark".
    """
    numbers = reasons.fillna("no reason recorded").value_counts(sort=False)
    return [
        reason if number == total else f"{reason} ({number} of {format_count(total, what)})"
        for reason, number in numbers.items()
    ]
