"""How was it measured, and can I trust it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from chaosity.report.machine_facts import Fact
from chaosity.report.record_summaries import Run
from chaosity.statistics import mark_outliers, summarise
from chaosity.units import format_count, format_duration, format_percent, group_thousands

# "90 % of the cells are known to ..." says more than the worst one, which is also told.
_MOST = 0.9


def methodology(tidy: pd.DataFrame, runs: Sequence[Run], config: Mapping[str, Any]) -> list[Fact]:
    """Points, order, stopping rule, time, precision and verification, a line each."""
    facts = [Fact("Points", _points(tidy))]
    if notes := config.get("notes"):
        facts.append(Fact("Not measured", "\n".join(notes)))
    facts.append(Fact("Order", _order(tidy, config)))
    measured = set(tidy["category"].dropna())
    for category, rule in (config.get("stopping") or {}).items():
        if category not in measured:
            continue
        words = str(category).replace("_", " ")
        facts.append(Fact(f"Stopping rule, {words}", _rule(rule)))
    if runs:
        facts.append(Fact("Time", _time(runs)))
    facts.append(Fact("Precision reached", _precision(tidy)))
    facts.append(Fact("Outliers", _outliers(tidy)))
    verified = _verified(runs)
    if verified:
        facts.append(Fact("Verified in each record", verified))
    facts.append(
        Fact(
            "Values",
            "medians of the replicates; intervals are Student's t at 95 %, on logarithms, so that "
            "they are intervals of ratios. GB is 10^9 bytes, GiB is 2^30.",
        )
    )
    return facts


def _points(tidy: pd.DataFrame) -> str:
    points = tidy[["experiment", "point"]].drop_duplicates()
    runs = tidy[["experiment", "point", "replicate", "status"]].drop_duplicates()
    by_status = Counter(runs["status"])
    parts = [f"{group_thousands(by_status[status])} {status}" for status in ("valid", "failed", "missing")
             if by_status[status]]  # fmt: skip
    return (
        f"{format_count(len(points), 'point')} in {format_count(points['experiment'].nunique(), 'experiment')}, "
        f"{format_count(len(runs), 'measurement')} planned: {', '.join(parts)}"
    )


def _order(tidy: pd.DataFrame, config: Mapping[str, Any]) -> str:
    most = tidy.groupby("experiment", sort=False)["replicate"].max().astype(int)
    least = int(most.min()) if len(most) else 0
    more = [f"{number} of {name.replace('_', ' ')}" for name, number in most.items()
            if number > least]  # fmt: skip
    text = format_count(least, "replicate block") + (f" ({', '.join(more)})" if more else "")
    seed = config.get("seed")
    text += ", each point once a block in a random order"
    return text + (f" (seed {seed})" if seed is not None else "")


def _rule(rule: Mapping[str, Any]) -> str:
    shortest, longest = rule.get("min_seconds"), rule.get("max_seconds")
    wanted = rule.get("relative_precision")
    if wanted is None:
        return f"for {longest:g} s, unless the tool ends by itself"
    return (
        f"until the 95 % interval of the rate is within ±{format_percent(wanted)}, "
        f"after {shortest:g} s at the earliest and {longest:g} s at the latest"
    )


def _time(runs: Sequence[Run]) -> str:
    first, last = min(r.began_at for r in runs), max(r.finished_at for r in runs)
    total = sum(run.seconds for run in runs)
    return f"{format_duration(total)} of measuring, {_minute(first)} to {_minute(last)} UTC"


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def _precision(tidy: pd.DataFrame) -> str:
    cells = summarise(tidy)
    known = cells.loc[cells["precision"].notna(), "precision"]
    if known.empty:
        return "unknown: there is one replicate"
    worst = cells.loc[known.idxmax()]
    return (
        f"half the cells are known to ±{format_percent(known.median())}, "
        f"{format_percent(_MOST)} to ±{format_percent(known.quantile(_MOST))}, "
        f"the worst ({worst['load']} of {worst['point']}) to ±{format_percent(known.max())}"
    )


def _outliers(tidy: pd.DataFrame) -> str:
    cells = summarise(tidy)
    judged = cells["outliers"].notna()
    if not judged.any():
        return "not looked for: that takes 5 replicates"
    number = int(mark_outliers(tidy).sum())
    values = int(cells.loc[judged, "n"].sum())
    # Of undisturbed normal samples of five about one value in twelve lies outside the fences.
    return (
        f"{format_count(number, 'value')} of {group_thousands(values)} lie outside Tukey's fences, marked and "
        "kept (up to 9 % do by chance in samples this small)"
    )


def _verified(runs: Sequence[Run]) -> str:
    """Names of decisive checks, with how many records passed them."""
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for run in runs:
        for check in run.checks:
            if not check["decisive"]:
                continue
            # "memory: pages" of one load and "storage: pages" of another are one kind of check.
            name = str(check["name"]).split(": ")[-1]
            total[name] += 1
            passed[name] += check["passed"] is True
    if not total:
        return ""
    whole = [name for name in total if passed[name] == total[name]]
    parts = [
        f"{name} ({group_thousands(passed[name])} of {group_thousands(total[name])})"
        for name in total
        if name not in whole
    ]
    if whole:
        parts.insert(0, ", ".join(whole) + " (always)")
    return ", ".join(parts)
