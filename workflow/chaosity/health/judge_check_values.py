"""Judge the values of a check by the host's map and by its earlier checks.

The logarithm of a value over the map's median scatters for three reasons: a single measurement
scatters, which the map's replicates show; the median is not exact; and sessions differ, which the
earlier checks show. A loss is clear if it exceeds the scatter so far that a healthy host with a
check every night gives one false alarm in a year, whatever the number of values.

A loss that hides in the scatter of a night shows in the mean of several nights. So the last checks
are also compared with the first ones after the map, which a slow drift does not move.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import fmean, median

from scipy import stats

from chaosity.health.change_points import variance_of_neighbours
from chaosity.health.choose_check_points import CheckPoint, PointKey
from chaosity.statistics.moderated_variances import variance_of_median
from chaosity.store.measurements import less_is_better

# Standard deviation between sessions of a healthy host, and the number of earlier deviations that
# it counts as. Runs of a machine differ by 1 to 2 % from boot to boot.
_SESSION_DEVIATION, _SESSION_FREEDOM = 0.015, 8.0
# A smaller loss is not reported, however clear: it is within what a boot changes.
MATTERS = 0.02
# A false alarm in so many checks.
_CHECKS_PER_FALSE_ALARM = 365.0
# Number of last checks that are judged together, and of first checks that they are compared with.
RECENT, _REFERENCE = 7, 14
# A loss that is a fault, and not only a warning: a single part that loses so much is broken.
_FAULT = 0.10
# If at least this share of values of several parts is slow, the cause is common to all of them.
_COMMON_SHARE = 0.7

FINE, WARNING, FAULTY = 0, 1, 2


@dataclass(frozen=True)
class MapValue:
    """What the map says about a value: the median, n, and the variance of a value's logarithm."""

    median: float
    n: int
    variance: float


@dataclass(frozen=True)
class CheckedValue:
    """A value of a check."""

    check: CheckPoint  # the point
    # The measured values in the metric's unit; more than one if the first was slow.
    values: tuple[float, ...]
    expected: float  # the median of the map, corrected by the earlier checks
    limit: float  # the smallest loss that would be clear, as a share
    disturbed: bool = False  # whether other programs used the processors meanwhile
    # Loss of the last `RECENT` checks together, of which this is the last; 0 while there are too
    # few checks.
    recent_loss: float = 0.0
    recent_limit: float = math.inf  # the smallest such loss that would be clear
    loss_to_equals: float = 0.0  # loss against equal hosts, by the recent checks of all of them
    limit_to_equals: float = math.inf  # the smallest such loss that would be clear
    equal_hosts: int = 0  # number of equal hosts with recent checks of the point; 0 if too few
    # Whether the host is a virtual machine and the value one of its memory. A hypervisor can run
    # two of its processors on one core for minutes, which halves the bandwidth and shows in no
    # counter of the machine.
    hypervisor_may_explain: bool = False

    @property
    def value(self) -> float:
        """Return the median of the values."""
        return median(self.values)

    @property
    def loss(self) -> float:
        """Return how much worse the value is than expected, as a share: 0.1 is 10 % less bandwidth.

        A latency of twice the expected one is a loss of 1.0. A better value is a negative loss.
        """
        ratio = self.value / self.expected
        return ratio - 1.0 if less_is_better(self.check.metric) else 1.0 - ratio

    @property
    def is_clear(self) -> bool:
        """Return whether the loss is large enough to matter and not explained by chance."""
        return self.loss > max(self.limit, MATTERS)

    @property
    def is_slow(self) -> bool:
        """Return whether a loss is clear: tonight, in the last checks, or against equal hosts."""
        return self.is_clear or self.is_recently_slow or self.is_slower_than_equals

    @property
    def is_recently_slow(self) -> bool:
        """Return whether the last checks together show a clear loss."""
        return self.recent_loss > max(self.recent_limit, MATTERS)

    @property
    def is_slower_than_equals(self) -> bool:
        """Return whether equal hosts show a clear loss."""
        return self.loss_to_equals > self.limit_to_equals

    @property
    def told_loss(self) -> float:
        """Return tonight's loss, else that of the last checks, else that to equal hosts."""
        if self.is_clear:
            return self.loss
        return self.recent_loss if self.is_recently_slow else self.loss_to_equals

    @property
    def is_confirmed(self) -> bool:
        """Return whether repeated measurements show the loss, undisturbed by other programs."""
        return self.is_clear and len(self.values) > 1 and not self.disturbed

    @property
    def is_fault(self) -> bool:
        """Return whether the loss is confirmed and so large that a part is broken."""
        return self.is_confirmed and self.loss >= _FAULT and not self.hypervisor_may_explain


def probability_of_false_alarm(number: int) -> float:
    """Return the probability at which a test of one of `number` values may give a false alarm.

    Each value has three tests: tonight's, that of the last checks, and that against equal hosts.
    All tests of a host together give one false alarm in a year of checks.
    """
    return 1.0 / (_CHECKS_PER_FALSE_ALARM * 3 * number)


@cache
def _quantile_of_false_alarms(number: int) -> float:
    """Return the normal quantile that belongs to `probability_of_false_alarm`."""
    return float(stats.norm.isf(probability_of_false_alarm(number)))


class Expectation:
    """What a check expects of each point.

    Args:
        known: experiment and point -> what the map says.
        earlier: experiment and point -> values of earlier checks, in the metric's unit.
        in_virtual_machine: whether the host is a virtual machine.
    """

    def __init__(
        self,
        known: Mapping[PointKey, MapValue],
        earlier: Mapping[PointKey, Sequence[float]],
        *,
        in_virtual_machine: bool = False,
    ) -> None:
        self.known = known
        self.in_virtual_machine = in_virtual_machine
        # Logarithms of values over the map's median, oldest first.
        self.logs = {
            # Not the logarithm of the ratio: the ratio of a damaged series can be 0.
            key: [math.log(value) - math.log(known[key].median) for value in values]
            for key, values in earlier.items()
            if key in known
        }
        steps = [
            later - sooner
            for logs in self.logs.values()
            if len(logs) > 2
            for sooner, later in pairwise(logs)
        ]
        nightly = variance_of_neighbours(steps)
        # The values of nights scatter also as single measurements do.
        own = max(nightly - median(each.variance for each in known.values()), 0.0) if steps else 0.0
        self.session_variance = (_SESSION_FREEDOM * _SESSION_DEVIATION**2 + len(steps) * own) / (
            _SESSION_FREEDOM + len(steps)
        )

    def judged(
        self, check: CheckPoint, values: Sequence[float], number: int, *, disturbed: bool = False
    ) -> CheckedValue:
        """Return the judged value: with the expected value and the smallest loss that is clear.

        Args:
            check: the point.
            values: its measured values.
            number: how many values the check has in all; each could give a false alarm.
            disturbed: whether other programs used the processors meanwhile.
        """
        known, logs = self.known[check.key], self.logs.get(check.key, [])
        quantile = _quantile_of_false_alarms(number)
        nightly = self.session_variance + known.variance
        # From three earlier checks on, their median tells what a short measurement gives.
        first = logs[:_REFERENCE]
        shift = median(first) if len(first) > 2 else 0.0
        each, size = (nightly, len(first)) if len(first) > 2 else (known.variance, known.n)
        variance = self.session_variance + known.variance / len(values)
        least = quantile * math.sqrt(variance + each * variance_of_median(size))
        is_time = less_is_better(check.metric)
        limit = math.expm1(least) if is_time else -math.expm1(-least)
        judged = CheckedValue(
            check,
            tuple(values),
            known.median * math.exp(shift),
            limit,
            disturbed,
            hypervisor_may_explain=self.in_virtual_machine and not check.load["target"]["drives"],
        )
        reference, last = logs[: 1 - RECENT][:_REFERENCE], logs[1 - RECENT :]
        if len(reference) < RECENT:
            return judged
        last = [*last, math.log(judged.value / known.median)]
        away = fmean(last) - median(reference)
        variance = nightly * (1.0 / RECENT + float(variance_of_median(len(reference))))
        least = quantile * math.sqrt(variance)
        losses = [
            math.expm1(x) if is_time else -math.expm1(-x)
            for x in (away if is_time else -away, least)
        ]
        return replace(judged, recent_loss=losses[0], recent_limit=losses[1])


def status_of_values(values: Iterable[CheckedValue]) -> int:
    """Return FINE, WARNING or FAULTY (0, 1, 2): the exit status of a check."""
    slow = [value for value in values if value.is_slow]
    if any(value.is_fault for value in slow):
        return FAULTY
    return WARNING if slow else FINE


@dataclass(frozen=True)
class Suspect:
    """Components that explain slow values."""

    # Names of components; several if the check cannot tell them apart; empty if most of the host is
    # slow.
    parts: tuple[str, ...]
    values: tuple[CheckedValue, ...]  # the slow values that they explain, the largest loss first


def suspected_parts(values: Sequence[CheckedValue]) -> list[Suspect]:
    """Return the components that explain all clear losses, the largest loss first.

    A component is suspected if every value that it limits is slow. Those that explain most slow
    values come first; a value is explained once. If nearly all values are slow, the cause is common
    to all parts.
    """
    slow = sorted((value for value in values if value.is_slow), key=lambda value: -value.told_loss)
    parts = {part for value in values for part in value.check.parts}
    if len(parts) > 2 and len(slow) >= _COMMON_SHARE * len(values):
        return [Suspect((), tuple(slow))]
    found: list[Suspect] = []
    while slow:
        explained: dict[str, list[CheckedValue]] = {}
        for value in slow:
            for part in value.check.parts:
                explained.setdefault(part, []).append(value)
        # A node can be slow in bandwidth and fine in latency: only values of the same metric count.
        well = {
            part: sum(
                part in value.check.parts
                and not value.is_slow
                and value.check.metric in {each.check.metric for each in own}
                for value in values
            )
            for part, own in explained.items()
        }
        best = max(
            explained,
            key=lambda part: (-well[part], len(explained[part]), explained[part][0].told_loss),
        )
        mine = explained[best]
        # If both ends of a slow path are fast in other values, the path is named by its two ends.
        names = (best,) if well[best] == 0 else mine[0].check.parts
        mine = mine if well[best] == 0 else [mine[0]]
        found.append(Suspect(names, tuple(mine)))
        slow = [value for value in slow if not any(value is each for each in mine)]
    return sorted(found, key=lambda suspect: -suspect.values[0].told_loss)
