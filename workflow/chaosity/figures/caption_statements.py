"""Statements of captions: ratios as text, changes along an axis, curves, orders and bounds."""

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
from chaosity.units import (
    format_count,
    format_percent,
    format_quantity,
    group_thousands,
    join_with_and,
    metric_words,
)

# Maximum number of series whose change is given; of more, only the smallest and the largest change.
_MOST_SERIES = 4
# Ratio of mark to bound that needs an explanation. Mark and bound have a noise of a few per cent.
_MOST_REACHED = 1.1


def ratio_text(ratio: Estimate, *notes: str) -> str:
    """Return a ratio with interval and notes: "0.67 (95 % interval 0.66 to 0.68)"."""
    details = list(notes)
    if ratio.low_and_high is not None:
        details.insert(0, ratio.interval_text(_decimals))
        if not ratio.is_outside_interval(1.0):
            details.insert(1, f"no difference detected at {ratio.n_text}")
    text = _decimals(ratio.median)
    return f"{text} ({'; '.join(details)})" if details else text


def _decimals(ratio: float) -> str:
    """Return a ratio as text, with two decimals below 10 and none from 10 on."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"


def ratio_span_text(values: Iterable[float]) -> str:
    """Return the smallest and the largest ratio as text: "0.67 to 0.71"."""
    known = [*values]
    return " to ".join(dict.fromkeys(map(_decimals, (min(known), max(known)))))


@dataclass(frozen=True)
class _Change:
    """Ratio of the last to the first value of a line, and the values of x at its ends."""

    series: str | None
    panel: str | None
    ratio: Estimate
    start: AxisValue
    stop: AxisValue


def change_along_x_statement(data: FigureData) -> str | None:
    """Return how each series changes from the first to the last x, in its worst panel."""
    changes = _changes(data)
    if not changes:
        return None
    # Where more is better, the smallest ratio is the worst.
    sign = -1.0 if less_is_better(data.spec.metric) else 1.0
    by_series: dict[str | None, list[_Change]] = defaultdict(list)
    for change in changes:
        by_series[change.series].append(change)
    shown = [min(own, key=lambda each: sign * each.ratio.median) for own in by_series.values()]
    if len(shown) > _MOST_SERIES:
        shown.sort(key=lambda change: change.ratio.median)
        shown = [shown[0], shown[-1]]
    same_ends = len({(change.start.name, change.stop.name) for change in shown}) == 1
    first, axis = shown[0], data.axes["x"].title.lower()
    from_to = f"{axis} {first.start.short} to {first.stop.short}"
    ends = from_to if same_ends else f"the first to the last {axis}"
    texts = [_change_text(data, change, same_ends) for change in shown]
    total = len(by_series)
    which = f" (smallest and largest of {total} series)" if total > len(shown) else ""
    return (
        f"from {ends}, {metric_words(data.spec.metric)} changes by the factor "
        f"{join_with_and(texts)}{which}"
    )


def _change_text(data: FigureData, change: _Change, same_ends: bool) -> str:
    """Return a text with the factor by which a line changes and the name of the line."""
    notes = [] if same_ends else [f"from {change.start.short} to {change.stop.short}"]
    if change.panel is not None and len(data.axes["panels"].values) > 1:
        title = panel_title(data, change.panel)
        if not title[:2].isupper():  # PU keeps its capitals
            title = title[:1].lower() + title[1:]
        notes.append(f"in the worst panel, {title}")
    text = ratio_text(change.ratio, *notes)
    if change.series is None or len(data.axes["series"].values) == 1:
        return text
    return f"{text} for {data.value_label_without_axis_title('series', change.series)}"


def _changes(data: FigureData) -> list[_Change]:
    """Return the change of every line with two ends."""
    rows = data.measurements[data.measurements["status"] == "valid"]
    axis = data.axes["x"]
    numbers = {value.name: value.number for value in axis.values}
    changes = []
    for panel in data.value_names_on_axis("panels"):
        here = rows if panel is None else rows[rows["panels"] == panel]
        for series in data.value_names_on_axis("series"):
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
                start, stop = (
                    axis.find_value_by_name(str(line["x"].iloc[i]))
                    for i in (x.argmin(), x.argmax())
                )
                changes.append(_Change(series, panel, ratio, start, stop))
    return changes


def latency_curve_statement(data: FigureData) -> str | None:
    """Return the unloaded latency of the curves and the bandwidth at which it doubles."""
    numbers = latency_curve_numbers(data)
    known = numbers[numbers["median"].notna()]
    unloaded = known.loc[known["quantity"] == "unloaded", "median"]
    knees = known[known["quantity"] == "knee"]
    metric, parts = metric_words(data.spec.metric), []
    if len(unloaded):
        ends = [format_quantity(data.spec.metric, end) for end in (unloaded.min(), unloaded.max())]
        parts.append(f"unloaded {metric} is {' to '.join(dict.fromkeys(ends))}")
    doubled = knees[knees["note"].isna()].sort_values("median", kind="stable")
    if len(doubled):
        curve: list[str] = [*data.axes] or ["host"]
        peaks = known[known["quantity"] == "peak"].set_index(curve)["median"]
        ends = [_knee_text(data, doubled.iloc[i], peaks, len(doubled)) for i in (0, -1)]
        parts.append(f"{metric} doubles at {' to '.join(dict.fromkeys(ends))}")
    others = len(knees) - len(doubled)
    if others:
        where = f"on {others} of {format_count(len(knees), 'curve')}"
        parts.append(f"{metric} does not double before the peak {where}")
    return ". ".join(part[:1].upper() + part[1:] for part in parts) or None


def _knee_text(data: FigureData, knee: pd.Series, peaks: pd.Series, curves: int) -> str:
    """Return the bandwidth at which a curve's latency doubles, also as a share of its peak."""
    key = tuple(knee[role] for role in data.axes) if data.axes else (knee["host"],)
    peak = peaks.loc[key if len(key) > 1 else key[0]]
    notes = [f"{format_percent(knee['median'] / float(peak))} of the peak"]
    if curves > 1:
        names = {role: knee[role] for role in data.axes if isinstance(knee[role], str)}
        notes += [data.value_label_without_axis_title(role, name) for role, name in names.items()]
    return f"{format_quantity(data.x_metric, knee['median'])} ({', '.join(notes)})"


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
    single = bool(known["low"].isna().any())
    ends = ("median", "median") if single else ("low", "high")
    numbers, medians, low, high = (
        known[column].to_numpy(float) for column in (by, "median", *ends)
    )
    nearer = np.less.outer(numbers, numbers)
    # How much worse each mark is than each other mark, and whether noise cannot explain it.
    excess, clear = np.log(medians[:, None] / medians), np.greater.outer(low, high)
    if not less_is_better(metric):
        excess, clear = -excess, np.less.outer(high, low)
    wrong = nearer & clear
    test = " (without intervals)" if single else " and the intervals do not overlap"
    number = f"{group_thousands(wrong.sum())} of {format_count(nearer.sum(), 'comparison')}"
    text = f"in {number} the pair with the smaller {name} has the worse value{test}"
    if not wrong.any():
        return f"the {name} agrees with the measurement: {text}"
    worst = np.unravel_index(np.where(wrong, excess, -np.inf).argmax(), wrong.shape)
    near_text, far_text = (
        f"{mark['initiator']} -> {mark['target']} ({name} {float(mark[by]):g}, "
        f"{format_quantity(metric, float(mark['median']))})"
        for mark in known.iloc[np.array(worst)].to_dict("records")
    )
    return (
        f"the {name} contradicts the measurement: {text}. "
        f"Largest contradiction: {near_text} is worse than {far_text}"
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
    parts = []
    for text, (first_marks, shares) in found.items():
        labels = dict.fromkeys(_line_label(data, lines, mark) for mark in first_marks)
        line = f" for {join_with_and(list(labels))}" if len(found) > 1 else ""
        ends = dict.fromkeys(format_percent(share) for share in (min(shares), max(shares)))
        part = f"lowest bound{line}: {text}; the values reach {' to '.join(ends)} of this bound"
        if max(shares) > _MOST_REACHED:
            part += (
                f"; the largest value is {format_percent(max(shares) - 1)} above the bound, so "
                "bound and values were measured under different conditions, or a load was disturbed"
            )
        parts.append(part[:1].upper() + part[1:])
    return ". ".join(parts) or None


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
