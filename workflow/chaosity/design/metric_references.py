"""Derived metrics: for each load the one its value is divided by, settled when a host is planned.

An experiment's file says `to: {policy: uniform_workers}`: the reference of a load is the load of
the same name that differs from it only in what is named, and has the given level there. Two loads
are the same in all else when the same was *chosen* for them and for what runs beside them:
initiator, target, kernel and levels. All other columns (threads, relation, the experiment's
factors) follow from these, and keep nothing apart. What is named frees what it says something of:
`threads` frees the initiator, and with it every side that is chosen by the initiator, such as
memory that is local to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from chaosity.config import suggest_allowed
from chaosity.design.expand_points import Point
from chaosity.design.factors import ONLY
from chaosity.design.load_levels import PlanNotes, level_text
from chaosity.errors import UserError

# Columns of the tidy table that may be named, and of which sides of the load they say something.
_SIDES = {
    "initiator": ("initiator",),
    "initiator_kind": ("initiator",),
    "threads": ("initiator",),
    "target": ("target",),
    "target_kind": ("target",),
    "relation": ("initiator", "target"),
    "kernel": ("kernel",),
}
# Selectors by which a side follows from another: it is one and the same for each of that side's.
_FOLLOWING = ("local_to", "same_as", "others_of")
# Levels of factors that relate to a load, where it is missing.
_ABSENT = ("alone", 0)

# Stands before what a point's factors tell of a load that may be absent.
_TOLD = "told of "

Load = Mapping[str, Any]
Experiment = Mapping[str, Any]


def add_metric_references(
    experiment: Experiment, points: Sequence[Point], notes: PlanNotes
) -> list[Point]:
    """Points that say in `relative` what the derived metrics of their loads are ratios to.

    Each is an object: `name` of the metric, `load` by its name in the point, `metric` that is
    divided, and `to`, the point and load whose value divides it, or the `reason` why there is none.

    Args:
        experiment: the checked document.
        points: of the experiment on one host.
        notes: gets what has no reference.

    Raises:
        UserError: what is named is not there, or several loads could be the reference.
    """
    found: dict[str, list[dict[str, Any]]] = {point["point"]: [] for point in points}
    for number, entry in enumerate(experiment.get("relative", [])):
        where = f"workflow/experiments/{experiment['experiment']}.yaml, relative.{number}"
        pairs = _Pairs(experiment, entry, points, where)
        for point, load, answer in pairs.answers():
            one = {"name": entry["name"], "load": load["name"], "metric": entry["metric"]}
            found[point["point"]].append({**one, **answer})
        if pairs.without:
            notes.add(
                f"{experiment['experiment']}, {entry['name']}: {pairs.without} of"
                f" {len(pairs.loads)} have no reference with {pairs.words}"
            )
    if "relative" not in experiment:
        return list(points)
    return [{**point, "relative": found[point["point"]]} for point in points]


class _Pairs:
    """The loads of one derived metric and the reference of each."""

    def __init__(
        self, experiment: Experiment, entry: Mapping[str, Any], points: Sequence[Point], where: str
    ) -> None:
        self.experiment, self.entry, self.where = experiment, entry, where
        self.role = entry["load"]
        self.loads = [
            (point, load) for point in points for load in point["loads"]
            if load["role"] == self.role
        ]  # fmt: skip
        self.words = ", ".join(f"{name} {level}" for name, level in entry["to"].items())
        self.without = 0
        for _, load in self.loads:
            if entry["metric"] not in load["metrics"]:
                known = suggest_allowed(entry["metric"], load["metrics"])
                raise UserError(f"{self.role} has no metric {entry['metric']!r}", where, known)
            if "by_node" in load["metrics"][entry["metric"]]:
                raise UserError(
                    f"{entry['metric']} has a value for each node",
                    where,
                    "a ratio needs a metric with one value",
                )

    def answers(self) -> Iterator[tuple[Point, Load, dict[str, Any]]]:
        """Each load with its reference, or the reason why it has none."""
        free = self._free() if self.loads else set()
        known = [pair for pair in self.loads if self._is_reference(*pair)]
        told = self._told(known, free)
        keys = {
            (point["point"], load["name"]): _same({**told(point), **identity(point, load)}, free)
            for point, load in self.loads
        }
        references: dict[frozenset[Any], list[tuple[Point, Load]]] = defaultdict(list)
        for point, load in known:
            references[keys[point["point"], load["name"]]].append((point, load))
        for point, load in self.loads:
            own = references.get(keys[point["point"], load["name"]], [])
            if len(own) > 1:
                self._refuse(point, own)
            if own:
                [(other, reference)] = own
                yield point, load, {"to": {"point": other["point"], "load": reference["name"]}}
            else:
                self.without += 1
                yield point, load, {"reason": f"there is no reference with {self.words}"}

    def _told(
        self, known: Sequence[tuple[Point, Load]], free: Collection[str]
    ) -> Callable[[Point], dict[str, str]]:
        """Whose baseline a point is that was measured for each place of a load that it lacks.

        An experiment's factor tells: a level of that load's initiator which is not "alone".
        """
        sides = {
            name: spec["level"]
            for name, spec in self.experiment.get("factors", {}).items()
            if spec.get("level", "").endswith(".initiator") and name not in self.entry["to"]
        }
        own = f"{self.role}.initiator"
        shown = {
            name: side
            for name, side in sides.items()
            if side != own and side not in free
            and any(point["factors"][name] not in _ABSENT for point, _ in known)
        }  # fmt: skip
        return lambda point: {
            f"{_TOLD}{side}": point["factors"][name] for name, side in shown.items()
        }

    def _is_reference(self, point: Point, load: Load) -> bool:
        columns = columns_of(point, load)
        return all(
            name in columns and str(columns[name]) == str(level)
            for name, level in self.entry["to"].items()
        )

    def _refuse(self, point: Point, references: Sequence[tuple[Point, Load]]) -> None:
        listed = ", ".join(
            one["point"] + (f" ({load['name']})" if load["name"] != self.role else "")
            for one, load in references[:4]
        )
        raise UserError(
            f"{self.entry['name']} of {point['point']} could be relative to"
            f" {len(references)} points: {listed}{', ...' if len(references) > 4 else ''}",
            self.where,
            "name more columns in `to`, or what stays the same in `same`",
        )

    def _free(self) -> set[str]:
        """Keys of `identity` in which a load may differ from its reference; ROLE.* for all of it.

        Raises:
            UserError: a column is named that no load has.
        """
        found: set[str] = set()
        for name, level in self.entry["to"].items():
            found |= self._freed_by(name, level)
        found -= {f"{self.role}.{side}" for side in self.entry.get("same", ())}
        return followed(self.experiment, found, self.entry.get("same", ()), self.role)

    def _freed_by(self, name: str, level: Any) -> set[str]:
        """What a named column says something of."""
        factors = self.experiment.get("factors", {})
        if "design" in factors.get(name, {}):
            raise UserError(
                f"{name} is the name of the design, which does not say in what loads may differ",
                f"{self.where}, to",
                "name what is different there, such as threads or initiator_kind",
            )
        if name in factors:
            return set(_of_factor(factors[name], level, self.role))
        levels = {name for _, load in self.loads for name in load["levels"]}
        if name in _SIDES:
            return {f"{self.role}.{side}" for side in _SIDES[name]}
        if name not in levels:
            known = suggest_allowed(name, {*factors, *levels, *_SIDES})
            raise UserError(f"{self.role} has no column {name!r}", f"{self.where}, to", known)
        return {f"{self.role}.{name}"}


def _of_factor(spec: Mapping[str, Any], level: Any, own: str) -> Iterator[str]:
    """What a factor of an experiment is about: sides of loads, or a load as a whole."""
    if "mode" in spec:
        yield f"{spec['mode']}.together" if spec["mode"] == own else f"{spec['mode']}.*"
        return
    # one side of a load, or several
    told = next(spec[key] for key in ("level", "count", "relation") if key in spec)
    named = [told] if isinstance(told, str) else told
    sides = [f"{own}.{side.partition('.')[2]}" if side.startswith(f"{ONLY}.") else side
             for side in named]  # fmt: skip
    others = [side.partition(".")[0] for side in sides if side.partition(".")[0] != own]
    yield from (f"{role}.*" for role in others) if level in _ABSENT else sides


def followed(
    experiment: Experiment, freed: Collection[str], same: Collection[str], own: str
) -> set[str]:
    """What is freed, and every side that is chosen by a side that is, in each of the designs."""
    found = set(freed)
    kept = {f"{own}.{side}" for side in same}
    sides: dict[str, list[Any]] = defaultdict(list)
    for design in experiment["designs"].values():
        for role, load in design["loads"].items():
            for side in ("initiator", "target"):
                selectors = load[side] if isinstance(load[side], list) else [load[side]]
                sides[f"{role}.{side}"] += selectors
    for _ in sides:  # a side may follow from one that follows
        for side, selectors in sides.items():
            sources = [next((one[key] for key in _FOLLOWING if key in one), None)
                       for one in selectors]  # fmt: skip
            if side not in kept and all(source in found for source in sources):
                found.add(side)
    return found


def columns_of(point: Point, load: Load) -> dict[str, Any]:
    """What a reference can be known by; a factor stands before a column of the same name."""
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


def identity(point: Point, load: Load) -> dict[str, str]:
    """What was chosen for a load, and for all that run beside it."""
    role = load["role"]
    found = {f"{role}.{part}": text for part, text in _chosen(load).items()}
    beside: dict[str, list[str]] = defaultdict(list)
    for other in point["loads"]:
        if other is load:
            continue
        if other["role"] == role:
            beside[f"{role}.together"].append(other["initiator"]["name"])
            continue
        for part, text in _chosen(other).items():
            beside[f"{other['role']}.{part}"].append(text)
    if f"{role}.together" in beside:  # all of them, so that each has the same company
        beside[f"{role}.together"].append(load["initiator"]["name"])
    return found | {key: "+".join(sorted(texts)) for key, texts in beside.items()}


def _chosen(load: Load) -> dict[str, str]:
    levels = {name: level_text(name, level) for name, level in load["levels"].items()}
    sides = {side: load[side]["name"] for side in ("initiator", "target")}
    return {**sides, "kernel": str(load["kernel"]), **levels}


def _same(chosen: Mapping[str, str], free: Collection[str]) -> frozenset[tuple[str, str]]:
    """What a load and its reference have in common."""
    return frozenset(
        (key, text) for key, text in chosen.items()
        if key not in free and f"{key.partition('.')[0]}.*" not in free
    )  # fmt: skip
