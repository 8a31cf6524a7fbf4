"""Statements of captions that compare groups of marks: with a base, a level, the best, a sum."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from chaosity.figures.axis_order_and_labels import make_axis_value, natural_sort_key
from chaosity.figures.caption_statements import ratio_span_text, ratio_text
from chaosity.figures.figure_data_and_value_limits import FigureData, FigureMark, mark_rows
from chaosity.figures.figure_spec import LevelsToCompare, Role
from chaosity.figures.sums_of_loads import LARGER_ALONE, SUM
from chaosity.statistics.block_ratios import estimate_group_ratio_paired_by_block
from chaosity.statistics.corun_interference import (
    DIVERGING_RATIO,
    LatencyDivergence,
    compare_latency_together_and_alone,
)
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import less_is_better
from chaosity.units import (
    choose_scale,
    format_count,
    format_percent,
    join_with_and,
    metric_words,
)

# Maximum number of slow initiators or cases that a caption names; of more, it gives the number.
_MOST_NAMED = 8
# A sum counts as below the larger load alone only if all of its interval is below this ratio. Of
# many equal cases, some intervals miss 1 by a few tenths of a per cent.
_CLEARLY_BELOW = 0.99


def difference_to_base_statement(data: FigureData, base: str) -> str | None:
    """Return the difference of each bar to the bar `base` of its group, paired by block.

    The result is None if no group has both bars.
    """
    rows = data.measurements[data.measurements["status"] == "valid"]
    parts = []
    for group in data.axes["x"].value_names:
        reference = rows[(rows["x"] == group) & (rows["series"] == base)]
        for name in data.axes["series"].value_names:
            other = rows[(rows["x"] == group) & (rows["series"] == name)]
            if name == base or reference.empty or other.empty:
                continue
            ratio = estimate_group_ratio_paired_by_block(other, reference)
            if ratio.n:
                more = "more" if ratio.median > 1.0 else "less"
                change = f"{format_percent(abs(ratio.median - 1.0))} {more}"
                at = data.value_label_without_axis_title("x", group)
                own = data.value_label_without_axis_title("series", name)
                parts.append(f"{change} for {at} with {own}, ratio {ratio_text(ratio)}")
    if not parts:
        return None
    reference_label = make_axis_value(base).long
    metric = metric_words(data.spec.metric)
    return f"{metric} compared with {reference_label}: {'; '.join(parts)}"


def level_comparison_statement(data: FigureData, compare: LevelsToCompare) -> str:
    """Return the size from which on levels differ from another, and which initiators are slow."""
    wanted = compare["level"] if isinstance(compare["level"], list) else [compare["level"]]
    measured = [level for level in wanted if (data.measurements["level"] == level).any()]
    texts = (_comparison_of_levels(data, compare, each) for each in measured or wanted[:1])
    return ". ".join(text[:1].upper() + text[1:] for text in texts)


def _comparison_of_levels(data: FigureData, compare: LevelsToCompare, together: str) -> str:
    """Return where the level `together` differs from another, and which initiators are slow."""
    alone = compare["to"]
    role: Role = "x" if "x" in data.axes else "columns"
    axis = data.axes[role]
    if not axis.is_numeric:
        return f"not compared: {axis.title.lower()} has values that are not numbers"
    numbers = {value.name: value.number for value in axis.values}
    rows = data.measurements.assign(x=data.measurements[role].map(numbers))
    found = compare_latency_together_and_alone(rows, together, alone)
    column = compare["column"].replace("_", " ")
    level, base = (f"{column} {name.replace('_', ' ')}" for name in (together, alone))
    if not found.ratios:
        return f"no latency was measured both with {level} and with {base}"
    labels = {value.number: value.long for value in axis.values}
    if found.start is None:
        ratios = found.ratios
        span = ratio_span_text(ratio.median for ratio in ratios.values())
        large = [x for x, each in ratios.items() if (each.low or each.median) > DIVERGING_RATIO]
        text = (
            f"latency with {level} is {span} times the latency with {base} over all sizes, and "
            f"{ratios[max(ratios)].median:.2f} times at the largest size"
        )
        if not large:
            return f"{text}; no ratio is clearly above {DIVERGING_RATIO:g}"
        most = max(large, key=lambda size: ratios[size].median)
        where = join_with_and([labels[size] for size in large])
        maximum = f"{ratio_text(ratios[most])} at {labels[most]}"
        return f"{text}; the ratio is above {DIVERGING_RATIO:g} at {where}. Maximum: {maximum}"
    beyond = {size: ratio for size, ratio in found.ratios.items() if size >= found.start}
    text = f"latency with {level} is {ratio_text(beyond[found.start])} times the latency with "
    text += f"{base} at {labels[found.start]}"
    if len(beyond) > 1:
        most = max(beyond, key=lambda size: beyond[size].median)
        text += f", and more than {DIVERGING_RATIO:g} times at every larger size"
        text += f". Maximum: {ratio_text(beyond[most])} at {labels[most]}"
    return f"{text}. {_slow_text(found, level, base)}" if found.compared else text


def _slow_text(found: LatencyDivergence, level: str, base: str) -> str:
    """Return the initiators that are slower than others of their node."""
    if not found.slow:
        return f"No initiator is slower than others of its node with {level}"
    ordered = sorted(found.slow, key=lambda slow: natural_sort_key(slow.initiator))
    names = [make_axis_value(slow.initiator).long for slow in ordered]
    alone = [slow.alone for slow in ordered if not math.isnan(slow.alone)]
    together = ratio_span_text(slow.together.median for slow in ordered)
    details = f"{together} times the latency of the others"
    details += f"; {ratio_span_text(alone)} times with {base}" if alone else ""
    number = format_count(len(names), "initiator")
    listed = f": {join_with_and(names)}" if len(names) <= _MOST_NAMED else ""
    verb, their = ("is", "its node") if len(names) == 1 else ("are", "their nodes")
    return f"With {level}, {number} {verb} slower than others of {their} ({details}){listed}"


def best_mark(data: FigureData) -> FigureMark:
    """Return the valid mark with the best median of the figure; of equal marks, the first."""
    valid = data.marks[data.marks["status"] == "valid"]
    less = less_is_better(data.spec.metric)
    return mark_rows(valid.sort_values("median", ascending=less, kind="stable"))[0]


def best_mark_statement(data: FigureData) -> str:
    """Return the best mark, and the other values of x whose best mark is not clearly worse."""
    rows = data.measurements[data.measurements["status"] == "valid"]
    sign, found = (1.0 if less_is_better(data.spec.metric) else -1.0), best_mark(data)
    keys: list[Role] = [role for role in data.axes if role != "x" and found.get(role)]

    def rows_of(mark: FigureMark) -> pd.DataFrame:
        return rows[np.logical_and.reduce([rows[role] == mark[role] for role in ("x", *keys)])]

    similar = []
    for value in data.axes["x"].values:
        own = data.marks[(data.marks["x"] == value.name) & (data.marks["status"] == "valid")]
        if value.name == found["x"] or own.empty:
            continue
        best = mark_rows(own.loc[[(sign * own["median"]).idxmin()]])[0]
        ratio = estimate_group_ratio_paired_by_block(rows_of(best), rows_of(found))
        if not ratio.is_outside_interval(1.0):
            similar.append(value.short)
    axis, estimate = data.axes["x"], Estimate.of_cell(found)
    at = f"{axis.title.lower()} {axis.find_value_by_name(found['x']).short}"
    others = [data.value_label_without_axis_title(role, str(found[role])) for role in keys]
    scale = choose_scale(data.spec.metric, [estimate.median])
    text = f"best: {at}{''.join(f', {label}' for label in others)}, {estimate.text(scale)}"
    no_other = "no other number is as good"
    return f"{text}. " + (
        f"{axis.title} {join_with_and(similar)}: not clearly worse" if similar else no_other
    )


def sum_to_larger_load_statement(data: FigureData) -> str | None:
    """Return where the sum of a point's loads stays below the larger of them alone.

    The result is None if no point has both a sum and a larger load alone.
    """
    roles: list[Role] = [role for role in ("panels", "x") if role in data.axes]
    found: list[tuple[Estimate, str]] = []
    for key, own in data.measurements.groupby(roles):
        sums, alone = (own[own["series"] == name] for name in (SUM, LARGER_ALONE))
        if sums.empty or alone.empty:
            continue
        axes = [(data.axes[role], str(name)) for role, name in zip(roles, key, strict=True)]
        labels = [axis.legend_label(axis.find_value_by_name(name)) for axis, name in axes]
        ratio = estimate_group_ratio_paired_by_block(sums, alone)
        found.append((ratio, ", ".join(labels).replace("Number", "number")))
    if not found:
        return None
    found.sort(key=lambda pair: pair[0].median)
    below = [label for ratio, label in found if (ratio.high or ratio.median) < _CLEARLY_BELOW]
    listed = f" ({'; '.join(below)})" if 0 < len(below) <= _MOST_NAMED else ""
    loads = [name for name in data.axes["series"].value_names if name not in (SUM, LARGER_ALONE)]
    ratios = dict.fromkeys(ratio_text(ratio, label) for ratio, label in (found[0], found[-1]))
    return (
        f"the sum of {join_with_and(loads)} is more than 1 % below the larger load alone in "
        f"{len(below)} of {format_count(len(found), 'case')}{listed}. "
        f"Ratio of the sum to the larger load alone: {' to '.join(ratios)}"
    )
