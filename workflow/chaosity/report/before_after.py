"""What changed on a host, and what that did to the points that touch it: before and after."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chaosity.components import ComponentState
from chaosity.report.machine_facts import Fact, shown, words
from chaosity.statistics import LOAD, POINT, before_and_after
from chaosity.units import choose_scale, format_count, group_thousands

# The newest changes of a host; all of them stand in the components' history.
_MOST_CHANGES = 4
# Of each change as many of the points that lost most, and as many of those that gained most.
_MOST_POINTS = 6
_LONGEST_VALUE = 90
Histories = Mapping[str, Sequence[ComponentState]]


@dataclass(frozen=True)
class ChangedComponent:
    """A component and what is different about it: facts are "from -> to"."""

    name: str
    verb: str
    before: str
    after: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class ChangedPoint:
    """A cell before and after, values with unit, intervals with n."""

    experiment: str
    point: str
    load: str | None
    before: str
    interval_before: str
    after: str
    interval_after: str
    change: str
    interval: str


@dataclass(frozen=True)
class Change:
    """Components that changed at one time, and the points that were measured again since.

    Attributes:
        components: what changed.
        sentence: what the change did, in sum.
        lowest: the points that lost most or gained least, the worst first.
        highest: the points that gained most, the best first; empty when `lowest` has them all.
        omitted: number of points that are in neither list.
        asked_otherwise: number of points that were asked for something else after the change.
    """

    components: tuple[ChangedComponent, ...]
    sentence: str
    lowest: tuple[ChangedPoint, ...]
    highest: tuple[ChangedPoint, ...]
    omitted: int
    asked_otherwise: int


def changes(history: pd.DataFrame, components: Histories) -> tuple[list[Change], int]:
    """The newest changes, the newest first, and the number of older ones that are left out.

    Args:
        history: as `store.measurement_history` makes it.
        components: the states of each component.
    """
    # Not `compare`: which eras face each other, and after which change, is each cell's own matter.
    cells = _with_company(before_and_after(history))
    found: list[tuple[str, Change]] = []
    for text, rows in cells.groupby("changed", sort=False):
        changed = json.loads(str(text))
        newest = max((after for _, after in changed.values()), default="")
        found.append((newest, _change(changed, rows, components)))
    found.sort(key=lambda item: item[0], reverse=True)
    shown_ones = [change for _, change in found[:_MOST_CHANGES]]
    return shown_ones, len(found) - len(shown_ones)


def _with_company(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with the number of loads of their point, and of those that have the load's name."""
    loads = cells[[*POINT, *LOAD]].drop_duplicates()
    for column, keys in (("loads", [*POINT]), ("namesakes", [*POINT, "load"])):
        sizes = loads.groupby(keys, dropna=False).size()
        cells[column] = sizes.reindex(pd.MultiIndex.from_frame(cells[keys])).to_numpy()
    return cells


def _change(
    changed: Mapping[str, Sequence[str | None]], rows: pd.DataFrame, components: Histories
) -> Change:
    comparable = rows[rows["comparable"]].sort_values("ratio", kind="stable")
    points = comparable.to_dict("records")
    lowest, highest = points, []
    if len(points) > 2 * _MOST_POINTS:
        lowest, highest = points[:_MOST_POINTS], points[: -_MOST_POINTS - 1 : -1]
    return Change(
        components=tuple(
            _component(name, *moments, components.get(name, ()))
            for name, moments in changed.items()
        ),
        sentence=_sentence(comparable),
        lowest=tuple(map(_point, lowest)),
        highest=tuple(map(_point, highest)),
        omitted=len(points) - len(lowest) - len(highest),
        asked_otherwise=len(rows) - len(comparable),
    )


def _component(
    name: str, before: str | None, after: str | None, states: Sequence[ComponentState]
) -> ChangedComponent:
    contents = {state.since: dict(state.content or {}) for state in states}
    was, became = contents.get(str(before), {}), contents.get(str(after), {})
    facts = tuple(_differences(was, became))
    replaced = was.get("serial") != became.get("serial")
    return ChangedComponent(
        name=name,
        verb="was replaced" if replaced else "changed",
        before=_minute(before),
        after=_minute(after),
        facts=facts,
    )


def _differences(
    was: Mapping[str, Any], became: Mapping[str, Any], prefix: str = ""
) -> Iterator[Fact]:
    """What is different, key by key, below nested keys too."""
    for key in dict.fromkeys([*was, *became]):
        old, new = was.get(key), became.get(key)
        if old == new:
            continue
        name = f"{prefix} {words(key)}".strip()
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, name)
            continue
        from_, to = _short(key, old, key in was), _short(key, new, key in became)
        arrow = f"{from_} \N{RIGHTWARDS ARROW} {to}"
        yield Fact(name, "changed, see the component's file" if from_ == to else arrow)


def _short(key: str, value: Any, present: bool) -> str:
    text = shown(key, value) if present else "nothing"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _minute(moment: str | None) -> str:
    return f"{moment[:16].replace('T', ' ')} UTC" if moment else "an unknown time"


def _sentence(rows: pd.DataFrame) -> str:
    """How many points gained, lost, or show no difference, and the extremes."""
    if rows.empty:
        return "No point that touches it has a valid value from before and from after."
    gained = rows[(rows["ratio_low"] > 1.0).fillna(False)]
    lost = rows[(rows["ratio_high"] < 1.0).fillna(False)]
    unknown = int(rows["ratio_low"].isna().sum())
    parts = [f"{group_thousands(len(part))} {verb} more than their replicates scatter"
             for part, verb in ((gained, "gained"), (lost, "lost")) if len(part)]  # fmt: skip
    rest = len(rows) - len(gained) - len(lost) - unknown
    if rest:
        parts.append(f"in {group_thousands(rest)} no difference was detected")
    if unknown:
        parts.append(f"{group_thousands(unknown)} have a single replicate, so no interval")
    worst, best = rows["ratio"].min(), rows["ratio"].max()
    span = _signed(best) if len(rows) == 1 else f"{_signed(worst)} to {_signed(best)}"
    return f"{format_count(len(rows), 'value')} measured again: {', '.join(parts)}; changes {span}."


def _signed(ratio: float) -> str:
    """A ratio as a change: 1.034 -> "+3.4 %"."""
    change = 100.0 * (ratio - 1.0)
    return f"{change:+.1f} %" if abs(change) < 9.95 else f"{change:+.0f} %"


def _load_words(row: Mapping[str, Any]) -> str:
    """Which of several loads of a point: its name, and whose it is where others have it too."""
    if row["namesakes"] > 1:
        return f"{row['load']} of {row['initiator']} on {row['target']}"
    return str(row["load"])


def _point(row: Mapping[str, Any]) -> ChangedPoint:
    scale = choose_scale(row["metric"], [row["median_before"], row["median_after"]])
    known = row["ratio_low"] is not None and not pd.isna(row["ratio_low"])
    interval = "one replicate, no interval"
    if known:
        interval = f"95 % interval {_signed(row['ratio_low'])} to {_signed(row['ratio_high'])}"
        if row["ratio_low"] <= 1.0 <= row["ratio_high"]:
            n = f"{row['n_before']} and {row['n_after']}"
            interval = f"no difference detected at n = {n}; {interval}"

    def interval_of(side: str) -> str:
        n = int(row[f"n_{side}"])
        if n < 2:
            return "one replicate, no interval"
        low, high = scale.number(row[f"low_{side}"]), scale.number(row[f"high_{side}"])
        return f"{low} to {high}, n = {n}"

    return ChangedPoint(
        experiment=row["experiment"],
        point=row["point"],
        load=_load_words(row) if row["loads"] > 1 else None,
        before=scale.text(row["median_before"]),
        interval_before=interval_of("before"),
        after=scale.text(row["median_after"]),
        interval_after=interval_of("after"),
        change=_signed(row["ratio"]),
        interval=interval,
    )
