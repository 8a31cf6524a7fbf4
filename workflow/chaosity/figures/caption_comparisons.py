"""Statements of captions that compare groups of marks: with a base, a level, the best, a sum."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from chaosity.documents.figures import LevelsToCompare
from chaosity.figures.axis_order_and_labels import make_axis_value
from chaosity.figures.figure_data_and_value_limits import FigureData, FigureMark, mark_rows
from chaosity.figures.figure_spec import Role
from chaosity.figures.sums_of_loads import LARGER_ALONE, SUM
from chaosity.place_names import natural_sort_key
from chaosity.statistics.block_ratios import estimate_group_ratio_paired_by_block
from chaosity.statistics.corun_interference import (
    DIVERGING_RATIO,
    LatencyDivergence,
    compare_latency_together_and_alone,
)
from chaosity.statistics.estimates_and_ratios import Estimate
from chaosity.store.measurements import less_is_better
from chaosity.text_templates import write_text
from chaosity.units import choose_scale

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
    bars = []
    for group in data.axes["x"].value_names:
        reference = rows[(rows["x"] == group) & (rows["series"] == base)]
        for name in data.axes["series"].value_names:
            other = rows[(rows["x"] == group) & (rows["series"] == name)]
            if name == base or reference.empty or other.empty:
                continue
            ratio = estimate_group_ratio_paired_by_block(other, reference)
            if ratio.n:
                places: list[tuple[Role, str]] = [("x", group), ("series", name)]
                labels = (data.value_label_without_axis_title(*place) for place in places)
                bars.append((*labels, ratio))
    label = make_axis_value(base).long
    values = {"metric": data.spec.metric, "base": label, "bars": bars}
    return write_text("captions", "difference_to_base", **values) if bars else None


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
    labels = {value.number: value.long for value in axis.values}
    ratios, start, large = found.ratios, found.start, []
    if start is None:
        large = [x for x, each in ratios.items() if (each.low or each.median) > DIVERGING_RATIO]
    else:
        ratios = {size: ratio for size, ratio in ratios.items() if size >= start}
    most = max(large or ratios, key=lambda size: ratios[size].median, default=None)
    return write_text(
        "captions",
        "level_comparison",
        level=level,
        base=base,
        ratios=list(ratios.values()),
        start=start and labels[start],
        large=[labels[size] for size in large],
        most=most and (labels[most], ratios[most]),
        limit=DIVERGING_RATIO,
        slow=_slow_text(found, level, base) if found.compared else "",
    )


def _slow_text(found: LatencyDivergence, level: str, base: str) -> str:
    """Return the initiators that are slower than others of their node."""
    ordered = sorted(found.slow, key=lambda slow: natural_sort_key(slow.initiator))
    return write_text(
        "captions",
        "slow_initiators",
        level=level,
        base=base,
        names=[make_axis_value(slow.initiator).long for slow in ordered],
        together=[slow.together.median for slow in ordered],
        alone=[slow.alone for slow in ordered if not math.isnan(slow.alone)],
        most_named=_MOST_NAMED,
    )


def best_mark(data: FigureData) -> FigureMark | None:
    """Return the valid mark with the best median of the figure; of equal marks, the first.

    None if all measurements failed.
    """
    valid = data.marks[data.marks["status"] == "valid"]
    less = less_is_better(data.spec.metric)
    best = mark_rows(valid.sort_values("median", ascending=less, kind="stable").head(1))
    return best[0] if best else None


def best_mark_statement(data: FigureData) -> str | None:
    """Return the best mark, and the other values of x whose best mark is not clearly worse.

    None if all measurements failed.
    """
    rows = data.measurements[data.measurements["status"] == "valid"]
    sign, found = (1.0 if less_is_better(data.spec.metric) else -1.0), best_mark(data)
    if found is None:
        return None
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
    return write_text(
        "captions",
        "best",
        axis=axis.title,
        x=axis.find_value_by_name(found["x"]).short,
        others=[data.value_label_without_axis_title(role, str(found[role])) for role in keys],
        value=estimate.text(choose_scale(data.spec.metric, [estimate.median])),
        similar=similar,
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
    loads = [name for name in data.axes["series"].value_names if name not in (SUM, LARGER_ALONE)]
    values = {"loads": loads, "cases": found, "below": below, "most_named": _MOST_NAMED}
    return write_text("captions", "sum_to_larger_load", **values)
