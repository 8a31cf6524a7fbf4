"""What nightly checks of simulated fleets find: recall, delay and false alarms.

Hosts are servers with eight nodes and 30 drives (EPYC 7413, NPS4). A map has three replicates. A
measurement scatters by 1 %, and each part differs by 1 % from night to night, as after a boot. A
fault begins after 30 nights, or before the map. Equal hosts differ permanently by 0.7 % in each
value. "Reported" means that a check gives a warning or a fault. "Named" means that the message of
the check has the component.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from chaosity.documents.machines import Fault
from chaosity.health.check_history import lasting_losses
from chaosity.health.check_host import measure_and_judge
from chaosity.health.check_points import (
    RECENT,
    CheckedValue,
    CheckPoint,
    Expectation,
    MapValue,
    compare_with_equal_hosts,
    exit_status_of_values,
    split_by_available_time,
    suspected_parts,
)
from chaosity.records.record_format import PointKey
from chaosity.simulation.machine_model import MachineModel, true_values
from chaosity.store.measurements import less_is_better
from machines import TODAY, server
from nightly_checks import check_points

# Standard deviations, as shares: of a measurement, and of a part from night to night.
SINGLE, SESSION = 0.01, 0.01
REPLICATES = 3
QUIET_NIGHTS, SICK_NIGHTS, HEALTHY_NIGHTS = 30, 30, 365
SECONDS = 50.0
# Part of a fault -> the fault with a remaining share of its capacity.
FAULTS: dict[str, Callable[[float], Fault]] = {
    "node5": lambda left: Fault(fault="slow_node", node=5, remaining=left),
    "drive-0000-33-00-0": lambda left: Fault(
        fault="slow_drive", drive="drive-0000-33-00-0", remaining=left
    ),
}
DRIFT_A_MONTH = 0.005
BETWEEN_HOSTS = 0.007
FLEETS = (16, 200)
MOST_FLEETS = 16  # a fleet of 200 takes up to ten seconds
# Each comparison of a fleet uses seven nights that no other comparison uses.
HEALTHY_FLEET_NIGHTS = range(RECENT, HEALTHY_NIGHTS, RECENT)


@dataclass(frozen=True)
class Reported:
    """Nights from the fault to the first message, and whether this message named the part."""

    nights: int | None
    named: bool


def values_of(faults: list[Fault]) -> dict[PointKey, float]:
    """Return point of a check -> its true value, on a machine with these faults."""
    machine = {**server().machine, "faults": faults}
    model = MachineModel(machine, server().topology, server().name, TODAY)
    return {
        check.key: float(true_values(check.point, model)[check.load["name"]][check.metric])
        for check in check_points()
    }


class Host:
    """A host with a map, and its checks."""

    def __init__(self, seed: str, healthy: Mapping[PointKey, float]) -> None:
        self.chance = random.Random(seed)
        self.earlier: dict[PointKey, list[float]] = {}
        self.checked: dict[PointKey, str] = {}
        self.known = {}
        for key, value in healthy.items():
            taken = [value * self._noise(SINGLE) for _ in range(REPLICATES)]
            self.known[key] = MapValue(statistics.median(taken), REPLICATES, SINGLE**2)

    def _noise(self, deviation: float) -> float:
        return math.exp(self.chance.gauss(0.0, deviation))

    def check(self, night: int, true: Mapping[PointKey, float]) -> list[CheckedValue]:
        """Return the values of a check, and keep them as earlier values for the next checks."""
        session = {key: self._noise(SESSION) for key in true}
        points, _ = split_by_available_time(check_points(), self.checked, 0.85 * SECONDS)
        spent = 0.0

        def measure(check: CheckPoint, _replicate: int) -> tuple[float | None, bool]:
            nonlocal spent
            spent += check.seconds
            return true[check.key] * session[check.key] * self._noise(SINGLE), False

        values = measure_and_judge(
            points,
            Expectation(self.known, self.earlier),
            measure,
            lambda check: spent + check.seconds <= SECONDS,
        )
        for value in values:
            self.checked[value.check.key] = f"{night:05}"
            if not value.tonight.is_clear:
                self.earlier.setdefault(value.check.key, []).append(value.value)
        return values


def nights_until_reported(
    seed: str, healthy: Mapping[PointKey, float], sick: list[dict[PointKey, float]], part: str
) -> Reported:
    """Check a host in nights without a fault, then in nights with the fault."""
    host = Host(seed, healthy)
    for night in range(QUIET_NIGHTS):
        host.check(night, healthy)
    for night, true in enumerate(sick):
        values = host.check(QUIET_NIGHTS + night, true)
        if exit_status_of_values(values):
            return Reported(night + 1, any(part in each.parts for each in suspected_parts(values)))
    return Reported(None, False)


def drifted(healthy: Mapping[PointKey, float], part: str, nights: int) -> dict[PointKey, float]:
    """Return point -> its true value after a part has become worse for some nights."""
    left = 1.0 - DRIFT_A_MONTH * nights / 30.0
    parts = {check.key: check for check in check_points()}
    return {
        key: value * (left if not less_is_better(parts[key].metric) else 1.0 / left)
        if part in parts[key].parts
        else value
        for key, value in healthy.items()
    }


def compare(pairs: int) -> Iterator[str]:
    """Yield the tables, each for `pairs` hosts, 16 by default."""
    healthy = values_of([])
    seconds = sum(check.seconds for check in check_points())
    yield f"{len(check_points())} points, {seconds:.0f} s; {pairs} hosts each"
    yield "| what | reported in the first night | within 30 nights | median delay, nights | named |"
    yield "|---|---|---|---|---|"
    for part, fault in FAULTS.items():
        for loss in (0.03, 0.05, 0.10):
            sick = [values_of([fault(1.0 - loss)])] * SICK_NIGHTS
            yield fault_line(f"{part}, {loss:.0%} less", healthy, sick, part, pairs)
    sick = [drifted(healthy, "node5", night) for night in range(2 * HEALTHY_NIGHTS)]
    yield fault_line("node5, drift of 0.5 % a month", healthy, sick, "node5", pairs)
    for hosts in FLEETS:
        for part, fault in FAULTS.items():
            for loss in (0.03, 0.05, 0.10):
                bad = values_of([fault(1.0 - loss)])
                what = f"{part}, {loss:.0%} less before the map, {hosts} hosts"
                numbers = range(min(pairs, MOST_FLEETS))
                reported = [
                    fleet_reported(f"{what} {n}", healthy, bad, part, hosts) for n in numbers
                ]
                yield row_of(what, reported)
        yield healthy_fleet(hosts, healthy)
    for loss in (0.0, 0.03, 0.05, 0.10):
        yield dating_line(loss, pairs)
    alarms = 0
    for number in range(pairs):
        host = Host(f"healthy {number}", healthy)
        alarms += sum(
            exit_status_of_values(host.check(night, healthy)) > 0 for night in range(HEALTHY_NIGHTS)
        )
    checks = pairs * HEALTHY_NIGHTS
    per_year = f"{alarms / pairs:.2f} in a host's year"
    yield f"healthy: {alarms} of {checks} checks reported a loss, {per_year}"


def fault_line(
    what: str,
    healthy: Mapping[PointKey, float],
    sick: list[dict[PointKey, float]],
    part: str,
    hosts: int,
) -> str:
    """Return a line of the table, for hosts with a fault."""
    return row_of(
        what, [nights_until_reported(f"{what} {n}", healthy, sick, part) for n in range(hosts)]
    )


def row_of(what: str, reported: list[Reported]) -> str:
    """Return a line of the table, for the hosts of one kind."""
    hosts = len(reported)
    nights = sorted(each.nights for each in reported if each.nights is not None)
    delay = f"{statistics.median(nights):g}" if nights else "-"
    first, within = (sum(each <= limit for each in nights) for limit in (1, SICK_NIGHTS))
    named = sum(each.named for each in reported)
    cells = [
        what,
        f"{first} of {hosts}",
        f"{within} of {hosts}",
        delay,
        f"{named} of {len(nights)}",
    ]
    return f"| {' | '.join(cells)} |"


def own_values(chance: random.Random, values: Mapping[PointKey, float]) -> dict[PointKey, float]:
    """Return the true values of one host of a fleet; each host has different true values."""
    return {
        key: value * math.exp(chance.gauss(0.0, BETWEEN_HOSTS)) for key, value in values.items()
    }


def night_values(chance: random.Random, true: Mapping[PointKey, float]) -> dict[PointKey, float]:
    """Return the values of a night, each measured once."""
    both = math.hypot(SESSION, SINGLE)
    return {key: value * math.exp(chance.gauss(0.0, both)) for key, value in true.items()}


def last_nights(nights: Sequence[Mapping[PointKey, float]]) -> dict[PointKey, list[float]]:
    """Return point -> its values in several nights, the oldest first."""
    return {key: [night[key] for night in nights] for key in nights[0]}


def fleet_reported(
    seed: str,
    healthy: Mapping[PointKey, float],
    bad: Mapping[PointKey, float],
    part: str,
    hosts: int,
) -> Reported:
    """Check a host whose map was bad already, each night with the other hosts of its fleet."""
    chance = random.Random(seed)
    true = own_values(chance, bad)
    host = Host(seed, true)
    fleet = [own_values(chance, healthy) for _ in range(hosts - 1)]
    nights: list[list[dict[PointKey, float]]] = [[] for _ in fleet]
    for night in range(SICK_NIGHTS):
        for other, values in zip(fleet, nights, strict=True):
            values[:] = [*values[1 - RECENT :], night_values(chance, other)]
        own = {key: values[1 - RECENT :] for key, values in host.earlier.items()}
        judged = compare_with_equal_hosts(
            host.check(night, true), own, [last_nights(values) for values in nights]
        )
        if exit_status_of_values(judged):
            return Reported(night + 1, any(part in each.parts for each in suspected_parts(judged)))
    return Reported(None, False)


def healthy_fleet(hosts: int, healthy: Mapping[PointKey, float]) -> str:
    """Return a line on the false alarms that comparing equal hosts alone gives in a year."""
    chance = random.Random(f"healthy fleet {hosts}")
    nights, alarms, checks = HEALTHY_FLEET_NIGHTS[:: max(1, hosts // 16)], 0, 0
    for _ in nights:
        # Each year has new hosts, since a host that differs by chance differs in every night.
        fleet = [own_values(chance, healthy) for _ in range(hosts)]
        values = [last_nights([night_values(chance, o) for _ in range(RECENT)]) for o in fleet]
        for number, own in enumerate(values):
            tonight = [
                CheckedValue(check, (own[check.key][-1],), own[check.key][-1], 1.0)
                for check in check_points()
            ]
            earlier = {key: each[:-1] for key, each in own.items()}
            others = values[:number] + values[number + 1 :]
            judged = compare_with_equal_hosts(tonight, earlier, others)
            alarms += any(value.equals.is_clear for value in judged)
            checks += 1
    share = HEALTHY_NIGHTS * alarms / checks
    return f"healthy, {hosts} hosts: {alarms} of {checks} comparisons, {share:.2f} in a host's year"


def all_tests_together(fleet: int, healthy: Mapping[PointKey, float]) -> tuple[int, int, int]:
    """Return the checks of a healthy fleet in a year: all, with a loss, with one by equal hosts.

    Each host has a map of its own and is judged each night by all three tests, as in the product.
    """
    chance = random.Random(f"together {fleet}")
    truths = [own_values(chance, healthy) for _ in range(FLEETS[0])]
    hosts = [Host(f"together {fleet} {n}", true) for n, true in enumerate(truths)]
    reported = by_equals = 0
    for night in range(HEALTHY_NIGHTS):
        recent = [{key: each[-RECENT:] for key, each in one.earlier.items()} for one in hosts]
        for number, (host, true) in enumerate(zip(hosts, truths, strict=True)):
            own = {key: each[1 - RECENT :] for key, each in recent[number].items()}
            others = recent[:number] + recent[number + 1 :]
            judged = compare_with_equal_hosts(host.check(night, true), own, others)
            reported += exit_status_of_values(judged) > 0
            by_equals += any(value.equals.is_clear for value in judged)
    return FLEETS[0] * HEALTHY_NIGHTS, reported, by_equals


def compare_together(fleets: int) -> Iterator[str]:
    """Yield a line on the false alarms of fleets of 16 in a year, by all tests together."""
    healthy = values_of([])
    found = [all_tests_together(fleet, healthy) for fleet in range(fleets)]
    checks, reported, by_equals = (sum(each) for each in zip(*found, strict=True))
    years = checks / HEALTHY_NIGHTS
    yield (
        f"{fleets} healthy fleets of {FLEETS[0]}: {reported} of {checks} checks reported a loss, "
        f"{reported / years:.2f} in a host's year; {by_equals} of them by equal hosts"
    )


FIRST = datetime(2026, 1, 1, 2, tzinfo=UTC)


def dating_line(loss: float, hosts: int) -> str:
    """Return a line on how well the overview dates a loss that begins after 60 nights."""
    errors, false = [], 0
    for number in range(hosts):
        chance = random.Random(f"dates {loss} {number}")
        rows = []
        for check in check_points():
            share = 1.0 - loss if check is check_points()[0] else 1.0
            for night in range(67):
                value = math.exp(chance.gauss(0.0, math.hypot(SESSION, SINGLE)))
                value *= share if night >= 60 else 1.0
                names = {"experiment": check.key[0], "point": check.key[1]}
                rows.append(
                    {
                        **names,
                        "metric": "bandwidth_bytes_per_second",
                        "time": (FIRST + timedelta(days=night)).isoformat(),
                        "value": repr(value),
                    }
                )
        for step in lasting_losses(rows):
            if loss and step.point == check_points()[0].key[1]:
                errors.append(abs((datetime.fromisoformat(step.since) - FIRST).days - 60))
            else:
                false += 1
    worst = f", at most {max(errors)} nights off" if errors else ""
    return (
        f"{loss:.0%} less for 7 nights: {len(errors)} of {hosts} dated{worst}; {false} false dates"
    )


PARTS = {"checks": compare, "checks_of_fleets": compare_together}
