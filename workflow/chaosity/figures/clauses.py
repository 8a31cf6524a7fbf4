"""What to see in curves, scatters and comparisons of two levels, as clauses of a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from chaosity.figures.axis_values import NUMERIC, AxisValue, axis_value_of, natural_sort_key
from chaosity.figures.bounds import lowest
from chaosity.figures.figure_data import FigureData
from chaosity.figures.mark_texts import words_of
from chaosity.figures.text_tables import curve_table
from chaosity.statistics import (
    DIVERGING_RATIO,
    Estimate,
    LatencyDivergence,
    block_ratio,
    latency_divergence,
    less_is_better,
)
from chaosity.units import Scale, format_count, format_percent, format_quantity, group_thousands

# Slow initiators that are named; of more only the number is told.
_MOST_NAMED = 8
# Of a bound, beyond which that is said. Noise of a few per cent is on both sides.
_MOST_REACHED = 1.1


def curve_clause(cells: FigureData) -> str | None:
    """What is to be had of each curve: latency without load, and where it doubles."""
    numbers = curve_table(cells)
    known = numbers[numbers["median"].notna()]
    idle = known[known["quantity"] == "unloaded"]
    knees = known[known["quantity"] == "knee"]
    if idle.empty and knees.empty:
        return None
    parts = []
    if not idle.empty:
        parts.append(f"without load {_span(cells.spec.metric, idle['median'])}")
    doubled = knees[knees["note"].isna()]
    if not doubled.empty:
        ordered = doubled.sort_values("median", kind="stable")
        ends = [ordered.iloc[0]] if len(ordered) == 1 else [ordered.iloc[0], ordered.iloc[-1]]
        told = " to ".join(_knee(row, numbers, cells, len(ordered) > 1) for row in ends)
        parts.append(f"latency doubles at {told}")
    if len(doubled) < len(knees):
        number = len(knees) - len(doubled)
        parts.append(
            "it does not double before the peak"
            if doubled.empty
            else f"on {format_count(number, 'curve')} it does not double before the peak"
        )
    return "; ".join(parts)


def _span(metric: str, values: pd.Series) -> str:
    low, high = format_quantity(metric, values.min()), format_quantity(metric, values.max())
    return low if low == high else f"{low} to {high}"


def _knee(row: pd.Series, numbers: pd.DataFrame, cells: FigureData, several: bool) -> str:
    """Where a curve's latency has doubled, as a share of its peak, and which curve that is."""
    roles = list(cells.axes)
    same = numbers["quantity"] == "peak"
    for role in roles:
        same &= numbers[role].eq(row[role]) | (numbers[role].isna() & pd.isna(row[role]))
    peak = numbers.loc[same, "median"].iloc[0]
    notes = [f"{format_percent(row['median'] / peak)} of the peak"]
    if several:
        notes += [_long(cells, role, row[role]) for role in roles if isinstance(row[role], str)]
    return f"{format_quantity(str(cells.x_metric), row['median'])} ({', '.join(notes)})"


def _long(cells: FigureData, role: str, name: str) -> str:
    return next(place.long for place in cells.axes[role].places if place.name == name)


def order_clause(table: pd.DataFrame, by: str, metric: str, words: str) -> str | None:
    """Whether places that a number says to be nearer do better.

    Args:
        table: cells with a value; the column `by` holds the number, such as the distance.
        by: name of that column.
        metric: of the values.
        words: what the number is called.

    Returns:
        None when there are fewer than two values with a number.
    """
    known = table[table[by].notna()]
    if len(known) < 2:
        return None
    if known[by].nunique() == 1:
        return f"every pair has the same {words} ({float(known[by].iloc[0]):g}): it orders nothing"
    sign = 1.0 if less_is_better(metric) else -1.0
    single = known["low"].isna().any()
    low, high = ("median", "median") if single else ("low", "high")
    if sign < 0.0:
        low, high = high, low
    wrong, compared, worst = 0, 0, None
    marks = known.to_dict("records")
    for near in marks:
        for far in marks:
            if float(near[by]) >= float(far[by]):
                continue
            compared += 1
            if sign * near[low] > sign * far[high]:
                wrong += 1
                size = sign * math.log(near["median"] / far["median"])
                if worst is None or size > worst[0]:
                    worst = (size, near, far)
    beyond = "by their medians (one replicate)" if single else "beyond their intervals"
    if worst is None:
        return (
            f"the order of the {words} agrees with what was measured: in none of "
            f"{format_count(compared, 'comparison')} is the smaller {words} the worse {beyond}"
        )
    _, near, far = worst
    return (
        f"the {words} disagrees with what was measured: {_pair(near, by, metric, words)} is worse "
        f"than {_pair(far, by, metric, words)}; in {group_thousands(wrong)} of "
        f"{format_count(compared, 'comparison')} the smaller {words} is the worse, {beyond}"
    )


def _pair(cell: dict[str, object], by: str, metric: str, words: str) -> str:
    value = format_quantity(metric, float(str(cell["median"])))
    number = float(str(cell[by]))
    return f"{cell['initiator']} -> {cell['target']} ({words} {number:g}, {value})"


def loss_clause(cells: FigureData) -> str | None:
    """What each bar of a group loses against the group's bar that stands alone, by its blocks.

    None when no group has both.
    """
    rows = cells.rows[cells.rows["status"] == "valid"]
    base, parts = cells.spec.loss_to, []
    for group in cells.axes["x"].names:
        alone = rows[(rows["x"] == group) & (rows["series"] == base)]
        for beside in cells.axes["series"].names:
            other = rows[(rows["x"] == group) & (rows["series"] == beside)]
            if beside == base or alone.empty or other.empty:
                continue
            ratio = block_ratio(other, alone)
            if ratio.n:
                where = f"{_long(cells, 'x', group)} beside {_long(cells, 'series', beside)}"
                parts.append(f"{where} {_loss(ratio, less_is_better(cells.spec.metric))}")
    return "; ".join(parts) or None


def _loss(ratio: Estimate, less: bool) -> str:
    """A ratio as what was lost, with its interval where there is one."""
    verb, change = "takes" if less else "has", ratio.median - 1.0
    text = f"{verb} {format_percent(abs(change))} {'more' if change > 0.0 else 'less'}"
    if ratio.low is None or ratio.high is None:
        return text
    within = ratio.low <= 1.0 <= ratio.high
    noise = f", which is no difference at n = {ratio.n}" if within else ""
    return f"{text}{noise} (95 % interval of the ratio {ratio.low:.2f} to {ratio.high:.2f})"


def compare_clause(cells: FigureData) -> str:
    """From which size on two levels differ, and for whom most."""
    compare = dict(cells.spec.compare or {})
    role = "x" if "x" in cells.axes else "columns"
    sizes = {place.name: place for place in cells.axes[role].places}
    if any(place.kind not in NUMERIC for place in sizes.values()):
        return f"{cells.axes[role].title.lower()} is no number, so no size can be told"
    values = {name: float(place.sort[0]) for name, place in sizes.items()}
    rows = cells.rows.assign(x=cells.rows[role].map(values))
    found = latency_divergence(rows, compare["level"], compare["to"])
    level, to = (compare[key].replace("_", " ") for key in ("level", "to"))
    if not found.ratios:
        return f"nothing was measured both {level} and {to}"
    words = {float(place.sort[0]): place.long for place in sizes.values()}
    if found.start is None:
        largest = found.ratios[max(found.ratios)]
        low, high = (pick(found.ratios.values(), key=_median) for pick in (min, max))
        return (
            f"{level} and {to} do not part: over all sizes {level} takes {low.median:.2f} to "
            f"{high.median:.2f} times as long, at the largest {largest.median:.2f} times"
        )
    beyond = {size: ratio for size, ratio in found.ratios.items() if size >= found.start}
    most = max(beyond, key=lambda size: beyond[size].median)
    text = (
        f"{level} and {to} part from {words[found.start]} on: there {level} takes "
        f"{_times(beyond[found.start])} as long"
    )
    if len(beyond) > 1:
        text += f", at every larger size more than {DIVERGING_RATIO:g} times as long"
        text += f", and most, {_times(beyond[most])}, at {words[most]}"
    return f"{text}; {_slow(found, level, to)}" if found.compared else text


def bounds_clause(cells: FigureData) -> str | None:
    """Which bound is the lowest from which x on, and how near the marks come to it."""
    found: dict[str, tuple[list[dict[str, Any]], list[float]]] = {}
    valid = cells.cells[cells.cells["status"] == "valid"]
    lines = [role for role in ("panels", "series") if role in cells.axes]
    order = {place.name: place for place in cells.axes["x"].places}
    for line, marks in valid.groupby(lines, dropna=False, sort=False) if lines else [((), valid)]:
        names = dict(zip(lines, line, strict=True))
        limits = {}
        for mark in marks.to_dict("records"):
            place = (names.get("panels"), names.get("series"), mark["x"])
            limit = lowest(cells.bounds, place)
            if limit is not None:
                limits[mark["x"]] = (*limit, mark["median"] / limit[1])
        if limits:
            sequence = [(order[x], limits[x][0]) for x in order if x in limits]
            told = _which_limit(sequence, cells.axes["x"].title.lower())
            held, shares = found.setdefault(told, ([], []))
            held.append(names)
            shares.extend(share for *_, share in limits.values())
    told_of = {(told, names.get("series")) for told, (held, _) in found.items() for names in held}
    # Panels are named only where a series has not the same told of it in all of them.
    if len({series for _, series in told_of}) == len(told_of):
        lines = ["series"]
    parts = []
    for told, (held, shares) in found.items():
        named = dict.fromkeys(_line_name(cells, lines, names) for names in held)
        whose = f"{_listed(list(named))}: " if len(found) > 1 else ""
        ends = list(dict.fromkeys(format_percent(end) for end in (min(shares), max(shares))))
        said = f"{whose}{told}, of which {' to '.join(ends)} is reached"
        if max(shares) > _MOST_REACHED:
            said += (
                f"; exceeded by {format_percent(max(shares) - 1)}: bound and line were not measured under "
                "the same conditions, or one of them was disturbed"
            )
        parts.append(said)
    return "; ".join(parts) or None


def _line_name(cells: FigureData, roles: list[str], names: dict[str, Any]) -> str:
    """The places that a line has, of the nulls none."""
    known = {role: names[role] for role in roles if isinstance(names.get(role), str)}
    return ", ".join(_long(cells, role, name) for role, name in known.items())


def _which_limit(sequence: list[tuple[AxisValue, str]], axis: str) -> str:
    """From where on the last place's bound is the lowest: before, others are, or it and others."""
    last = sequence[-1][1]
    start = len(sequence)
    while start > 0 and sequence[start - 1][1] == last:
        start -= 1
    if start == 0:
        return f"everywhere the lowest bound is {last}"
    before = list(dict.fromkeys(title for _, title in sequence[:start]))
    return (
        f"up to a {axis} of {sequence[start - 1][0].short} the lowest bound is "
        f"{' or '.join(before)}, from {sequence[start][0].short} on it is {last}"
    )


def _median(ratio: Estimate) -> float:
    return ratio.median


def _times(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.median:.2f} times"
    return f"{ratio.median:.2f} times (95 % interval {ratio.low:.2f} to {ratio.high:.2f})"


def _slow(found: LatencyDivergence, level: str, to: str) -> str:
    """Who is slower than others of its node."""
    if not found.slow:
        return f"no initiator is slower than others of its node when {level}"
    ordered = sorted(found.slow, key=lambda one: natural_sort_key(one.initiator))
    names = [axis_value_of(one.initiator).long for one in ordered]
    listed = _listed(names) if len(names) <= _MOST_NAMED else f"{len(names)} initiators"
    alone = [one.alone for one in ordered if not math.isnan(one.alone)]
    text = (
        f"when {level}, {listed} {'is' if len(names) == 1 else 'are'} slower than others of "
        f"{'its node' if len(names) == 1 else 'their nodes'} "
        f"({_range(one.together.median for one in ordered)} times"
    )
    return text + (f"; {to} {_range(alone)} times)" if alone else ")")


def _range(values: Iterable[float]) -> str:
    known = sorted(values)
    low, high = f"{known[0]:.2f}", f"{known[-1]:.2f}"
    return low if low == high else f"{low} to {high}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def scatter_clause(cells: FigureData, valid: pd.DataFrame, scale: Scale) -> str:
    """Whether the order of x is the order of the values."""
    words = (cells.spec.x_title or str(cells.spec.x).split(".")[-1].replace("_", " ")).lower()
    words = "distance" if cells.spec.x == "distance" else words
    said = order_clause(valid, "x", cells.spec.metric, words)
    best = valid.sort_values("median", kind="stable").iloc[[0, -1]].to_dict("records")
    low, high = (f"{scale.text(one['median'])} ({words_of(one, cells.axes)})" for one in best)
    return said or f"{low} to {high}"
