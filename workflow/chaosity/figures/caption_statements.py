"""Statements of captions: changes along an axis, curves, orders and bounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import pandas as pd

from chaosity.figures.axis_order_and_labels import AxisValue
from chaosity.figures.column_values_and_upper_bounds import lowest_bound_of_mark
from chaosity.figures.figure_data_and_value_limits import FigureData, FigureMark, mark_rows
from chaosity.figures.figure_spec import Role
from chaosity.figures.mark_labels_and_hover_texts import panel_title
from chaosity.figures.value_and_curve_tables import latency_curve_numbers
from chaosity.statistics.block_ratios import estimate_group_ratio_paired_by_block
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import less_is_better
from chaosity.text_templates import write_text

# Maximum number of series whose change is given; of more, only the smallest and the largest change.
_MOST_SERIES = 4
# Ratio of mark to bound that needs an explanation. Mark and bound have a noise of a few per cent.
_MOST_REACHED = 1.1


@dataclass(frozen=True)
class _Change:
    """Ratio of the last to the first value of a line, its labels or "", and its ends on x."""

    label: str
    panel: str
    ratio: Estimate
    start: AxisValue
    stop: AxisValue


def change_along_x_statement(data: FigureData) -> str | None:
    """Return how each series changes from the first to the last x, in its worst panel."""
    by_series = _changes_of_each_series(data)
    if not by_series:
        return None
    # Where more is better, the smallest ratio is the worst.
    sign = -1.0 if less_is_better(data.spec.metric) else 1.0
    shown = [min(own, key=lambda each: sign * each.ratio.median) for own in by_series.values()]
    if len(shown) > _MOST_SERIES:
        shown.sort(key=lambda change: change.ratio.median)
        shown = [shown[0], shown[-1]]
    return write_text("captions", "change_along_x", data=data, shown=shown, series=len(by_series))


def _changes_of_each_series(data: FigureData) -> dict[str | None, list[_Change]]:
    """Return series -> the change of each of its lines with two ends."""
    rows = data.measurements[data.measurements["status"] == "valid"]
    axis = data.axes["x"]
    numbers = {value.name: value.number for value in axis.values}
    panels, several = data.value_names_on_axis("panels"), data.value_names_on_axis("series")
    changes: dict[str | None, list[_Change]] = defaultdict(list)
    for panel in panels:
        here = rows if panel is None else rows[rows["panels"] == panel]
        title = panel_title(data, panel) if panel is not None and len(panels) > 1 else ""
        for series in several:
            line = here
            if series is not None:  # rows outside all series are the first point of each series
                line = here[(here["series"] == series) | here["series"].isna()]
                if not (line["series"] == series).any():
                    continue
            x = line["x"].map(numbers)
            if line.empty or x.min() == x.max():
                continue
            ratio = estimate_group_ratio_paired_by_block(line[x == x.max()], line[x == x.min()])
            if ratio.n:
                names = (str(line["x"].iloc[end]) for end in (x.argmin(), x.argmax()))
                ends, label = map(axis.find_value_by_name, names), ""
                if series is not None and len(several) > 1:
                    label = data.value_label_without_axis_title("series", series)
                changes[series].append(_Change(label, title, ratio, *ends))
    return changes


def latency_curve_statement(data: FigureData) -> str | None:
    """Return the unloaded latency of the curves and the bandwidth at which it doubles."""
    numbers = latency_curve_numbers(data)
    known = numbers[numbers["median"].notna()]
    unloaded, knees, peaks = (
        known[known["quantity"] == name] for name in ("unloaded", "knee", "peak")
    )
    curve: list[str] = [*data.axes] or ["host"]
    doubled = knees[knees["note"].isna()].sort_values("median", kind="stable")
    doubled = doubled.merge(peaks[[*curve, "median"]], on=curve, suffixes=("", "_of_peak"))
    ends = pd.concat([doubled.head(1), doubled.tail(1)]).drop_duplicates(curve)
    text = write_text(
        "captions",
        "latency_curves",
        data=data,
        unloaded=list(unloaded["median"]),
        ends=ends.to_dict("records"),
        doubled=len(doubled),
        others=len(knees) - len(doubled),
    )
    return text or None


def distance_order_statement(table: pd.DataFrame, by: str, metric: str, name: str) -> str | None:
    """Return whether valid marks have better values the smaller a number is, such as the distance.

    `by` is the column of the number, and `name` its name in the text. The result is None if fewer
    than two marks have the number.
    """
    known = table[table[by].notna()]
    if len(known) < 2:
        return None
    if known[by].nunique() == 1:
        return f"all pairs have the same {name} ({float(known[by].iloc[0]):g})"
    has_intervals = bool(known["low"].notna().all())
    ends = ("low", "high") if has_intervals else ("median", "median")
    numbers, medians, low, high = (
        known[column].to_numpy(float) for column in (by, "median", *ends)
    )
    nearer = np.less.outer(numbers, numbers)
    # How much worse each mark is than each other mark, and whether noise cannot explain it.
    excess, clear = np.log(medians[:, None] / medians), np.greater.outer(low, high)
    if not less_is_better(metric):
        excess, clear = -excess, np.less.outer(high, low)
    wrong = nearer & clear
    worst = np.unravel_index(np.where(wrong, excess, -np.inf).argmax(), wrong.shape)
    return write_text(
        "captions",
        "order",
        name=name,
        metric=metric,
        by=by,
        comparisons=nearer.sum(),
        wrong=wrong.sum(),
        worst=known.iloc[np.array(worst)].to_dict("records"),
        has_intervals=has_intervals,
    )


def lowest_bound_statement(data: FigureData) -> str | None:
    """Return which bound is the lowest along x, and how near the marks are to that bound."""
    valid = data.marks[data.marks["status"] == "valid"]
    lines: list[Role] = [role for role in ("panels", "series") if role in data.axes]
    # Lines with the same sequence of lowest bounds share a part of the statement.
    found: dict[str, tuple[list[FigureMark], list[float]]] = {}
    for _, own in valid.groupby(list(lines), dropna=False, sort=False) if lines else [("", valid)]:
        marks = {mark["x"]: mark for mark in mark_rows(own)}
        bounds, shares = [], []
        for value in data.axes["x"].values:
            mark = marks.get(value.name)
            names = (mark.get("panels"), mark.get("series"), value.name) if mark else None
            lowest = lowest_bound_of_mark(data.bounds, *names) if names else None
            if mark and lowest:
                bounds.append((value, lowest[0]))
                shares.append(mark["median"] / lowest[1])
        if bounds:
            same = found.setdefault(_lowest_bound_text(bounds, data), ([], []))
            same[0].append(next(iter(marks.values())))
            same[1].extend(shares)
    # Panels are named only where the lines of a series differ between panels.
    pairs = {(text, mark.get("series")) for text, (own, _) in found.items() for mark in own}
    if len({series for _, series in pairs}) == len(pairs):
        lines = ["series"]
    labelled = {
        text: ([_line_label(data, lines, mark) for mark in own], shares)
        for text, (own, shares) in found.items()
    }
    text = write_text("captions", "lowest_bounds", found=labelled, explained_above=_MOST_REACHED)
    return text or None


def _line_label(data: FigureData, roles: Iterable[Role], mark: FigureMark) -> str:
    """Return the labels of a line on the axes `roles`, without axes on which it has no value."""
    names = {role: mark.get(role) for role in roles}
    known = [
        data.value_label_without_axis_title(role, name)
        for role, name in names.items()
        if isinstance(name, str)
    ]
    return ", ".join(known)


def _lowest_bound_text(bounds: list[tuple[AxisValue, str]], data: FigureData) -> str:
    """Return the names of the lowest bounds, and the x from which on the last of them is lowest."""
    last, axis = bounds[-1][1], data.axes["x"].title.lower()
    start = len(bounds) - len(list(takewhile(lambda bound: bound[1] == last, reversed(bounds))))
    if start == 0:
        return f"{last} for every {axis}"
    before = " or ".join(dict.fromkeys(title for _, title in bounds[:start]))
    return (
        f"{before} up to {bounds[start - 1][0].short} ({axis}), "
        f"{last} from {bounds[start][0].short}"
    )
