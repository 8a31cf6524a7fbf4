"""Choose what a run with a budget measures next, from what it has measured so far.

The choice is a pure function of plan, earlier rounds and records, so an interrupted run continues
with the same rounds. The first round measures as many different points as fit into 85 % of the
budget; the points that show most of the machine come first (`point_priorities`). The second round
repeats some points of each kind, since only replicates show the scatter from which all intervals
are computed. The second round also measures random drive sets to audit predictions. The second
round and all later rounds repeat points that depart from expected values, and measure the points
for which another second of measuring narrows intervals most: "repetition is most needed where most
uncertainty arises" (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013).

The rounds of earlier runs are completed first, as far as time allows. A measurement of these rounds
has to be made again if its record is missing or failed, or if a component or the definition of its
point changed after the record. So an upgrade of a tool can request all measurements again, which
may take longer than the budget.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from chaosity.records.record_format import Point, PointKey, point_key
from chaosity.rounds.budget import (
    OVERHEAD_SECONDS_OF_MEASUREMENT,
    OVERHEAD_SECONDS_OF_ROUND,
    Budget,
    Priority,
    Round,
    kind_of_contention,
    point_priorities,
    replicate_counts,
)
from chaosity.rounds.machine_so_far import MachineSoFar, SecondsOfPoints
from chaosity.statistics.estimates import FEWEST_CELLS_FOR_PRIOR
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count, format_duration

Replicate = tuple[PointKey, int]  # a replicate: its point and its number, from 1


class RecordState(NamedTuple):
    """The facts on a record that the choice of rounds needs."""

    seconds: float  # duration of the measurement; 0 for a broken record
    is_valid: bool
    # Says whether a component of the point, or its definition, changed after the measurement.
    is_outdated: bool

    @property
    def is_usable(self) -> bool:
        """Return whether the record is valid and not outdated, so that the run keeps it."""
        return self.is_valid and not self.is_outdated


RecordStates = Mapping[Replicate, RecordState]


@dataclass(frozen=True)
class ResumedRounds:
    """The rounds of earlier runs, without the measurements for which there is no time."""

    rounds: list[Round]
    lacking_measurements: list[Replicate]  # measurements of the rounds that lack a usable record
    lacking_seconds: float  # expected time of these missing measurements
    outdated_count: int  # number of these missing measurements that have an outdated record
    left_out_count: int  # number of outdated measurements that do not fit into the budget

    @property
    def first_measurements_text(self) -> str | None:
        """Return a clause on the missing measurements for the terminal; None if none is missing."""
        if not self.lacking_measurements:
            return None
        other = len(self.lacking_measurements) - self.outdated_count
        reasons = {
            "older than a change of a component or of the definition": self.outdated_count,
            "missing or failed": other,
        }
        counts = ", ".join(f"{number} {text}" for text, number in reasons.items() if number)
        number = format_count(len(self.lacking_measurements), "measurement")
        duration = format_duration(self.lacking_seconds)
        return f"first {number} of earlier rounds, about {duration}: {counts}"

    @property
    def note_on_left_out(self) -> str:
        """Return a sentence on outdated measurements that do not fit into the budget, or ""."""
        if not self.left_out_count:
            return ""
        number = format_count(self.left_out_count, "measurement")
        return (
            f" The budget leaves out {number} from before a change of a component or of the"
            " definition: the records stay, and no table or figure has them."
        )


def replicates_of_rounds(rounds: Iterable[Round]) -> Iterator[tuple[int, Replicate]]:
    """Yield the index of the round, the point and the replicate of each measurement of rounds."""
    counts: Counter[PointKey] = Counter()
    for index, each in enumerate(rounds):
        for key in each.measurements:
            counts[key] += 1
            yield index, (key, counts[key])


def resume_rounds(
    points: Sequence[Point],
    topology: Topology,
    budget: Budget,
    rounds: Sequence[Round],
    states: RecordStates,
) -> ResumedRounds:
    """Return the rounds with as many of the missing measurements as fit into the budget.

    The missing measurements of earlier rounds come first. Within a round, the measurements that
    show most of the machine come first. Records that are older than the first round used no time of
    the budget, so a missing one is not measured again. `points` is the complete plan of the host.
    Points that the complete plan lacks keep their records, but are not measured again.
    """
    planned, priorities = set(map(point_key, points)), point_priorities(points, topology)
    durations: dict[PointKey, list[float]] = {}
    for (key, _), each in states.items():
        if each.seconds:
            durations.setdefault(key, []).append(each.seconds)
    seconds = SecondsOfPoints(points, durations)
    left = float("inf") if budget.seconds is None else budget.seconds
    lacking: list[tuple[int, int, Replicate]] = []
    for index, (key, number) in replicates_of_rounds(rounds):
        state = states.get((key, number))
        if key in planned and (state is None or not state.is_usable):
            lacking.append((index, int(priorities[key]), (key, number)))
        elif state is not None and not rounds[index].earlier:
            left -= state.seconds + OVERHEAD_SECONDS_OF_MEASUREMENT
    left -= OVERHEAD_SECONDS_OF_ROUND * sum(not each.earlier for each in rounds)
    kept: list[Replicate] = []
    first_without_time: dict[PointKey, int] = {}
    for index, _, (key, number) in sorted(lacking, key=lambda each: each[:2]):
        needed = seconds.total_of([key])
        if key in first_without_time or rounds[index].earlier or needed > left:
            first_without_time.setdefault(key, number)
        else:
            kept.append((key, number))
            left -= needed
    stays = [
        (index, key)
        for index, (key, number) in replicates_of_rounds(rounds)
        if number < first_without_time.get(key, number + 1)
    ]
    shortened = []
    for number, own in enumerate(rounds):
        keys = tuple(key for index, key in stays if index == number)
        audit = tuple(key for key in own.audit if key in keys)
        shortened.append(replace(own, measurements=keys, audit=audit))
    outdated = {one for *_, one in lacking if one in states and states[one].is_outdated}
    return ResumedRounds(
        [own for own in shortened if own.measurements],
        kept,
        seconds.total_of(key for key, _ in kept),
        len(outdated.intersection(kept)),
        len(outdated.difference(kept)),
    )


# Share of the budget for the first round. Later rounds use the remaining time for values that
# scatter or depart.
BUDGET_SHARE_OF_FIRST_ROUND = 0.85
# Share of the remaining time that a later round uses, so that the next round can react to its
# results.
_SHARE_OF_REMAINING_TIME = 0.5
# If a later round would get less than this share of the budget, the round uses all remaining time.
_BUDGET_SHARE_FOR_LAST_ROUND = 0.04
# Number of random drive sets for the audit of predictions, and the audit's largest share of the
# budget. If none of 58 sets departs from its prediction, at most 5 % of all sets depart, with 95 %
# confidence (0.95 ** 58 = 0.05).
_AUDIT_SETS, _AUDIT_SHARE = 58, 0.05
# Number of points of each kind of contention that are measured before other loads alone. With three
# points, the median is right even if one of the points uses a faulty part.
_POINTS_OF_EACH_CONTENTION_KIND = 3
# Number of replicates of a point that departs. A run without a budget measures every point three
# times.
_REPLICATES_OF_DEPARTING_POINT = 3
# Largest number of replicates of a point. Each further replicate would narrow the interval by less
# than 10 %.
_MOST_REPLICATES = 10
# Assumed variance of the logarithm of an unknown value, which can be larger or smaller by a factor
# of 1.5.
_VARIANCE_OF_UNKNOWN_VALUE = 0.4**2
# Factor for the variance of points whose values are in an anomaly or a suspicion.
_VARIANCE_FACTOR_OF_DEPARTING_POINTS = 9.0


def next_round(so_far: MachineSoFar, budget: Budget, seed: int) -> Round | None:
    """Return the next round; None if the budget is used up or no further measurement is needed.

    `seed` is the seed of all random choices and of the random order.
    """
    return _NextRound(so_far, budget, seed).choose_round()


class _NextRound:
    """Chooses the next round, see the function `next_round`."""

    def __init__(self, so_far: MachineSoFar, budget: Budget, seed: int) -> None:
        self.so_far, self.budget = so_far, budget
        self.points = {point_key(point): point for point in so_far.points}
        self.done = replicate_counts(so_far.rounds)
        # Points without a valid value in any replicate. Only the next run measures these points
        # again, because in this run, they could fail again and use up the budget.
        self.with_values = so_far.points_with_values
        self.failed = {key for key, n in self.done.items() if n} - self.with_values
        self.undisturbed = so_far.undisturbed_replicates
        self.seconds = SecondsOfPoints(so_far.points, so_far.record_seconds)
        self.random = random.Random(f"{seed}/{len(so_far.rounds)}")
        self.priority = point_priorities(so_far.points, so_far.topology)
        self.chosen: list[PointKey] = []
        self.reasons: list[str] = []
        self.audit: list[PointKey] = []
        self.left = float("inf")
        if budget.seconds is not None:
            self.left = budget.seconds - so_far.spent_seconds - OVERHEAD_SECONDS_OF_ROUND

    def choose_round(self) -> Round | None:
        """Return the next round; None if too little time is left, or if no point is chosen."""
        measuring = [each for each in self.so_far.rounds if not each.earlier]
        if not measuring:
            self._choose_first_round()
        else:
            limit = self.left * _SHARE_OF_REMAINING_TIME
            if self.budget.seconds and limit < max(
                _BUDGET_SHARE_FOR_LAST_ROUND * self.budget.seconds, 2 * OVERHEAD_SECONDS_OF_ROUND
            ):
                limit = self.left
            if limit < OVERHEAD_SECONDS_OF_ROUND:
                return None  # starting the round would take longer than its measurements
            self._choose_later_round(limit, second=len(measuring) == 1)
        if not self.chosen:
            return None
        order = list(self.chosen)
        self.random.shuffle(order)
        return Round("; ".join(self.reasons), tuple(order), tuple(self.audit))

    def _choose_first_round(self) -> None:
        """Choose one replicate of as many points as fit into the time, in the order of priority."""
        limit = self.left * BUDGET_SHARE_OF_FIRST_ROUND
        for priority in Priority:
            if priority == Priority.PREDICTED and self.budget.precision is not None:
                break
            if priority == Priority.ALONE:
                self._choose_points_in_order(self._contended_points(), limit, "")
            keys = [k for k in self.points if self.priority[k] == priority and not self.done[k]]
            self.random.shuffle(keys)
            # Among points of equal priority, drives come first, since the search for slow drives
            # and paths, and all predictions, need measurements of drives.
            keys.sort(key=lambda key: not self.points[key]["loads"][0]["target"]["drives"])
            self._choose_points_in_order(
                keys, self.left if priority == Priority.MATRIX else limit, ""
            )
        self.reasons = ["the combinations that tell most about the machine, once each"]

    def _contended_points(self) -> list[PointKey]:
        """Return some random points of each kind of contention, beginning with one of each."""
        # A load of one node alone does not show the bandwidth of several initiators that share a
        # resource.
        kinds = {k: kind_of_contention(p, self.so_far.topology) for k, p in self.points.items()}
        counts = Counter(kind for key, kind in kinds.items() if self.done[key])
        keys = [key for key, kind in kinds.items() if kind is not None and not self.done[key]]
        self.random.shuffle(keys)
        ranks: dict[PointKey, int] = {}
        for key in keys:
            ranks[key] = counts[kinds[key]]
            counts[kinds[key]] += 1
        return sorted(
            (k for k in keys if ranks[k] < _POINTS_OF_EACH_CONTENTION_KIND), key=lambda k: ranks[k]
        )

    def _choose_later_round(self, limit: float, *, second: bool) -> None:
        """Choose the replicates and unmeasured points that narrow the intervals most."""
        disturbed = [
            key
            for key in self.with_values
            if not self.undisturbed[key] and self.done[key] < _REPLICATES_OF_DEPARTING_POINT
        ]
        self._choose_points_in_order(sorted(disturbed), limit / 4.0, "{} of what was disturbed")
        departing = self._departing_points()
        again = [k for k in departing if 0 < self.done[k] < _REPLICATES_OF_DEPARTING_POINT]
        surprises = [(each.experiment, each.point) for each in self.so_far.surprises]
        again += [k for k in surprises if self.done[k] < _REPLICATES_OF_DEPARTING_POINT]
        beside = [
            (each.experiment, name) for each in self.so_far.surprises for name in each.neighbours
        ]
        again += [k for k in dict.fromkeys(beside) if not self.done[k]]
        self._choose_points_in_order(again, limit / 2.0, "{} of what departs from what is expected")
        parts = self._parts_of_drive_sets(departing)
        self._choose_points_in_order(
            parts, 0.75 * limit, "{} that show which drives of a slow set are the reason"
        )
        if self.so_far.earlier_cells is not None:
            cells = self.so_far.cells_departing_from_earlier_runs
            changed = dict.fromkeys(zip(cells["experiment"], cells["point"], strict=True))
            again = [k for k in changed if 0 < self.done[k] < _REPLICATES_OF_DEPARTING_POINT]
            self._choose_points_in_order(again, limit / 2.0, "{} of what departs from earlier runs")
        if second and self.budget.seconds:
            before = len(self.chosen)
            sets = [k for k in self.points if self._is_unmeasured_set(k)]
            self.random.shuffle(sets)
            share = min(limit, self._chosen_seconds() + _AUDIT_SHARE * self.budget.seconds)
            self._choose_points_in_order(sets[:_AUDIT_SETS], share, "{} that audit the predictions")
            self.audit = self.chosen[before:]
        if second:
            self._choose_points_in_order(
                self._points_for_scatter(), limit, "{} to show how much values scatter"
            )
        self._choose_points_in_order(
            self._points_by_gain(departing), limit, "{} where the intervals are widest"
        )

    def _is_unmeasured_set(self, key: PointKey) -> bool:
        """Return whether a point reads drives of several nodes and was never measured."""
        point = self.points[key]
        several = len(point["loads"]) == 1 and len(point["loads"][0]["target"]["nodes"]) > 1
        return several and self.priority[key] == Priority.PREDICTED and not self.done[key]

    def _points_for_scatter(self) -> list[PointKey]:
        """Return random points to repeat, so that enough cells of each kind get two values."""
        # Cells of a kind share a typical variance. The kinds of cells are those of
        # `statistics.cell_summary`, except that all metrics of a load are of one kind here.
        kinds: dict[PointKey, set[object]] = {
            key: {(key[0], load["role"], load["benchmark"], load["kernel"]) for load in p["loads"]}
            for key, p in self.points.items()
        }
        known = Counter(kind for key in kinds if self.undisturbed[key] > 1 for kind in kinds[key])
        single = [key for key in kinds if self.done[key] == self.undisturbed[key] == 1]
        self.random.shuffle(single)
        found: list[PointKey] = []
        for key in single:
            if any(known[kind] < FEWEST_CELLS_FOR_PRIOR + 2 for kind in kinds[key]):
                found.append(key)
                known.update(kinds[key])
        return found

    def _departing_points(self) -> list[PointKey]:
        """Return the measured points whose values are in anomalies and suspicions."""
        # Suspicions come before anomalies, since many suspicions are based on a single measurement,
        # and only another measurement can confirm or refute a suspicion.
        found: dict[PointKey, None] = {}
        for anomaly in (*self.so_far.findings.suspicions, *self.so_far.findings.anomalies):
            rows = anomaly.rows_of_cells(self.so_far.measured)
            found |= dict.fromkeys(zip(rows["experiment"], rows["point"], strict=True))
        return [key for key in found if key in self.points]

    def _parts_of_drive_sets(self, departing: Iterable[PointKey]) -> list[PointKey]:
        """Return unmeasured points that read a part of a departing drive set of one node.

        All points of one initiator come before the points of the next initiator, since the points
        of a few initiators suffice.
        """
        slow = [_drives_of_one_node(self.points[key]) for key in departing]
        found = [
            (point["loads"][0]["initiator"]["name"], len(drives), key)
            for key, point in self.points.items()
            if not self.done[key]
            and (drives := _drives_of_one_node(point))
            and any(drives < each for each in slow)
        ]
        return [key for *_, key in sorted(found)]

    def _points_by_gain(self, departing: Iterable[PointKey]) -> list[PointKey]:
        """Return points in the order of the variance that a replicate removes per second.

        A replicate of a cell with n replicates and the variance v removes v / n - v / (n + 1).
        The first measurement of a predicted cell removes the variance of the prediction.
        """
        variances, shown = self._log_variances(), self._log_variances(earlier_runs=False)
        weights = dict.fromkeys(departing, _VARIANCE_FACTOR_OF_DEPARTING_POINTS)
        gains: dict[PointKey, float] = {}
        replicates = self.done + Counter(self.chosen)
        for key in self.points:
            n = replicates[key]
            most = max(_MOST_REPLICATES, len(self.points[key]["orders"]))
            if self.budget.precision is None:
                most = len(self.points[key]["orders"])
            variance = variances.get(key, _VARIANCE_OF_UNKNOWN_VALUE)
            # The report computes intervals without earlier runs, so the reached precision is also
            # computed without earlier runs.
            precise = self._is_precise_enough(shown.get(key, _VARIANCE_OF_UNKNOWN_VALUE), n)
            if n >= most or variance == 0.0 or precise or key in self.failed:
                continue
            gain = variance if n == 0 else variance / (n * (n + 1))
            gains[key] = weights.get(key, 1.0) * gain / self.seconds.total_of([key])
        return sorted(gains, key=lambda key: -gains[key])

    def _is_precise_enough(self, variance: float, n: int) -> bool:
        """Return whether n replicates with a given variance reach the precision of the budget."""
        target = self.budget.precision
        return target is not None and 1.96 * (variance / max(n, 1)) ** 0.5 <= target

    def _log_variances(self, *, earlier_runs: bool = True) -> dict[PointKey, float]:
        """Return point -> variance of the logarithm of one measurement, the largest of its cells.

        The variance of a predicted cell is the variance of its prediction.
        """
        found: dict[PointKey, float] = {}
        cells = self.so_far.cells_with_known_values
        own = cells["own_variance"]
        kinds = [cells[name].fillna("") for name in ("experiment", "load", "kernel", "metric")]
        typical = own.groupby(kinds).transform("median").fillna(own.median())
        if earlier_runs:
            typical = cells["known_variance"].fillna(typical)
        # Two values say little about a variance. So the variance of earlier runs, or else the
        # typical variance of the same kind of cells, counts like four more degrees of freedom.
        n = cells["n"].to_numpy(dtype=float)
        mixed = (own.fillna(0.0) * (n - 1.0) + 4.0 * typical) / (n + 3.0)
        _raise_to_largest_of_cells(found, cells, mixed)
        predicted = self.so_far.predicted
        if len(predicted):
            half = (predicted["high"] - predicted["low"]) / (2.0 * predicted["value"])
            _raise_to_largest_of_cells(found, predicted, (half / 1.96) ** 2)
        return found

    def _chosen_seconds(self) -> float:
        """Return the expected seconds of the measurements chosen so far."""
        return self.seconds.total_of(self.chosen)

    def _choose_points_in_order(self, keys: Iterable[PointKey], limit: float, reason: str) -> None:
        """Choose points in their order, with their references, until `limit` seconds are used."""
        time, before = self._chosen_seconds(), len(self.chosen)
        counts = Counter(self.chosen)
        for key in keys:
            group = [key, *self._reference_points_to_add(key, counts)]
            needed = self.seconds.total_of(group)
            if time + needed <= limit and counts[key] == 0:
                self.chosen += group
                counts.update(group)
                time += needed
        if len(self.chosen) > before and reason:
            number = format_count(len(self.chosen) - before, "measurement")
            self.reasons.append(reason.format(number))

    def _reference_points_to_add(
        self, key: PointKey, chosen: Counter[PointKey]
    ) -> Iterator[PointKey]:
        """Yield those reference points of a point that would have fewer replicates than the point.

        A ratio divides a value by the value of a reference in the same replicate, so a point and
        its references need the same number of replicates.
        """
        replicate = self.done[key] + 1
        names = {
            metric["to"]["point"]
            for metric in self.points[key].get("relative", [])
            if "to" in metric and metric["to"]["point"] != key[1]
        }
        for other in sorted((key[0], name) for name in names):
            if other in self.points and self.done[other] + chosen[other] < replicate:
                yield other


def _drives_of_one_node(point: Point) -> frozenset[str]:
    """Return the drives of one node that a point reads; empty for other points."""
    [load, *others] = point["loads"]
    drives = frozenset(drive["component"] for drive in load["target"]["drives"])
    return drives if not others and len(load["target"]["nodes"]) == 1 else frozenset()


def _raise_to_largest_of_cells(
    found: dict[PointKey, float], cells: pd.DataFrame, values: pd.Series
) -> None:
    """Raise `found[point]` to the largest finite value of the point's cells."""
    for experiment, point, value in zip(
        cells["experiment"], cells["point"], values.to_numpy(dtype=float), strict=True
    ):
        if np.isfinite(value):
            key = (experiment, point)
            found[key] = max(found.get(key, 0.0), float(value))


def describe_round(number: int, chosen: Round, seconds: float) -> str:
    """Return a line for the terminal that describes a round; `seconds` is its expected time."""
    count = format_count(len(chosen.measurements), "measurement")
    return f"round {number}: {count}, about {format_duration(seconds)}: {chosen.reason}"
