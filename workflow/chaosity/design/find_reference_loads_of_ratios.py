"""Find the reference load of a derived metric, which is the ratio of two loads' values.

An experiment's file says `to: {policy: uniform_workers}`. The reference of a load is the load with
the same role that has the given level and otherwise differs only in the columns that `to` names.
Two loads agree if the same initiator, target, kernel and levels were chosen for them and for the
loads that run with them. All other columns, such as threads, relation and the experiment's factors,
follow from these choices. The sides that a named column describes may differ too. For example,
`threads` describes the initiator. So the initiator may differ, and so may every side that follows
from the initiator, such as its local memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from chaosity.design.even_samples_and_plan_notes import PlanNotes
from chaosity.design.initiator_selectors import as_list
from chaosity.design.point_loads import ALONE, ONLY
from chaosity.design.point_names import format_level
from chaosity.documents.experiments import ExperimentDocument, FactorLevelRule, RelativeMetric
from chaosity.errors import UserError, check_allowed
from chaosity.records.point_types import ExpandedPoint, Level, Load, MetricRatio

# Columns of the tidy table that `to` may name, and the sides of the load that they describe.
_COLUMN_SIDES = {
    "initiator": ("initiator",),
    "initiator_kind": ("initiator",),
    "threads": ("initiator",),
    "target": ("target",),
    "target_kind": ("target",),
    "relation": ("initiator", "target"),
    "kernel": ("kernel",),
}
# Selectors by which a side follows from another side.
_FOLLOWING = ("local_to", "same_as", "others_of")
# Levels of factors about a load that is missing.
_ABSENT = (ALONE, 0)
# Prefix of keys that hold what a point's factors say about a load that may be absent.
_BASELINE = "baseline of "

LoadInPoint = tuple[ExpandedPoint, Load]


def add_reference_loads(
    experiment: ExperimentDocument, points: Sequence[ExpandedPoint], notes: PlanNotes
) -> list[ExpandedPoint]:
    """Return the points with the references of their derived metrics under the key `relative`.

    `points` are the experiment's points on one host. A note with the number of loads without a
    reference is added to `notes`.

    Raises:
        UserError: a named column does not exist, or several loads could be the reference.
    """
    if "relative" not in experiment:
        return list(points)
    found: dict[str, list[MetricRatio]] = {point["point"]: [] for point in points}
    for number, entry in enumerate(experiment["relative"]):
        where = f"workflow/experiments/{experiment['experiment']}.yaml, relative.{number}"
        references = _References(experiment, entry, points, where)
        if "per" in entry:
            for point, metric in references.metrics_per_unit_of_rate(entry["per"]):
                found[point["point"]].append(metric)
            continue
        metrics = list(references.derived_metrics_with_references())
        for point, metric in metrics:
            found[point["point"]].append(metric)
        if missing := sum("reason" in metric for _, metric in metrics):
            notes.add_note(
                f"{experiment['experiment']}, {entry['name']}: {missing} of"
                f" {len(metrics)} values have no reference with {references.condition}"
            )
    return [{**point, "relative": found[point["point"]]} for point in points]


class _References:
    """The loads of one derived metric, and the reference load of each."""

    def __init__(
        self,
        experiment: ExperimentDocument,
        entry: RelativeMetric,
        points: Sequence[ExpandedPoint],
        where: str,
    ) -> None:
        self.experiment, self.entry, self.where = experiment, entry, where
        self.role = role = entry["load"]
        self.loads = [(p, load) for p in points for load in p["loads"] if load["role"] == role]
        to = entry.get("to", {})
        self.condition = ", ".join(f"{name} {level}" for name, level in to.items())
        for _, load in self.loads:
            metric = entry["metric"]
            check_allowed(metric, load["metrics"], f"{role} has no metric {metric!r}", where)
            if "by_node" in load["metrics"][metric]:
                remedy = "a ratio needs a metric with a single value"
                raise UserError(f"{metric} has a value for each node", where, remedy)

    def metrics_per_unit_of_rate(self, rate: str) -> Iterator[tuple[ExpandedPoint, MetricRatio]]:
        """Yield the derived metric of each load: a count per unit of the load's work."""
        for point, load in self.loads:
            check_allowed(rate, load["metrics"], f"{self.role} has no rate {rate!r}", self.where)
            if "counter" not in load["metrics"][self.entry["metric"]]:
                remedy = "choose a metric from a processor counter"
                raise UserError(f"{self.entry['metric']} is not a count", self.where, remedy)
            name, metric = self.entry["name"], self.entry["metric"]
            yield point, {"name": name, "load": load["name"], "metric": metric, "per": rate}

    def derived_metrics_with_references(self) -> Iterator[tuple[ExpandedPoint, MetricRatio]]:
        """Yield the derived metric of each load, with its reference or why it has no reference."""
        free = self._free_keys() if self.loads else set()
        candidates = [pair for pair in self.loads if self._is_reference(*pair)]
        baseline = self._baseline_factors(candidates, free)

        def fixed_choices(point: ExpandedPoint, load: Load) -> frozenset[tuple[str, str]]:
            """Return the choices in which a load must agree with its reference."""
            levels = {f"{_BASELINE}{side}": point["factors"][name] for name, side in baseline}
            chosen = {**levels, **choice_names_by_role_and_side(point, load)}
            return frozenset(
                (key, str(level))
                for key, level in chosen.items()
                if key not in free and f"{key.partition('.')[0]}.*" not in free
            )

        references: dict[frozenset[tuple[str, str]], list[LoadInPoint]] = defaultdict(list)
        for pair in candidates:
            references[fixed_choices(*pair)].append(pair)
        for point, load in self.loads:
            metric: MetricRatio = {
                "name": self.entry["name"],
                "load": load["name"],
                "metric": self.entry["metric"],
            }
            own = references.get(fixed_choices(point, load), [])
            if len(own) > 1:
                self._refuse_several(point, own)
            if own:
                [(other, reference)] = own
                metric["to"] = {"point": other["point"], "load": reference["name"]}
            else:
                metric["reason"] = f"there is no reference with {self.condition}"
            yield point, metric

    def _is_reference(self, point: ExpandedPoint, load: Load) -> bool:
        columns = _reference_columns(point, load)
        return all(
            name in columns and str(columns[name]) == str(level)
            for name, level in self.entry["to"].items()
        )

    def _baseline_factors(
        self, candidates: Sequence[LoadInPoint], free: Collection[str]
    ) -> list[tuple[str, str]]:
        """Return the factors and sides that name the initiator to which a baseline point belongs.

        In a baseline point the load of that initiator is absent, and a factor of the experiment has
        a level other than "alone" for it.
        """
        sides = {
            name: spec["level"]
            for name, spec in self.experiment.get("factors", {}).items()
            if spec.get("level", "").endswith(".initiator") and name not in self.entry["to"]
        }
        return [
            (name, side)
            for name, side in sides.items()
            if side != f"{self.role}.initiator" and side not in free
            if any(point["factors"][name] not in _ABSENT for point, _ in candidates)
        ]

    def _refuse_several(self, point: ExpandedPoint, references: Sequence[LoadInPoint]) -> None:
        listed = ", ".join(
            other["point"] + (f" ({load['name']})" if load["name"] != self.role else "")
            for other, load in references[:4]
        )
        raise UserError(
            f"{self.entry['name']} of {point['point']} has {len(references)} possible"
            f" references: {listed}{', ...' if len(references) > 4 else ''}",
            self.where,
            "name more columns in `to`, or sides that stay the same in `same`",
        )

    def _free_keys(self) -> set[str]:
        """Return sides in which a load may differ from its reference; ROLE.* is a whole load."""
        found = set[str]().union(*(self._freed_by(*item) for item in self.entry["to"].items()))
        same = {f"{self.role}.{side}" for side in self.entry.get("same", ())}
        return _with_following_sides(self.experiment, found - same, same)

    def _freed_by(self, name: str, level: Level) -> set[str]:
        """Return the sides that a named column describes."""
        factors = self.experiment.get("factors", {})
        if "design" in factors.get(name, {}):
            raise UserError(
                f"{name} is the name of the design, so it does not show how the loads differ",
                f"{self.where}, to",
                "name what differs, such as threads or initiator_kind",
            )
        if name in factors:
            return set(_described_sides(factors[name], level, self.role))
        if name in _COLUMN_SIDES:
            return {f"{self.role}.{side}" for side in _COLUMN_SIDES[name]}
        levels = {name for _, load in self.loads for name in load["levels"]}
        known = {*factors, *levels, *_COLUMN_SIDES}
        check_allowed(name, known, f"{self.role} has no column {name!r}", f"{self.where}, to")
        return {f"{self.role}.{name}"}


def _described_sides(spec: FactorLevelRule, level: Level, own: str) -> Iterator[str]:
    """Yield the sides of loads, or the whole load (ROLE.*), that a factor describes."""
    if "mode" in spec:
        yield f"{spec['mode']}.together" if spec["mode"] == own else f"{spec['mode']}.*"
        return
    if "relation" in spec:
        named = spec["relation"]
    else:
        named = [spec["level"] if "level" in spec else spec["count"]]
    sides = [
        f"{own}.{side.partition('.')[2]}" if side.startswith(f"{ONLY}.") else side for side in named
    ]
    roles = [side.partition(".")[0] for side in sides]
    yield from (f"{role}.*" for role in roles if role != own) if level in _ABSENT else sides


def _with_following_sides(
    experiment: ExperimentDocument, freed: Collection[str], kept: Collection[str]
) -> set[str]:
    """Return the freed sides, and every side that is chosen by a freed side in all designs.

    Sides in `kept`, such as ``memory.initiator``, must stay the same in any case.
    """
    found = set(freed)
    sources: dict[str, set[object]] = defaultdict(set)
    for design in experiment["designs"].values():
        for role, load in design["loads"].items():
            sources[f"{role}.initiator"].update(map(_source_side, as_list(load["initiator"])))
            sources[f"{role}.target"].update(map(_source_side, as_list(load["target"])))
    for _ in sources:  # a side may follow from a side that follows
        found |= {side for side, own in sources.items() if side not in kept and own <= found}
    return found


def _source_side(selector: Mapping[str, object]) -> object:
    """Return the side to which a selector refers, such as ``memory.initiator``, or None."""
    return next((selector[key] for key in _FOLLOWING if key in selector), None)


def _reference_columns(point: ExpandedPoint, load: Load) -> dict[str, Any]:
    """Return the columns that `to` may name; a factor replaces a column of the same name."""
    initiator, target = load["initiator"], load["target"]
    return {
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


def choice_names_by_role_and_side(point: ExpandedPoint, load: Load) -> dict[str, str]:
    """Return ROLE.SIDE -> what was chosen, for a load and for all loads that run with it."""
    role = load["role"]
    found = {f"{role}.{part}": text for part, text in _load_choices(load).items()}
    others: dict[str, list[str]] = defaultdict(list)
    for other in point["loads"]:
        if other is load:
            continue
        if other["role"] == role:
            others[f"{role}.together"].append(other["initiator"]["name"])
            continue
        for part, text in _load_choices(other).items():
            others[f"{other['role']}.{part}"].append(text)
    if f"{role}.together" in others:  # all loads of the role, so that their values are equal
        others[f"{role}.together"].append(load["initiator"]["name"])
    return found | {key: "+".join(sorted(texts)) for key, texts in others.items()}


def _load_choices(load: Load) -> dict[str, str]:
    levels = {name: format_level(name, level) for name, level in load["levels"].items()}
    sides = {"initiator": load["initiator"]["name"], "target": load["target"]["name"]}
    return {**sides, "kernel": str(load["kernel"]), **levels}
