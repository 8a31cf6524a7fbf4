"""What a run with a budget does first: complete the rounds of earlier runs, as far as time allows.

A measurement of these rounds has to be made again if its record is missing or failed, or if a
component or the definition of its point changed after the record. So an upgrade of a tool can
request all measurements again, which may take longer than the budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from chaosity.records.record_format import Point
from chaosity.rounds.machine_so_far import MachineSoFar, SecondsOfPoints
from chaosity.rounds.point_priority import point_priorities
from chaosity.rounds.round_types import (
    OVERHEAD_SECONDS,
    ROUND_SECONDS,
    Budget,
    PointKey,
    Round,
    point_key,
)
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count, format_duration

Replicate = tuple[PointKey, int]  # point and number of the replicate, from 1


class RecordState(NamedTuple):
    """The facts on a record that the choice of rounds needs."""

    seconds: float  # how long the measurement took; 0 for a broken record
    is_valid: bool
    # Whether a component of the point, or its definition, changed after the measurement.
    is_outdated: bool

    @property
    def counts(self) -> bool:
        """Return whether the record is valid and not outdated, so that it need not be replaced."""
        return self.is_valid and not self.is_outdated


RecordStates = Mapping[Replicate, RecordState]


@dataclass(frozen=True)
class ResumedRounds:
    """The rounds of earlier runs, without the measurements for which there is no time."""

    rounds: list[Round]
    lacking_measurements: list[
        Replicate
    ]  # measurements of these rounds that lack a record that counts
    lacking_seconds: float  # expected time of these measurements
    outdated_count: int  # how many of these lacking measurements have an outdated record
    left_out_count: int  # how many outdated measurements do not fit into the budget

    @property
    def first_measurements_text(self) -> str | None:
        """Return a clause on the lacking measurements for the terminal; None if none is lacking."""
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
    """Yield the index of the round, and point and replicate, of each measurement of the rounds."""
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
    """Return the rounds with as many of the lacking measurements as fit into the budget.

    Measurements of earlier rounds come first, and within a round those that show most of the
    machine. Records from before the first round cost no budget, so no lacking one is measured
    again. `points` is the complete plan of the host. Records of other points are kept, but other
    points are not measured again.
    """
    planned, priorities = set(map(point_key, points)), point_priorities(points, topology)
    durations: dict[PointKey, list[float]] = {}
    for (key, _), each in states.items():
        if each.seconds:
            durations.setdefault(key, []).append(each.seconds)
    seconds = SecondsOfPoints(MachineSoFar(points, topology, record_seconds=durations))
    left = float("inf") if budget.seconds is None else budget.seconds
    lacking: list[tuple[int, int, Replicate]] = []
    for index, (key, number) in replicates_of_rounds(rounds):
        state = states.get((key, number))
        if key in planned and (state is None or not state.counts):
            lacking.append((index, int(priorities[key]), (key, number)))
        elif state is not None and not rounds[index].earlier:
            left -= state.seconds + OVERHEAD_SECONDS
    left -= ROUND_SECONDS * sum(not each.earlier for each in rounds)
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
