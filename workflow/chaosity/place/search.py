"""Searches the data-to-worker proximity at which a program goes fastest, while it runs.

After BWAP's tuner (Gureya et al., IPDPS 2020): from the given shares on, pages are moved towards
the workers step by step for as long as that helps. Rates scatter, so a step counts only when it is
clearly better or worse, by 95 % intervals; in doubt both it and the best one so far are measured
again, in turns, so that a drift of the machine falls on both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

# BWAP's own: a tenth of the way at a time.
STEP = 0.1
# So often a doubtful step and the best one are measured again, in turns.
ROUNDS = 2
# Better by so many intervals needs no second look; machines drift between two stretches by more
# than the scatter within one says.
SURELY = 2.0
# Steps that are not clearly better than the best, after which it stays.
PATIENCE = 2


class TimeUpError(Exception):
    """There is no time for another rate."""


@dataclass(frozen=True)
class Rate:
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
class Step:
    """A data-to-worker proximity that was tried, and the rates found there."""

    dwp: float
    rates: list[Rate] = field(default_factory=list)

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
    def last(self) -> Step:
        """The step by its latest stretch alone."""
        return Step(self.dwp, self.rates[-1:])


def clearly(one: Step, other: Step, times: float = 1.0) -> int:
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


class Search:
    """A search; what it has found so far can be read when it is broken off.

    Args:
        rate: measures the program where it is now; a `TimeUpError` of it ends the search.
        move_to: moves its pages to a data-to-worker proximity.
        step: from one proximity to the next.
    """

    def __init__(
        self, rate: Callable[[], Rate], move_to: Callable[[float], None], step: float = STEP
    ) -> None:
        self.rate, self.move_to, self.step = rate, move_to, step
        self.now = 0.0
        self.best: Step | None = None
        self.measured: list[tuple[float, Rate]] = []
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
        self.best = self._measure(Step(0.0))
        stale = 0
        for number in range(1, round(1.0 / self.step) + 1):
            tried = self._measure(Step(min(1.0, round(number * self.step, 9))))
            found = self._compare(tried)
            if found > 0:
                self.best, stale = tried, 0
            else:
                stale += 1
            if found < 0 or stale == PATIENCE:
                break

    def _compare(self, tried: Step) -> int:
        """Whether a step is clearly better or worse than the best, measured again in doubt.

        What looks worse is looked at once more too: to stop for a passing disturbance would keep
        the program slow for the rest of its run.
        """
        assert self.best is not None
        if clearly(tried, self.best, SURELY) > 0:
            return 1
        for _ in range(ROUNDS):
            self._measure(self.best)
            self._measure(tried)
            again = clearly(tried.last, self.best.last)
            if again and again == clearly(tried, self.best):
                return again
        return clearly(tried, self.best)

    def _measure(self, step: Step) -> Step:
        self._go(step.dwp)
        rate = self.rate()
        step.rates.append(rate)
        self.measured.append((step.dwp, rate))
        return step

    def _go(self, dwp: float) -> None:
        if dwp != self.now:
            self.move_to(dwp)
            self.now = dwp
