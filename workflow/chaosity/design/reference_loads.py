"""Find the reference load of a derived metric, which is the ratio of two loads' values.

An experiment's file says `to: {policy: uniform_workers}, same: [workers, kernel]`. The reference of
a load has the same role, the levels in `to`, and the same values in the columns `same`. So the
references are a join of the table of loads with itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from chaosity.design.samples import PlanNotes
from chaosity.documents.experiments import ExperimentDocument, RelativeMetric
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.records.record_format import ExpandedPoint, Load, MetricRatio

LoadInPoint = tuple[ExpandedPoint, Load]


def add_references_to_points(
    experiment: ExperimentDocument, points: Sequence[ExpandedPoint], notes: PlanNotes
) -> list[ExpandedPoint]:
    """Return the points with a new key `relative`: derived metrics, each with its reference.

    No load is added: a reference is the name of a load of one of the points.

    `points` are the experiment's points on one host. A note with the number of loads without a
    reference is added to `notes`.

    Raises:
        UserError: a named column or metric does not exist, or several loads could be the reference.
    """
    if "relative" not in experiment:
        return list(points)
    found: dict[str, list[MetricRatio]] = {point["point"]: [] for point in points}
    for number, entry in enumerate(experiment["relative"]):
        where = f"workflow/experiments/{experiment['experiment']}.yaml, relative.{number}"
        role = entry["load"]
        loads = [(p, load) for p in points for load in p["loads"] if load["role"] == role]
        for _, load in loads:
            _check_metrics(entry, load, where)
        metrics = list(_ratios(entry, loads, where))
        for point, metric in metrics:
            found[point["point"]].append(metric)
        if missing := [metric["reason"] for _, metric in metrics if "reason" in metric]:
            notes.add_note(
                f"{experiment['experiment']}, {entry['name']}: {len(missing)} of {len(metrics)}"
                f" values have {missing[0].removeprefix('there is ')}"
            )
    return [{**point, "relative": found[point["point"]]} for point in points]


def _check_metrics(entry: RelativeMetric, load: Load, where: str) -> None:
    """Check that a load has the metrics of an entry, and of the right kind."""
    metric, metrics, rate = entry["metric"], load["metrics"], entry.get("per")
    check_name_is_allowed(metric, metrics, f"{entry['load']} has no metric {metric!r}", where)
    if "by_node" in metrics[metric]:
        remedy = "a ratio needs a metric with a single value"
        raise UserError(f"{metric} has a value for each node", where, remedy)
    if rate is not None:
        check_name_is_allowed(rate, metrics, f"{entry['load']} has no rate {rate!r}", where)
        if "counter" not in metrics[metric]:
            remedy = "choose a metric from a processor counter"
            raise UserError(f"{metric} is not a count", where, remedy)


def _ratios(
    entry: RelativeMetric, loads: Sequence[LoadInPoint], where: str
) -> Iterator[tuple[ExpandedPoint, MetricRatio]]:
    """Yield the derived metric of each load, with its reference or why it has no reference."""
    name, metric_name = entry["name"], entry["metric"]
    if "per" in entry:  # the metric is a count, divided by the load's own work
        for point, load in loads:
            own = load["name"]
            yield point, {"name": name, "load": own, "metric": metric_name, "per": entry["per"]}
        return
    rows = [_columns(*pair) for pair in loads]
    known = set[str]().union(*rows)
    for column in (*entry["to"], *entry["same"]) if rows else ():
        check_name_is_allowed(column, known, f"{entry['load']} has no column {column!r}", where)
    keys = [tuple(row.get(column) for column in entry["same"]) for row in rows]
    wanted = {column: str(level) for column, level in entry["to"].items()}
    references: dict[tuple[str | None, ...], list[LoadInPoint]] = defaultdict(list)
    for pair, row, key in zip(loads, rows, keys, strict=True):
        if wanted.items() <= row.items():
            references[key].append(pair)
    condition = ", ".join(f"{column} {level}" for column, level in wanted.items())
    for (point, load), key in zip(loads, keys, strict=True):
        metric: MetricRatio = {"name": name, "load": load["name"], "metric": metric_name}
        if "of_means" in entry:
            metric["of_means"] = True
        match references.get(key, []):
            case []:
                metric["reason"] = f"there is no reference with {condition}"
            case [(other, reference)]:
                metric["to"] = {"point": other["point"], "load": reference["name"]}
            case several:
                listed = ", ".join(
                    other["point"] + (f" ({one['name']})" if one["name"] != entry["load"] else "")
                    for other, one in several[:4]
                )
                raise UserError(
                    f"{entry['name']} of {point['point']} has {len(several)} possible"
                    f" references: {listed}{', ...' if len(several) > 4 else ''}",
                    where,
                    "name more columns in `same`",
                )
        yield point, metric


def _columns(point: ExpandedPoint, load: Load) -> dict[str, str]:
    """Return the columns that `to` and `same` may name; a factor hides a column of its name."""
    initiator, target = load["initiator"], load["target"]
    columns: dict[str, Any] = {
        "initiator": initiator["name"],
        "initiator_kind": initiator["kind"],
        "threads": initiator["threads"],
        "target": target["name"],
        "target_kind": target["kind"],
        "relation": target["relation"],
        "kernel": load["kernel"],
        **load["levels"],
        **point["factors"],
    }
    return {name: str(level) for name, level in columns.items()}
