"""Describe the changes of a host's components, and the values before and after each change."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from chaosity.components.component_history import ComponentState, component_differences
from chaosity.report.problems import load_words
from chaosity.report.run import Run
from chaosity.statistics.estimates import Estimate, Ratio, change_text
from chaosity.statistics.ratios import compare_neighbouring_periods
from chaosity.units import format_count, group_thousands

# The report shows this many newest changes; the components' history has all changes.
_MOST_CHANGES = 4
# Most rows in each part of the table; the parts are the largest losses and the largest gains.
_MOST_POINTS = 6
# The states of each component by name, see `components.read_component_histories`.
Histories = Mapping[str, Sequence[ComponentState]]


def component_changes_section(run: Run) -> dict[str, Any] | None:
    """Return the changes of components that have values before and after; None without any.

    The newest changes are first. `lowest` and `highest` have the points with the largest losses and
    gains; `omitted` is the number of points, or of changes, that are left out, and `not_comparable`
    that of points whose request changed too.
    """
    # `compare` is not used here, because each cell has other periods to compare.
    cells = compare_neighbouring_periods(run.history)
    groups = [(json.loads(str(text)), rows) for text, rows in cells.groupby("changed", sort=False)]
    groups.sort(key=lambda item: max((at for _, at in item[0].values()), default=""), reverse=True)
    shown = [_change(changed, rows, run.histories) for changed, rows in groups[:_MOST_CHANGES]]
    return {"changes": shown, "omitted": len(groups) - len(shown)} if shown else None


def _change(
    changed: Mapping[str, tuple[str | None, str | None]], rows: pd.DataFrame, histories: Histories
) -> dict[str, Any]:
    """Return the components that changed at the same time, and the points measured again."""
    comparable = rows[rows["comparable"]].sort_values("ratio", kind="stable")
    lowest = list(map(_changed_point, comparable.to_dict("records")))
    number, highest = len(lowest), list[Any]()
    if number > 2 * _MOST_POINTS:
        lowest, highest = lowest[:_MOST_POINTS], lowest[: -_MOST_POINTS - 1 : -1]
    return {
        "components": [
            _changed_component(name, *moments, histories.get(name, ()))
            for name, moments in changed.items()
        ],
        "sentence": _effect_sentence(comparable),
        "lowest": lowest,
        "highest": highest,
        "omitted": number - len(lowest) - len(highest),
        "not_comparable": len(rows) - number,
    }


def _changed_component(
    name: str, before: str | None, after: str | None, states: Sequence[ComponentState]
) -> dict[str, Any]:
    """Return a component, what happened to it, and its changed values as "before -> after"."""
    contents = {state.since: dict(state.content or {}) for state in states}
    old, new = contents.get(str(before), {}), contents.get(str(after), {})
    moments = [f"{at[:16].replace('T', ' ')} UTC" if at else "an unknown time"
               for at in (before, after)]  # fmt: skip
    return {
        "name": name,
        "verb": "changed" if old.get("serial") == new.get("serial") else "was replaced",
        "before": moments[0],
        "after": moments[1],
        "facts": {
            key: text or "changed, see the component's file"
            for key, text in component_differences(old, new)
        },
    }


def _effect_sentence(rows: pd.DataFrame) -> str:
    """Return how many values increased, decreased or stayed the same, and the largest changes."""
    if rows.empty:
        return "No point of the changed component has valid values before and after the change."
    low, high = rows["ratio_low"], rows["ratio_high"]
    numbers = {
        "increased by more than the scatter of the replicates": (low > 1.0).sum(),
        "decreased by more than the scatter of the replicates": (high < 1.0).sum(),
        "without a detected difference": ((low <= 1.0) & (high >= 1.0)).sum(),
        "with a single replicate, so without an interval": low.isna().sum(),
    }
    parts = [f"{group_thousands(number)} {text}" for text, number in numbers.items() if number]
    ends = dict.fromkeys((change_text(rows["ratio"].min()), change_text(rows["ratio"].max())))
    values = format_count(len(rows), "value")
    verb = "was" if len(rows) == 1 else "were"
    return f"{values} {verb} measured again: {', '.join(parts)}. Change: {' to '.join(ends)}."


def _changed_point(row: Mapping[Hashable, Any]) -> dict[str, Any]:
    """Return a cell before and after a change; the ratio is that of the value after."""
    before, after = (
        Estimate.of_cell({key: row[f"{key}_{side}"] for key in ("median", "low", "high", "n")})
        for side in ("before", "after")
    )
    low, high = (None if pd.isna(row[end]) else row[end] for end in ("ratio_low", "ratio_high"))
    return {
        **{name: row[name] for name in ("experiment", "point", "metric")},
        "place": load_words(row),
        "before": before,
        "after": after,
        "ratio": Ratio(row["ratio"], low, high, after.n, before.n),
    }
