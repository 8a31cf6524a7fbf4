"""Judge the values of a check by the host's map and by its earlier checks.

The logarithm of a value over the map's median scatters for three reasons: a single measurement
scatters, which the map's replicates show; the median is not exact; and sessions differ, which the
earlier checks show. A loss is clear if it exceeds the scatter so far that a healthy host with a
check every night gives one false alarm in a year, whatever the number of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from scipy import stats

from chaosity.health.choose_check_points import CheckPoint, PointKey
from chaosity.store.measurements import less_is_better

# Standard deviation between sessions of a healthy host, and the number of earlier deviations that
# it counts as. Runs of a machine differ by 1 to 2 % from boot to boot.
_SESSION_DEVIATION, _SESSION_FREEDOM = 0.015, 8.0
# A smaller loss is not reported, however clear: it is within what a boot changes.
_MATTERS = 0.02
# A false alarm in so many checks.
_CHECKS_PER_FALSE_ALARM = 365.0
# A loss that is a fault, and not only a warning: a single part that loses so much is broken.
FAULT = 0.10
# If at least this share of values of several parts is slow, the cause is common to all of them.
_COMMON_SHARE = 0.7
# Standard deviation of a normal sample, divided by its median absolute deviation.
_MAD_TO_DEVIATION = 1.4826

FINE, WARNING, FAULTY = 0, 1, 2


@dataclass(frozen=True)
class MapValue:
    """What the map says about a value: the median, n, and the variance of a value's logarithm."""

    median: float
    n: int
    variance: float


@dataclass(frozen=True)
class CheckedValue:
    """A value of a check.

    Attributes:
        check: the point.
        values: the measured values in the metric's unit; more than one if the first was slow.
        expected: the median of the map, corrected by the earlier checks.
        limit: the smallest loss that would be clear, as a share.
        disturbed: whether other programs used the processors meanwhile.
    """

    check: CheckPoint
    values: tuple[float, ...]
    expected: float
    limit: float
    disturbed: bool = False

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
        """Return whether the loss is no chance, and large enough to matter."""
        return self.loss > max(self.limit, _MATTERS)

    @property
    def is_confirmed(self) -> bool:
        """Return whether the loss is clear in repeated measurements without disturbance."""
        return self.is_clear and len(self.values) > 1 and not self.disturbed


class Expectation:
    """What a check expects of each point.

    Args:
        known: experiment and point -> what the map says.
        earlier: experiment and point -> values of earlier checks, in the metric's unit.
    """

    def __init__(
        self, known: Mapping[PointKey, MapValue], earlier: Mapping[PointKey, Sequence[float]]
    ) -> None:
        self.known = known
        self.shift, away = dict[PointKey, float](), list[float]()
        self.sessions = dict[PointKey, int]()
        for key, values in earlier.items():
            if key in known:
                logs = [math.log(value / known[key].median) for value in values]
                self.shift[key], self.sessions[key] = median(logs), len(logs)
                away += [each - self.shift[key] for each in logs] if len(logs) > 2 else []
        own = _MAD_TO_DEVIATION * median(map(abs, away)) if away else 0.0
        total = _SESSION_FREEDOM + len(away)
        # The scatter of earlier checks contains that of measurements, so it is an upper bound.
        self.session_variance = (
            _SESSION_FREEDOM * _SESSION_DEVIATION**2 + len(away) * own**2
        ) / total

    def judged(
        self, check: CheckPoint, values: Sequence[float], number: int, *, disturbed: bool = False
    ) -> CheckedValue:
        """Return a value with what was expected and the smallest clear loss.

        Args:
            check: the point.
            values: its measured values.
            number: how many values the check has in all; each could give a false alarm.
            disturbed: whether other programs used the processors meanwhile.
        """
        known, sessions = self.known[check.key], self.sessions.get(check.key, 0)
        # From three earlier checks on, their median tells what a short measurement gives.
        shift = self.shift[check.key] if sessions > 2 else 0.0
        variance = known.variance / len(values) + self.session_variance
        # The variance of a median is larger than that of a mean, by pi / 2 for normal values.
        variance += (
            math.pi
            / 2
            * (self.session_variance / sessions if sessions > 2 else known.variance / known.n)
        )
        quantile = float(stats.norm.isf(1.0 / (_CHECKS_PER_FALSE_ALARM * number)))
        least = quantile * math.sqrt(variance)
        limit = math.expm1(least) if less_is_better(check.metric) else -math.expm1(-least)
        expected = known.median * math.exp(shift)
        return CheckedValue(check, tuple(values), expected, limit, disturbed)


def status_of_values(values: Iterable[CheckedValue]) -> int:
    """Return FINE, WARNING or FAULTY (0, 1, 2): the exit status of a check."""
    clear = [value for value in values if value.is_clear]
    if any(value.is_confirmed and value.loss >= FAULT for value in clear):
        return FAULTY
    return WARNING if clear else FINE


@dataclass(frozen=True)
class Suspect:
    """Components that explain slow values.

    Attributes:
        parts: names of components; several if the check cannot tell them apart; empty if most of
            the host is slow.
        values: the slow values that they explain, the largest loss first.
    """

    parts: tuple[str, ...]
    values: tuple[CheckedValue, ...]


def suspected_parts(values: Sequence[CheckedValue]) -> list[Suspect]:
    """Return the components that explain all clear losses, the largest loss first.

    A component is suspected if every value that it limits is slow. Those that explain most slow
    values come first; a value is explained once. If nearly all values are slow, the cause is common
    to all parts.
    """
    slow = sorted((value for value in values if value.is_clear), key=lambda value: -value.loss)
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
                and not value.is_clear
                and value.check.metric in {each.check.metric for each in own}
                for value in values
            )
            for part, own in explained.items()
        }
        best = max(
            explained, key=lambda part: (-well[part], len(explained[part]), explained[part][0].loss)
        )
        mine = explained[best]
        # A path between two parts that are well alone is named by both.
        names = (best,) if well[best] == 0 else mine[0].check.parts
        mine = mine if well[best] == 0 else [mine[0]]
        found.append(Suspect(names, tuple(mine)))
        slow = [value for value in slow if not any(value is each for each in mine)]
    return sorted(found, key=lambda suspect: -suspect.values[0].loss)
