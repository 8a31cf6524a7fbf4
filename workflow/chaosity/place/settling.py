"""Searches the data-to-worker proximity at which a program goes fastest, while it runs.

After BWAP's tuner (Gureya et al., IPDPS 2020): from the given shares on, pages are moved towards
the workers step by step for as long as that helps. Rates scatter, so a step counts only when it is
clearly better or worse, by 95 % intervals; in doubt both it and the best one so far are measured
again, in turns, so that a drift of the machine falls on both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chaosity.place.page_shares import largest_share_deviation

# BWAP's own: a tenth of the way at a time.
STEP = 0.1
# So often a doubtful step and the best one are measured again, in turns.
ROUNDS = 2
# Better by so many intervals needs no second look; machines drift between two stretches by more
# than the scatter within one says.
SURELY = 2.0
# Steps that are not clearly better than the best, after which it stays.
PATIENCE = 2


# The kernel looks at a program's memory once a second at most, and for the first time after a
# second (numa_balancing_scan_delay_ms, scan_period_min_ms), so a second lies between looks.
LOOK_SECONDS = 1.0
# At rest: over so many looks no node's share has changed by more than this part of all pages.
LOOKS, CHANGE = 4, 0.01
# A scan takes 256 MiB, so what is larger than some GiB may go on for minutes. Others wait
# meanwhile, so what has not come to rest by then is measured as it is.
LONGEST_SECONDS = 20.0


class TimeUpError(Exception):
    """There is no time for another rate."""


@dataclass(frozen=True)
class MeasuredRate:
    """How fast the program went over a stretch.

    Attributes:
        value: amount a second.
        relative_half_width: half of the 95 % interval, relative to the value.
        seconds: how long was measured.
    """

    value: float
    relative_half_width: float
    seconds: float = 0.0


@dataclass
class DwpStep:
    """A data-to-worker proximity that was tried, and the rates found there."""

    dwp: float
    rates: list[MeasuredRate] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The median of the rates, which a stretch that was disturbed does not move far."""
        return statistics.median(rate.value for rate in self.rates)

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, as of the mean; the stretches are independent."""
        squares = sum((rate.value * rate.relative_half_width) ** 2 for rate in self.rates)
        return math.sqrt(squares) / len(self.rates)

    @property
    def last(self) -> DwpStep:
        """The step by its latest stretch alone."""
        return DwpStep(self.dwp, self.rates[-1:])


def compare_steps(one: DwpStep, other: DwpStep, times: float = 1.0) -> int:
    """Whether a step is clearly faster (1) or slower (-1) than another, or neither (0).

    Args:
        one: a step.
        other: what it is compared with.
        times: how many times the interval of the difference it has to be.
    """
    difference = one.value - other.value
    if abs(difference) <= times * math.hypot(one.half_width, other.half_width):
        return 0
    return 1 if difference > 0 else -1


class DwpSearch:
    """A search; what it has found so far can be read when it is broken off.

    Args:
        rate: measures the program where it is now; a `TimeUpError` of it ends the search.
        move_to: moves its pages to a data-to-worker proximity.
        step: from one proximity to the next.
    """

    def __init__(
        self, rate: Callable[[], MeasuredRate], move_to: Callable[[float], None], step: float = STEP
    ) -> None:
        self.rate, self.move_to, self.step = rate, move_to, step
        self.now = 0.0
        self.best: DwpStep | None = None
        self.measured: list[tuple[float, MeasuredRate]] = []
        self.settled = False

    def run(self) -> float:
        """Search, and leave the program at the best proximity found, which is returned."""
        try:
            self._climb()
            self.settled = True
        except TimeUpError:
            pass  # the best so far, then, which nobody knows to be the best of all
        self._go(self.best.dwp if self.best else 0.0)
        return self.now

    def _climb(self) -> None:
        self.best = self._measure(DwpStep(0.0))
        stale = 0
        for number in range(1, round(1.0 / self.step) + 1):
            tried = self._measure(DwpStep(min(1.0, round(number * self.step, 9))))
            found = self._compare(tried)
            if found > 0:
                self.best, stale = tried, 0
            else:
                stale += 1
            if found < 0 or stale == PATIENCE:
                break

    def _compare(self, tried: DwpStep) -> int:
        """Whether a step is clearly better or worse than the best, measured again in doubt.

        What looks worse is looked at once more too: to stop for a passing disturbance would keep
        the program slow for the rest of its run.
        """
        assert self.best is not None
        if compare_steps(tried, self.best, SURELY) > 0:
            return 1
        for _ in range(ROUNDS):
            self._measure(self.best)
            self._measure(tried)
            again = compare_steps(tried.last, self.best.last)
            if again and again == compare_steps(tried, self.best):
                return again
        return compare_steps(tried, self.best)

    def _measure(self, step: DwpStep) -> DwpStep:
        self._go(step.dwp)
        rate = self.rate()
        step.rates.append(rate)
        self.measured.append((step.dwp, rate))
        return step

    def _go(self, dwp: float) -> None:
        if dwp != self.now:
            self.move_to(dwp)
            self.now = dwp


@dataclass
class KernelSettling:
    """How a program's pages came to rest, as the report says it.

    Attributes:
        seconds: how long was waited.
        settled: whether they came to rest in that time.
    """

    seconds: float = 0.0
    settled: bool = False

    def wait(self, pump: Callable[[float], bool], look: Callable[[], Mapping[int, float]]) -> None:
        """Look at the pages of a running program until they are at rest.

        Args:
            pump: lets the program go on for some seconds; False when it has ended.
            look: the share of each node now.
        """
        began = time.monotonic()
        seen = [look()]
        while not self.settled and self.seconds < LONGEST_SECONDS and pump(LOOK_SECONDS):
            seen = [*seen, look()][-LOOKS:]
            self.settled = len(seen) == LOOKS and _at_rest(seen)
            self.seconds = time.monotonic() - began


def _at_rest(seen: list[Mapping[int, float]]) -> bool:
    return all(largest_share_deviation(one, seen[-1]) <= CHANGE for one in seen)
