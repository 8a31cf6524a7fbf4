"""Write the caption of a figure: a few statements that are computed from the figure's data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from chaosity.documents.figures import LevelsComparedInCaption
from chaosity.figures.figure_data import (
    AxisRole,
    FigureData,
    best_mark,
    make_axis_value,
    marks_of_table,
)
from chaosity.figures.marks import (
    STATUS_TEXTS,
    mark_location_text,
    mark_value_text,
    panel_title,
    unmeasured_mark_reason_lines,
)
from chaosity.figures.select import LARGER_ALONE, SUM
from chaosity.figures.tables import latency_curve_numbers
from chaosity.place_names import access_in_words, natural_sort_key, places_in_words
from chaosity.statistics.cell_summary import (
    DIVERGING_RATIO,
    UNMEASURED,
    LatencyTogetherAndAlone,
    compare_latency_together_and_alone,
    estimate_group_ratio_paired_by_block,
)
from chaosity.statistics.curves import RISE_PER_DOUBLING, LatencyStep
from chaosity.statistics.estimates import Estimate, is_variation_between_cells_significant
from chaosity.store.measurements import PREDICTED, is_performance_metric, less_is_better
from chaosity.units import (
    UnitScale,
    choose_scale,
    format_binary_bytes,
    format_count,
    format_percent,
    format_quantity,
    group_thousands,
    join_with_and,
    metric_in_words,
)

# Largest number of slow initiators or places that a caption names; more are only counted.
_MOST_NAMED_CASES = 8
# Largest number of ratios that a caption lists; of more ratios, the caption has the smallest and
# the largest.
_MOST_LISTED_RATIOS = 4
# A sum of loads counts as smaller than the larger load alone only if the interval of their ratio
# ends below 0.99. Even if the sum and the load are equal, some of many intervals end slightly below
# 1.
_RATIO_CLEARLY_BELOW_ONE = 0.99
# A caption explains a mark above its bound only if mark divided by bound is above 1.1, since both
# values scatter by a few per cent.
_RATIO_CLEARLY_ABOVE_BOUND = 1.1
# Least share of a relation's targets that must have values if the relation is compared; some
# targets may have failed.
_LEAST_SHARE_OF_TARGETS = 0.8
# Relations from near to far. Each relation is compared with the nearest measured relation.
_RELATION_TEXTS = {
    "same_node": "the same node",
    "same_package": "another node of the package",
    "other_package": "another package",
}
# A figure draws a separate line for each pair of a panel and a series.
_ROLES_THAT_SEPARATE_LINES: tuple[AxisRole, ...] = ("panels", "series")
# Statements are sentences of a caption without full stop; the first letter can be lower case.
Statements = Iterator[str]


def figure_caption(data: FigureData, scale: UnitScale) -> str:
    """Return the caption of a figure: one to five sentences.

    The caption gives the most important values with interval and n, says if no difference was
    detected, and counts the marks without a value. `scale` is the unit of the values with its
    prefix.
    """
    if (data.marks["status"] == UNMEASURED).all():
        return f"Not measured: {'; '.join(unmeasured_mark_reason_lines(data))}."
    statements = [*_value_statements(data, scale), *_missing_statements(data)]
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in statements)


def _value_statements(data: FigureData, scale: UnitScale) -> Statements:
    """Yield statements about the valid marks."""
    valid = data.valid_marks
    if valid.empty:
        return
    if len(valid) == 1:
        [mark] = marks_of_table(valid)
        yield f"{mark_value_text(mark, scale)} ({mark_location_text(mark, data)})"
        yield from _lowest_bound_statements(data)
        return
    keys = ["host", "configuration", *data.axes]
    if data.spec.has_measured_x or data.spec.kind == "table":
        keys += ["point", "initiator", "target"]
    differ = is_variation_between_cells_significant(data.measurements, keys)
    yield from _lowest_bound_statements(data)
    yield from list(_main_statements(data)) or _range_statements(data, differ)
    if data.spec.cell_note == "distance":
        yield from _order_statements(valid, "note", data.spec.metric, "distance")
    if data.spec.kind == "heatmap":
        yield from _relation_statements(data, differ)
    if (valid["n"] == 1).all() and valid["low"].isna().all():
        yield "the values have no intervals, since each point has one replicate"


def _main_statements(data: FigureData) -> Statements:
    """Yield the statements that belong to the kind of the figure; none if its data allow none."""
    spec = data.spec
    found: Iterable[str] = ()
    if spec.loss_to is not None:
        found = _difference_statements(data, spec.loss_to)
    elif spec.sum:
        found = _sum_statements(data)
    elif spec.compare is not None:
        found = _level_statements(data, spec.compare)
    elif spec.mark_best:
        found = _best_statements(data)
    elif spec.cache_steps:
        found = _cache_step_statements(data)
    elif spec.kind == "curve":
        found = _latency_curve_statements(data)
    elif spec.kind == "scatter":
        name = "distance" if spec.x == "distance" else spec.x_title
        name = name or data.measured_x_column.split(".")[-1].replace("_", " ")
        found = _order_statements(data.valid_marks, "position", spec.metric, name.lower())
    if (statements := [*found]) or "x" not in data.axes or not data.axes["x"].is_numeric:
        yield from statements
    else:
        yield from _change_statements(data)


def _ratio_as_text(ratio: float) -> str:
    """Return a ratio as text, with two decimals below 10 and without decimals from 10 on."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"


def _differs_from_one(ratio: Estimate) -> bool:
    return ratio.is_outside_interval(1.0)


def _ratio(ratio: Estimate) -> str:
    """Return a ratio with its interval as text: "0.67 (95 % interval 0.66 to 0.68)"."""
    if not ratio.low_and_high:
        return _ratio_as_text(ratio.median)
    unclear = "" if _differs_from_one(ratio) else "; no difference detected"
    unclear += f" at {ratio.n_text}" * bool(unclear)
    return f"{_ratio_as_text(ratio.median)} ({ratio.interval_text(_ratio_as_text)}{unclear})"


def _range_text(values: Iterable[float], show: Callable[[float], str] = _ratio_as_text) -> str:
    """Return the smallest and the largest of several numbers as text: "0.67 to 0.71"."""
    known = [*values]
    return " to ".join(dict.fromkeys((show(min(known)), show(max(known)))))


def _ratios_to_base_level(
    data: FigureData, column: str, base: str, levels: Iterable[str], per: Sequence[AxisRole] = ()
) -> Iterator[tuple[tuple[str | None, ...], str, Estimate]]:
    """Yield (place, level, ratio): value at a level of `column` divided by that at level `base`."""
    groups: dict[Any, pd.DataFrame] = {(): data.measurements}
    if per:
        groups = dict(list(data.measurements.groupby([*per])))
    compared = [level for level in levels if level != base]
    for place in itertools.product(*map(data.tick_names_on_axis, per)):
        own = groups.get(place, data.measurements[:0])
        for level in compared:
            above, below = (own[own[column] == name] for name in (level, base))
            ratio = estimate_group_ratio_paired_by_block(above, below)
            if ratio.n:
                yield place, level, ratio


def _list_of_ratios(ratios: Sequence[tuple[Estimate, str]], most: int = _MOST_LISTED_RATIOS) -> str:
    """Return a text that lists ratios; the text of its pair follows each ratio.

    Ratios that do not clearly differ from 1 are only counted. If more than `most` ratios clearly
    differ from 1, only the smallest and the largest of them are listed.
    """
    equal = [pair for pair in ratios if pair[0].low_and_high and not _differs_from_one(pair[0])]
    equal = equal if len(equal) > 1 else []
    clear = sorted((pair for pair in ratios if pair not in equal), key=lambda pair: pair[0].median)
    shown, some = [pair for pair in ratios if pair in clear], ""
    if len(clear) > most:
        shown, some = [clear[0], clear[-1]], f" (smallest and largest of {len(clear)})"
    texts = ["; ".join(f"{_ratio(ratio)}{text}" for ratio, text in shown) + some] if shown else []
    if equal:
        farthest, text = max(equal, key=lambda pair: abs(math.log(pair[0].median)))
        texts.append(
            f"no difference is detected in {len(equal)} of {len(ratios)} at {farthest.n_text}, and "
            f"the largest of these is {_ratio_as_text(farthest.median)} "
            f"({farthest.interval_text(_ratio_as_text)}){text}"
        )
    return "; ".join(texts)


def _difference_statements(data: FigureData, base: str) -> Statements:
    """Yield a statement with the ratios of bars to the bar of the level `base` at the same x."""
    label = data.value_label_without_axis_title
    levels = data.axes["series"].tick_names
    ratios = [
        (ratio, f" for {label('x', str(group))} with {label('series', series)}")
        for (group,), series, ratio in _ratios_to_base_level(data, "series", base, levels, ["x"])
    ]
    if ratios:
        words = (
            f"{metric_in_words(data.spec.metric)} as a ratio to {make_axis_value(base).long_label}"
        )
        yield f"{words}: {_list_of_ratios(ratios)}"


def _sum_statements(data: FigureData) -> Statements:
    """Yield statements on points at which the sum of loads is below the larger load alone."""
    roles: list[AxisRole] = [role for role in ("panels", "x") if role in data.axes]
    cases = []
    for place, _, ratio in _ratios_to_base_level(data, "series", LARGER_ALONE, [SUM], roles):
        axes = [(data.axes[role], str(name)) for role, name in zip(roles, place, strict=True)]
        labels = [axis.legend_label(axis.find_value_by_name(name)) for axis, name in axes]
        cases.append((ratio, ", ".join(labels).replace("Number", "number")))
    if not cases:
        return
    loads = [name for name in data.axes["series"].tick_names if name not in (SUM, LARGER_ALONE)]
    below = [
        case for ratio, case in cases if (ratio.high or ratio.median) < _RATIO_CLEARLY_BELOW_ONE
    ]
    ratios = [(ratio, f" for {case}") for ratio, case in cases]
    words = f"the sum of {join_with_and(loads)} as a ratio to the larger load alone"
    yield f"{words}: {_list_of_ratios(ratios, 2)}"
    words = f"the sum is more than 1 % below the larger load in {len(below)} of"
    named = f" ({'; '.join(below)})" if 0 < len(below) <= _MOST_NAMED_CASES else ""
    yield f"{words} {format_count(len(cases), 'case')}{named}"


def _relation_statements(data: FigureData, differ: bool | None) -> Statements:
    """Yield a statement that compares far relations with the nearest measured relation."""
    rows = data.measurements[data.measurements["status"] == "valid"]
    targets = rows.groupby("relation")["target"].nunique().to_dict()
    found = [name for name in _RELATION_TEXTS if name in targets]
    few = _LEAST_SHARE_OF_TARGETS * rows["target"].nunique()
    comparable = all(rows[column].nunique() <= 1 for column in ("kernel", "initiator_kind"))
    comparable = comparable and len(found) == len(targets)
    if len(found) < 2 or not comparable or min(targets.values()) < few:
        return
    compared = _ratios_to_base_level(data, "relation", found[0], found)
    ratios = [(ratio, f" for {_RELATION_TEXTS[name]}") for _, name, ratio in compared]
    # Many cells together can show a difference that is smaller than the scatter of a single cell.
    clear = any(_differs_from_one(ratio) for ratio, _ in ratios)
    if ratios and (differ is not False or clear):
        words = f"{metric_in_words(data.spec.metric)} as a ratio to {_RELATION_TEXTS[found[0]]}"
        yield f"{words}: {_list_of_ratios(ratios)}"


def _change_statements(data: FigureData) -> Statements:
    """Yield a statement on the change of each series from first to last x in its worst panel."""
    axis = data.axes["x"]
    roles: list[AxisRole] = [role for role in _ROLES_THAT_SEPARATE_LINES if role in data.axes]
    valid = data.measurements[data.measurements["status"] == "valid"]
    rows = replace(data, measurements=valid).measurements_of_each_line
    rows = rows.assign(x=rows["x"].map({value.name: value.number for value in axis.values}))
    labels = {value.number: value.short_label for value in axis.values}
    by_line = rows.groupby(["host", *roles])["x"]
    spans = {key[1:]: (labels[own.min()], labels[own.max()]) for key, own in by_line}
    is_end = [rows["x"] == by_line.transform("min"), rows["x"] == by_line.transform("max")]
    rows = rows.assign(end=np.select(is_end, ["first", "last"], ""))
    # For a metric of which more is better, the smallest ratio is the worst.
    sign = 1.0 if less_is_better(data.spec.metric) else -1.0
    worst: dict[str | None, tuple[Estimate, tuple[str | None, ...]]] = {}
    for place, _, ratio in _ratios_to_base_level(
        replace(data, measurements=rows), "end", "first", ["last"], roles
    ):
        series = place[-1] if "series" in data.axes else None
        if series not in worst or sign * ratio.median > sign * worst[series][0].median:
            worst[series] = (ratio, place)
    one = len({spans[place] for _, place in worst.values()}) == 1
    ratios = []
    for series, (ratio, place) in worst.items():
        parts = [] if one else ["from {} to {}".format(*spans[place])]
        if len(data.tick_names_on_axis("panels")) > 1:
            title = panel_title(data, str(place[0]))  # a word such as "GPU" keeps its capitals
            title = title if title[:2].isupper() else title[:1].lower() + title[1:]
            parts.append(f"in the worst panel, {title}")
        if len(data.tick_names_on_axis("series")) > 1:
            label = data.value_label_without_axis_title("series", str(series))
            parts.insert(0, f"for {label}")
        ratios.append((ratio, f" {', '.join(parts)}" if parts else ""))
    if ratios:
        title, span = axis.title.lower(), spans[next(iter(worst.values()))[1]]
        words = f"{title} {' to '.join(span)}" if one else f"the first to the last {title}"
        words = f"from {words}, {metric_in_words(data.spec.metric)} changes by the factor"
        listed = _list_of_ratios(ratios)
        yield f"{words}{':' * listed.startswith('no')} {listed}"


def _level_statements(data: FigureData, compare: LevelsComparedInCaption) -> Statements:
    """Yield statements on the smallest size at which levels differ, and on slow initiators."""
    wanted = compare["level"] if isinstance(compare["level"], list) else [compare["level"]]
    role: AxisRole = "x" if "x" in data.axes else "columns"
    axis = data.axes[role]
    if not axis.is_numeric:
        yield f"not compared: {axis.title.lower()} has values that are not numbers"
        return
    measured = [level for level in wanted if (data.measurements["level"] == level).any()]
    numbers = {value.name: value.number for value in axis.values}
    labels = {value.number: value.long_label for value in axis.values}
    rows = data.measurements.assign(x=data.measurements[role].map(numbers))
    for together in measured or wanted[:1]:
        found = compare_latency_together_and_alone(rows, together, compare["to"])
        level, base = (
            f"{compare['column']} {name}".replace("_", " ") for name in (together, compare["to"])
        )
        yield from _divergence_statements(found, labels, level, base)


def _divergence_statements(
    found: LatencyTogetherAndAlone, labels: dict[float, str], level: str, base: str
) -> Statements:
    """Yield statements on the sizes at which `level` has a higher latency than `base`."""
    ratios, limit = found.ratios, f"{DIVERGING_RATIO:g}"
    if not ratios:
        yield f"no latency was measured both with {level} and with {base}"
        return
    medians = [ratio.median for ratio in ratios.values()]
    large = [size for size, each in ratios.items() if (each.low or each.median) > DIVERGING_RATIO]
    if found.start is None:
        above = (
            f"the ratio is above {limit} at {join_with_and([labels[x] for x in large or ratios])}"
        )
        yield (
            f"latency with {level} is {_range_text(medians)} times the latency with {base} over "
            f"all sizes, and {medians[-1]:.2f} times at the largest size; "
            + (above if large else f"no ratio is clearly above {limit}")
        )
    else:
        large = [size for size in ratios if size >= found.start]
        yield (
            f"latency with {level} is {_ratio(ratios[found.start])} times the latency with {base} "
            f"at {labels[found.start]}"
            + f", and more than {limit} times at every larger size"
            * (len(large) > 1)
        )
    if len(large) > (found.start is not None):
        most = max(large, key=lambda size: ratios[size].median)
        yield f"maximum: {_ratio(ratios[most])} at {labels[most]}"
    if found.compared:
        yield _slow_initiators(found, level, base)


def _slow_initiators(found: LatencyTogetherAndAlone, level: str, base: str) -> str:
    """Return a statement on initiators that are slower than the other initiators of their node."""
    if not found.slow:
        return f"no initiator is slower than others of its node with {level}"
    slow = sorted(found.slow, key=lambda slow: natural_sort_key(slow.initiator))
    alone = [each.alone for each in slow if not math.isnan(each.alone)]
    one = len(slow) == 1
    names = places_in_words(each.initiator for each in slow)
    return (
        f"with {level}, {format_count(len(slow), 'initiator')} {'is' if one else 'are'} slower "
        f"than others of {'its node' if one else 'their nodes'} "
        f"({_range_text(each.together.median for each in slow)} times the latency of the others"
        + (f"; {_range_text(alone)} times with {base})" if alone else ")")
        + (f": {names}" if len(slow) <= _MOST_NAMED_CASES else "")
    )


def _best_statements(data: FigureData) -> Statements:
    """Yield statements on the best mark and on each x whose best mark is not clearly worse."""
    best = best_mark(data)
    if best is None:
        return
    axis, estimate = data.axes["x"], Estimate.of_cell(best)
    keys: list[AxisRole] = [role for role in data.axes if role != "x" and best.get(role)]
    best_of_x = data.valid_marks_best_first.drop_duplicates("x")[["x", *keys]]
    of_best = replace(data, measurements=data.measurements.merge(best_of_x, on=["x", *keys]))
    ratios = _ratios_to_base_level(of_best, "x", best["x"], axis.tick_names)
    similar = [
        axis.find_value_by_name(name).short_label
        for _, name, ratio in ratios
        if not _differs_from_one(ratio)
    ]
    labels = [data.value_label_without_axis_title(role, str(best[role])) for role in keys]
    value = estimate.text(choose_scale(data.spec.metric, [estimate.median]))
    place = f"{axis.title.lower()} {axis.find_value_by_name(best['x']).short_label}"
    yield f"best: {', '.join([place, *labels, value])}"
    if similar:
        yield f"{axis.title} {join_with_and(similar)}: not clearly worse"
    else:
        yield "no other number is as good"


def _range_statements(data: FigureData, differ: bool | None) -> Statements:
    """Yield the best and the worst mark with places, or a range if no difference is clear."""
    metric, less = data.spec.metric, less_is_better(data.spec.metric)
    valid = data.valid_marks_best_first
    marks = marks_of_table(valid.iloc[[0, -1]])
    best, worst = map(Estimate.of_cell, marks)
    low, high = sorted((best.median, worst.median))
    scale = choose_scale(metric, (low, high))
    if scale.text(low) == scale.text(high):
        numbers = format_count(len(valid), data.mark_noun)
        yield f"{scale.text(low)} in all {numbers}, n = {valid['n'].max()}"
        return
    if differ is False:
        yield (
            f"{format_count(len(valid), data.mark_noun)} have {scale.number(low)} to "
            f"{scale.text(high)}, n = {valid['n'].max()}; no difference between these "
            f"{data.mark_noun}s is detected"
        )
        return

    def text_of_end(end: Estimate) -> str:
        own = choose_scale(metric, [end.median])
        return end.text(own) if end.low_and_high else own.text(end.median)

    # A value of a metric that measures no performance, such as a count, is neither good nor bad.
    first, last = ("best", "worst") if is_performance_metric(metric) else ("highest", "lowest")
    places = [mark_location_text(mark, data) for mark in marks]
    yield f"{first}: {text_of_end(best)} ({places[0]})"
    change = worst.median / best.median
    words = f"{format_percent(abs(change - 1.0))} {'more' if less else 'less'} than"
    # A ratio of 10 or more is written as a multiple, a smaller ratio as a percentage.
    words = f"{change:.0f} times" if change >= 10.0 else words
    yield f"{last}: {text_of_end(worst)} ({places[1]}; {words} the {first})"


def _latency_curve_statements(data: FigureData) -> Statements:
    """Yield statements on the unloaded latency and on the bandwidth at which latency doubles."""
    numbers, metric = latency_curve_numbers(data), data.spec.metric
    known = numbers[numbers["median"].notna()]
    unloaded, knees, peaks = (
        known[known["quantity"] == name] for name in ("unloaded", "knee", "peak")
    )
    if len(unloaded):
        values = _range_text(unloaded["median"], lambda value: format_quantity(metric, value))
        yield f"unloaded {metric_in_words(metric)} is {values}"
    curve: list[str] = [*data.axes] or ["host"]
    doubled = knees[knees["note"].isna()].sort_values("median", kind="stable")
    doubled = doubled.merge(peaks[[*curve, "median"]], on=curve, suffixes=("", "_of_peak"))
    ends = []
    for end in (
        pd.concat([doubled.head(1), doubled.tail(1)]).drop_duplicates(curve).to_dict("records")
    ):
        named = [role for role in data.axes if len(doubled) > 1 and isinstance(end[role], str)]
        labels = [data.value_label_without_axis_title(role, str(end[role])) for role in named]
        share = f"{format_percent(end['median'] / end['median_of_peak'])} of the peak"
        ends.append(
            f"{format_quantity(data.x_metric, end['median'])} ({', '.join([share, *labels])})"
        )
    if ends:
        yield f"{metric_in_words(metric)} doubles at {' to '.join(ends)}"
    if others := len(knees) - len(doubled):
        yield (
            f"{metric_in_words(metric)} does not double before the peak on {others} of "
            f"{format_count(len(knees), 'curve')}"
        )


def _order_statements(table: pd.DataFrame, by: str, metric: str, name: str) -> Statements:
    """Yield whether pairs with a smaller number in column `by` (such as a distance) are better."""
    known = table[table[by].notna()]
    if len(known) < 2:
        return
    if known[by].nunique() == 1:
        yield f"all pairs have the same {name} ({float(known[by].iloc[0]):g})"
        return
    has_intervals = bool(known["low"].notna().all())
    ends = ("low", "high") if has_intervals else ("median", "median")
    numbers, medians, low, high = (
        known[column].to_numpy(float) for column in (by, "median", *ends)
    )
    nearer = np.less.outer(numbers, numbers)
    # For each pair of marks: by how much one mark is worse, and whether their intervals are
    # disjoint.
    excess, clear = np.log(medians[:, None] / medians), np.greater.outer(low, high)
    if not less_is_better(metric):
        excess, clear = -excess, np.less.outer(high, low)
    wrong = nearer & clear
    yield (
        f"the {name} {'contradicts' if wrong.any() else 'agrees with'} the measurement: in "
        f"{group_thousands(int(wrong.sum()))} of {format_count(int(nearer.sum()), 'comparison')} "
        f"the pair with the smaller {name} has the worse value "
        + ("and the intervals do not overlap" if has_intervals else "(without intervals)")
    )
    if wrong.any():
        worst = np.unravel_index(np.where(wrong, excess, -np.inf).argmax(), wrong.shape)
        pairs = [
            f"{access_in_words(mark['initiator'], mark['target'])} ({name} {mark[by]:g}, "
            f"{format_quantity(metric, mark['median'])})"
            for mark in known.iloc[np.array(worst)].to_dict("records")
        ]
        yield f"largest contradiction: {' is worse than '.join(pairs)}"


def _lowest_bound_statements(data: FigureData) -> Statements:
    """Yield statements on the lowest bound along x, and on how near the marks are to this bound."""
    bounds = data.bounds_of_marks().loc[data.valid_marks.index].dropna(how="all")
    if bounds.empty:
        return
    roles: list[AxisRole] = [role for role in _ROLES_THAT_SEPARATE_LINES if role in data.axes]
    marks = data.valid_marks.loc[bounds.index]
    by: list[str] = [*roles] or ["metric"]
    places = marks["x"].map(data.axes["x"].tick_names.index)
    reached = marks["median"] / bounds.min(axis=1)
    marks = marks.assign(place=places, lowest=bounds.idxmin(axis=1), reached=reached)
    lines = list(marks.sort_values("place").groupby(by, sort=False, dropna=False))
    # Lines that have the same sequence of lowest bounds along x share a statement.
    found: dict[str, list[tuple[tuple[Any, ...], pd.DataFrame]]] = {}
    for line, own in sorted(lines, key=lambda line: line[1].index.min()):
        found.setdefault(_sequence_of_bounds(data, own), []).append((line, own))
    # A statement names panels only if the lines of a series differ between panels.
    pairs = {
        (text, dict(zip(roles, line, strict=False)).get("series"))
        for text, own in found.items()
        for line, _ in own
    }
    with_panels = len({series for _, series in pairs}) < len(pairs)
    for text, lines in found.items():
        labels = dict.fromkeys(
            ", ".join(
                data.value_label_without_axis_title(role, name)
                for role, name in zip(roles, line, strict=False)
                if isinstance(name, str) and (role == "series" or with_panels)
            )
            for line, _ in lines
        )
        shares = [*pd.concat([own["reached"] for _, own in lines])]
        of_lines = f" for {join_with_and([*labels])}" if len(found) > 1 else ""
        excess = (
            f"; the largest value is {format_percent(max(shares) - 1.0)} above the bound, so bound "
            "and values were measured under different conditions, or a load was disturbed"
        )
        yield (
            f"lowest bound{of_lines}: {text}; the values reach "
            f"{_range_text(shares, format_percent)} of this bound"
            f"{excess if max(shares) > _RATIO_CLEARLY_ABOVE_BOUND else ''}"
        )


def _sequence_of_bounds(data: FigureData, line: pd.DataFrame) -> str:
    """Return the lowest bound of each range of x as text: "... up to 8 (threads), ... from 16"."""
    axis, names = data.axes["x"], [*line["lowest"]]
    title, last = axis.title.lower(), names[-1]
    start = max((n + 1 for n, name in enumerate(names) if name != last), default=0)
    if start == 0:
        return f"{last} for every {title}"
    before = " or ".join(dict.fromkeys(names[:start]))
    end, begin = (axis.values[line["place"].iloc[n]].short_label for n in (start - 1, start))
    return f"{before} up to {end} ({title}), {last} from {begin}"


def _cache_step_statements(data: FigureData) -> Statements:
    """Yield a statement on each step: its size, its latencies, and hwloc's caches of this size."""
    if not data.steps:
        rise = format_percent(RISE_PER_DOUBLING - 1.0)
        yield f"no step is found: latency never rises by {rise} for a doubled size"
    seen: set[str] = set()
    for step in data.steps:
        caches = [
            (name, format_binary_bytes(size))
            for name, size in data.cache_bytes
            if step.first_bytes <= size <= step.last_bytes
        ]
        seen |= {name for name, _ in caches}
        yield _step_text(step, caches, data)
    missed = [
        f"{name} ({format_binary_bytes(size)})"
        for name, size in data.cache_bytes
        if name not in seen
    ]
    if missed:
        yield f"no step of the latency belongs to {join_with_and(missed)}, as hwloc reports"


def _step_text(step: LatencyStep, caches: Sequence[tuple[str, str]], data: FigureData) -> str:
    """Return a step as a statement: "L2 ends between 512 KiB and 1 MiB, at about 590 KiB (...)"."""
    size, metric = format_binary_bytes, data.spec.metric
    end = step.end_bytes
    at = (
        f"between {size(step.below_bytes)} and {size(step.above_bytes)}, at about "
        f"{size(end.median)} ({end.interval_and_n_text(size)})"
    )
    rise = (
        f"rises from {format_quantity(metric, step.lower_ns)}{' or less' * step.is_open_below} to "
        f"{format_quantity(metric, step.upper_ns)}{' or more' * step.is_open_above}"
    )
    if len(caches) == 1:
        [(name, reported)] = caches
        return f"{name} ends {at}: latency {rise}; hwloc reports {reported}"
    if caches:
        names, sizes = (join_with_and(each) for each in zip(*caches, strict=True))
        known = f"{names} ({sizes} by hwloc) end in this step; more sizes would separate them"
    else:
        known = "hwloc has no cache of such a size" if data.cache_bytes else "caches are unknown"
    return f"latency {rise} {at}; {known}"


def _missing_statements(data: FigureData) -> Statements:
    """Yield how many marks are predicted, and for each status how many have no value."""
    numbers = data.marks["status"].value_counts().to_dict()
    total, predicted = len(data.marks), numbers.pop(PREDICTED, 0)
    marks = format_count(total, data.mark_noun)
    if predicted:
        low, high, value = (data.marks[f"predicted_{name}"] for name in ("low", "high", "value"))
        widths = (high - low) / value / 2.0
        look = "hollow" if data.spec.kind == "lines" else "hatched"
        yield (
            f"{group_thousands(predicted)} of {marks} are predicted, not measured ({look}), with "
            f"95 % intervals of ±{format_percent(widths.median())} in the median and at most "
            f"±{format_percent(widths.max())}"
        )
    if without := total - predicted - numbers.pop("valid", 0):
        reasons = [f"{numbers[key]} {text}" for key, text in STATUS_TEXTS.items() if key in numbers]
        have = "has" if without == 1 else "have"
        yield f"{without} of {marks} {have} no value: {', '.join(reasons)}"
