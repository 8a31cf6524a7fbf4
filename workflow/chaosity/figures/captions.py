"""The one sentence under a figure: what to see in it, computed from its data."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from chaosity.figures.clauses import (
    bounds_clause,
    compare_clause,
    curve_clause,
    loss_clause,
    order_clause,
    scatter_clause,
)
from chaosity.figures.figure_data import FigureData
from chaosity.figures.mark_texts import numbers_of, panel_title, unmeasured, words_of
from chaosity.statistics import (
    UNMEASURED,
    Estimate,
    block_ratio,
    cells_differ,
    is_performance,
    less_is_better,
)
from chaosity.units import Scale, format_count, format_percent, metric_words

_MOST_TARGETS = 0.8  # failed cells are no reason not to compare
# Near to far; a relation is compared with the nearest that was measured.
_RELATIONS = {
    "same_node": "the same node",
    "same_package": "another node of the package",
    "other_package": "another package",
}


def caption_of(cells: FigureData, scale: Scale) -> str:
    """What to see in a figure; says so when there is nothing to compare or to be told from noise.

    Args:
        cells: what the figure shows.
        scale: the unit in which it shows it.
    """
    valid = cells.cells[cells.cells["status"] == "valid"]
    if valid.empty and (cells.cells["status"] == UNMEASURED).all():
        return f"Not measured: {'; '.join(unmeasured(cells))}."
    if valid.empty:
        return f"No valid value: {format_count(len(cells.cells), 'mark')} failed or not measured."
    if len(valid) == 1:
        only = valid.iloc[0].to_dict()
        text = f"One value: {words_of(only, cells.axes)} gives {numbers_of(only, scale)}"
        bounded = bounds_clause(cells) if cells.bounds else None
        return f"{text}; {bounded}." if bounded else f"{text}."
    text = _special(cells, valid, scale)
    if text is None and _has_numbers(cells):
        text = _over_a_factor(cells)
    differ = cells_differ(cells.rows, ["host", "configuration", *_mark(cells)])
    parts = [text or _range(valid, cells, scale, differ)]
    if cells.bounds and (bounded := bounds_clause(cells)):
        parts.insert(0, bounded)
    if cells.spec.cell_note == "distance":
        order = order_clause(valid, "note", cells.spec.metric, "distance")
        parts += [order] if order else []
    if cells.spec.kind == "heatmap":
        near, ratios = _by_relation(cells)
        # Many cells together can show what is lost in the noise of each.
        if ratios and (differ is not False or any(_detected(ratio) for _, ratio in ratios)):
            less = less_is_better(cells.spec.metric)
            verb = "takes" if less else "gives"
            clauses = [f"{_RELATIONS[name]} {verb} {_ratio(ratio, less)}" for name, ratio in ratios]
            parts.append(f"compared with {_RELATIONS[near]}, {' and '.join(clauses)}")
    if (valid["n"] == 1).all():
        parts.append("no intervals, for there is one replicate")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _special(cells: FigureData, valid: pd.DataFrame, scale: Scale) -> str | None:
    """What the kind of figure asks for beside best and worst; None where nothing."""
    if cells.spec.loss_to is not None:
        return loss_clause(cells)
    if cells.spec.compare is not None:
        return compare_clause(cells)
    if cells.spec.kind == "curve":
        return curve_clause(cells)
    return scatter_clause(cells, valid, scale) if cells.spec.kind == "scatter" else None


def _mark(cells: FigureData) -> list[str]:
    """ColumnValues of the rows that make a mark."""
    if cells.spec.plotted or cells.spec.kind == "table":
        return [*cells.axes, "point", "initiator", "target"]
    return list(cells.axes)


def _has_numbers(cells: FigureData) -> bool:
    """Whether the axis x is a number, so that first and last mean something."""
    return "x" in cells.axes and cells.axes["x"].numeric


def _range(valid: pd.DataFrame, cells: FigureData, scale: Scale, differ: bool | None) -> str:
    """The best and the worst mark and how far they are apart, if that is more than noise."""
    more = not less_is_better(cells.spec.metric)
    ordered = valid.sort_values("median", ascending=not more, kind="stable")
    best, worst = ordered.iloc[0], ordered.iloc[-1]
    if differ is False:
        low, high = sorted((best["median"], worst["median"]))
        n = int(valid["n"].max())
        return (
            f"no difference between the {format_count(len(valid), 'mark')} detected at n = {n}: all lie "
            f"between {scale.number(low)} and {scale.text(high)}"
        )
    if best["median"] == worst["median"]:
        return f"all marks have {scale.text(best['median'])}"
    change = worst["median"] / best["median"] - 1.0
    judged = is_performance(cells.spec.metric)  # a count is neither good nor bad
    first, last = ("best", "worst") if judged else ("highest", "lowest")
    return (
        f"{first} is {words_of(best, cells.axes)} with {scale.text(best['median'])}, "
        f"{last} {words_of(worst, cells.axes)} with {scale.text(worst['median'])} "
        f"({format_percent(abs(change))} {'less' if more else 'more'})"
    )


def _by_relation(cells: FigureData) -> tuple[str, list[tuple[str, Estimate]]]:
    """The nearest relation of initiator and target, and how the farther ones compare with it.

    Nothing unless most targets are seen from every relation: else the targets are compared too.
    """
    rows = cells.rows[cells.rows["status"] == "valid"]
    seen = rows.groupby("relation")["target"].nunique().to_dict()
    found = [name for name in _RELATIONS if name in seen]
    few = _MOST_TARGETS * rows["target"].nunique()
    alike = all(rows[column].nunique() <= 1 for column in ("kernel", "initiator_kind"))
    comparable = alike and len(found) == len(seen)
    if len(found) < 2 or not comparable or min(seen.values()) < few:
        return "", []
    near = rows[rows["relation"] == found[0]]
    ratios = [(name, block_ratio(rows[rows["relation"] == name], near)) for name in found[1:]]
    return found[0], [(name, ratio) for name, ratio in ratios if ratio.n]


def _detected(ratio: Estimate) -> bool:
    """Whether an interval says that there is a difference."""
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1.0 <= ratio.high


def _ratio(ratio: Estimate, less: bool) -> str:
    """A ratio with its interval, and what it means when one is inside."""
    as_much = "as long" if less else "as much"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.median:.2f} times {as_much}"
    interval = f"95 % interval {ratio.low:.2f} to {ratio.high:.2f}"
    if not _detected(ratio):
        return f"no difference detected at n = {ratio.n} ({ratio.median:.2f} times, {interval})"
    return f"{ratio.median:.2f} times {as_much} ({interval})"


def _over_a_factor(cells: FigureData) -> str | None:
    """How each series changes from the first to the last value of x; of panels the worst."""
    changes = _changes(cells)
    if not changes:
        return None
    worst: dict[str | None, _Change] = {}
    for change in changes:
        held = worst.setdefault(change.series, change)
        more = not less_is_better(cells.spec.metric)
        if (change.ratio.median < held.ratio.median) == more:
            worst[change.series] = change
    shown = list(worst.values())
    if len(shown) > 4:  # the extremes stand for the many
        shown.sort(key=lambda change: change.ratio.median)
        shown = [shown[0], shown[-1]]
    same_span = len({(change.start, change.stop) for change in shown}) == 1
    first, last = (_number(cells, end) for end in (shown[0].start, shown[0].stop))
    span = f"going from {first} to {last}" if same_span else "growing"
    clauses = [_clause(change, cells, same_span) for change in shown]
    listed = clauses[0] if len(clauses) == 1 else f"{', '.join(clauses[:-1])} and {clauses[-1]}"
    words = metric_words(cells.spec.metric)
    return f"with the {cells.axes['x'].title.lower()} {span}, {words} goes to {listed}"


@dataclass(frozen=True)
class _Change:
    """Last over first value of one line."""

    series: str | None
    panel: str | None
    ratio: Estimate
    start: float
    stop: float


def _clause(change: _Change, cells: FigureData, same_span: bool) -> str:
    """One line's change, and which line that is."""
    ratio, notes = change.ratio, []
    if change.series is not None:
        notes.append(_place(cells, "series", change.series))
    if not same_span:
        notes.append(f"{_number(cells, change.start)} to {_number(cells, change.stop)}")
    if ratio.low is not None and ratio.high is not None:
        low, high = _number_of_times(ratio.low), _number_of_times(ratio.high)
        notes.append(f"95 % interval {low} to {high}")
        if not _detected(ratio):
            notes.append(f"no change detected at n = {ratio.n}")
    if change.panel is not None and len(cells.axes["panels"].places) > 1:
        title = panel_title(cells, change.panel)
        if not title[:2].isupper():  # PU stays
            title = title[:1].lower() + title[1:]
        notes.append(f"worst panel: {title}")
    return f"{_number_of_times(ratio.median)} times" + (f" ({'; '.join(notes)})" if notes else "")


def _number_of_times(ratio: float) -> str:
    """A ratio with decimals as far as they matter."""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"


def _number(cells: FigureData, value: float) -> str:
    """A value of x as its axis shows it."""
    return next(place.short for place in cells.axes["x"].places if place.sort[0] == value)


def _place(cells: FigureData, role: str, name: str) -> str:
    return next(place.long for place in cells.axes[role].places if place.name == name)


def _changes(cells: FigureData) -> list[_Change]:
    """The change of every line that has two ends."""
    rows = cells.rows[cells.rows["status"] == "valid"]
    order = {place.name: float(place.sort[0]) for place in cells.axes["x"].places}
    found = []
    for panel in cells.axes["panels"].names if "panels" in cells.axes else [None]:
        here = rows if panel is None else rows[rows["panels"] == panel]
        for series in cells.axes["series"].names if "series" in cells.axes else [None]:
            line = here
            if series is not None:  # what belongs to no series is where all of them start
                line = here[(here["series"] == series) | here["series"].isna()]
                if not (line["series"] == series).any():
                    continue
            ends = line["x"].map(order)
            start, stop = ends.min(), ends.max()
            if line.empty or start == stop:
                continue
            ratio = block_ratio(line[ends == stop], line[ends == start])
            if ratio.n:
                found.append(_Change(series, panel, ratio, start, stop))
    return found
