"""Describe how the values were measured: points, order, stopping rules, precision, checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from chaosity.report.machine_facts import Document, Fact
from chaosity.report.record_summaries import RecordSummary
from chaosity.statistics.cell_summary import compute_outlier_mask, summarise_cells
from chaosity.text_templates import fixed_texts
from chaosity.units import format_count, format_duration, format_percent, group_thousands

# The report gives the precision that this share of the cells reaches, not only the worst cell's.
_MOST_CELLS = 0.9


def methodology_facts(
    rows: pd.DataFrame, summaries: Sequence[RecordSummary], config: Document
) -> list[Fact]:
    """Return facts about how the values of a tidy table were measured and computed.

    `config` has the workflow's `seed` and `stopping`, and the `notes` of the plan.
    """
    cells, texts = summarise_cells(rows), fixed_texts("report")["methods"]
    return [
        Fact("Points", _points_text(rows)),
        Fact("Values", texts["Values"]),
        Fact("Intervals", _intervals_text(cells)),
        Fact("Each value", _explanation_text(rows)),
        Fact("Differences", texts["Differences"]),
        Fact("Findings", texts["Findings"]),
        Fact("Precision reached", _precision_text(cells)),
        Fact("Outliers", _outliers_text(rows, cells)),
        Fact("Order", _order_text(rows, config)),
        *_stopping_rules(rows, config),
        *([Fact("Time", _time_text(summaries))] if summaries else []),
        *_verified(summaries),
        *([Fact("Not measured", "\n".join(notes))] if (notes := config.get("notes")) else []),
    ]


def _points_text(rows: pd.DataFrame) -> str:
    points = rows[["experiment", "point"]].drop_duplicates()
    measurements = rows[["experiment", "point", "replicate", "status"]].drop_duplicates()
    by_status = Counter(measurements["status"])
    numbers = {name: by_status[name] for name in ("valid", "failed", "missing")}
    statuses = ", ".join(f"{group_thousands(n)} {name}" for name, n in numbers.items() if n)
    experiments = format_count(points["experiment"].nunique(), "experiment")
    return (
        f"{format_count(len(points), 'point')} in {experiments}, "
        f"{format_count(len(measurements), 'measurement')} planned: {statuses}"
    )


def _order_text(rows: pd.DataFrame, config: Document) -> str:
    replicates = rows.groupby("experiment", sort=False)["replicate"].max().astype(int)
    fewest = int(replicates.min()) if len(replicates) else 0
    longer = replicates[replicates > fewest].items()
    more = ", ".join(f"{number} of {str(name).replace('_', ' ')}" for name, number in longer)
    text = format_count(fewest, "replicate block") + (f" ({more})" if more else "")
    seed = config.get("seed")
    of_points = rows.groupby(["experiment", "point"])["replicate"].nunique()
    if of_points.groupby("experiment").nunique().gt(1).any():
        text = "rounds of a run with a budget, each in random order; rounds.json lists them"
    else:
        text += "; each block holds every point once, in random order"
    return text + (f" (seed {seed})" if seed is not None else "")


def _stopping_rules(rows: pd.DataFrame, config: Document) -> Iterator[Fact]:
    """Yield the stopping rule of each measured category."""
    measured = set(rows["category"].dropna())
    for category, rule in (config.get("stopping") or {}).items():
        if category not in measured:
            continue
        longest, precision = rule.get("max_seconds"), rule.get("relative_precision")
        text = f"each load runs for {longest:g} s, unless the tool ends earlier"
        if precision is not None:
            text = "each load runs until the 95 % interval of the rate is within "
            text += f"±{format_percent(precision)}, "
            text += f"but at least {rule.get('min_seconds'):g} s and at most {longest:g} s; "
            text += "it ends earlier if more time would not suffice"
        yield Fact(f"Stopping rule, {category.replace('_', ' ')}", text)


def _time_text(summaries: Sequence[RecordSummary]) -> str:
    first = min(summary.began_at for summary in summaries)[:16].replace("T", " ")
    last = max(summary.finished_at for summary in summaries)[:16].replace("T", " ")
    total = sum(summary.measurement_seconds for summary in summaries)
    return f"{format_duration(total)} of measurements, {first} to {last} UTC"


def _precision_text(cells: pd.DataFrame) -> str:
    known = cells.loc[cells["precision"].notna(), "precision"]
    if known.empty:
        return "unknown, since each point has one replicate"
    worst = cells.iloc[int(cells["precision"].argmax())]
    return (
        f"half of the intervals are within ±{format_percent(known.median())} of the median, "
        f"{format_percent(_MOST_CELLS)} of them within "
        f"±{format_percent(float(known.quantile(_MOST_CELLS)))}; the widest is "
        f"±{format_percent(known.max())} (load {worst['load']} of point {worst['point']})"
    )


def _explanation_text(rows: pd.DataFrame) -> str:
    """Return the command that explains a value, with a point that was measured if there is one."""
    found = rows.sort_values("status", key=lambda status: status != "valid", kind="stable")
    host, configuration, point = found.iloc[0][["host", "configuration", "point"]]
    return (
        f"chaosity explain results/{host}/{configuration} {point}\nThis command prints how the "
        "values of this point came about: formulas, raw numbers, records, commands and checks. "
        "A part of a point's name, such as node0+node0, lists the points with this part"
    )


def _intervals_text(cells: pd.DataFrame) -> str:
    known = cells[cells["precision"].notna()]
    moderated = known[known["prior_cells"] > 0]
    text = (
        f"{len(known) - len(moderated)} of {format_count(len(known), 'interval')} are Student's t"
    )
    if moderated.empty:
        return f"{text}: too few values are of one kind to share what they say about their scatter"
    weights = moderated["prior_freedom"].agg(["min", "max"]).round().astype(int)
    numbers = moderated["prior_cells"].agg(["min", "max"])
    values, replicates = (" to ".join(map(str, dict.fromkeys(ends))) for ends in (numbers, weights))
    return (
        f"{text}. In the others, the variance of a value is moved towards the typical variance of "
        "its kind (Smyth 2004): values of one experiment, load, kernel and metric. This typical "
        f"variance comes from {values} values and counts as much as {replicates} more replicates. "
        "A value that scatters much more than its kind keeps its own variance; one that was "
        "measured once (n = 1) has only that of its kind"
    )


def _outliers_text(rows: pd.DataFrame, cells: pd.DataFrame) -> str:
    tested = cells["outliers"].notna()
    if not tested.any():
        return "not tested: the test needs 5 replicates"
    outliers = format_count(int(compute_outlier_mask(rows).sum()), "value")
    values = group_thousands(int(cells.loc[tested, "n"].sum()))
    # In samples of five normal values, about one value in twelve is an outlier by this rule.
    return (
        f"{outliers} of {values} are outliers by Tukey's rule. Outliers are marked, not dropped. "
        "In samples this small, up to 9 % of the values are outliers by chance."
    )


def _verified(summaries: Sequence[RecordSummary]) -> Iterator[Fact]:
    """Yield the checks that decide on validity, and how many records passed them."""
    checks = [check for summary in summaries for check in summary.checks if check["decisive"]]
    # "memory: pages" and "storage: pages" are the same check of different loads.
    total = Counter(check["name"].split(": ")[-1] for check in checks)
    passed = Counter(check["name"].split(": ")[-1] for check in checks if check["passed"])
    if not total:
        return
    always = [name for name in total if passed[name] == total[name]]
    texts = [", ".join(always) + " (passed by every record)"] if always else []
    texts += [
        f"{name} ({group_thousands(passed[name])} of {group_thousands(total[name])} passed)"
        for name in total
        if name not in always
    ]
    yield Fact("Checks of each record", ", ".join(texts).replace("_", " "))
