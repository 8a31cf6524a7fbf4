"""Settle a placement while the program runs: by a search, or by waiting until AutoNUMA is done.

The search follows BWAP's tuner (Gureya et al., IPDPS 2020). The search begins with the given shares
and moves pages towards the workers step by step, as long as the program gets faster. Rates scatter,
so a step counts only if 95 % intervals show that the step is better or worse. A doubtful step and
the best step are measured again in turns, so that a drift of the machine affects both steps.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chaosity.place.page_share_arithmetic import largest_share_deviation

# The step of the data-to-worker proximity (0 to 1) is that of BWAP.
STEP = 0.1
# How often a doubtful step and the best step are measured again.
ROUNDS = 2
# A step that is better by this many intervals is not measured again. Machines drift between two
# measurements by more than the scatter within one measurement.
CLEAR = 2.0
# The search ends after this many consecutive steps that are not clearly better than the best step.
PATIENCE = 2
# Interval between two looks at the pages. The kernel scans a program's memory at most once per
# second, the first time after one second (numa_balancing_scan_delay_ms, scan_period_min_ms).
LOOK_SECONDS = 1.0
# Pages are at rest when, over this many looks, no node's share changed by more than this part of
# all pages.
LOOKS, CHANGE = 4, 0.01
# A scan covers 256 MiB, so AutoNUMA may move pages of a large program for minutes. Other loads wait
# meanwhile, so the program is measured after this time in any case.
LONGEST_SECONDS = 20.0


class TimeUpError(Exception):
    """No time is left to measure the program's rate."""


@dataclass(frozen=True)
class MeasuredRate:
    """The program's rate over a period of `seconds`."""

    value: float  # amount per second
    relative_half_width: float  # half the width of the 95 % interval, as a share of `value`
    seconds: float = 0.0


@dataclass
class _DwpStep:
    """A data-to-worker proximity that the search has tried, and the rates measured with it."""

    dwp: float
    rates: list[MeasuredRate] = field(default_factory=list)

    @property
    def median_rate(self) -> float:
        """Return the median of the rates; a single disturbed measurement hardly changes it."""
        return statistics.median(rate.value for rate in self.rates)

    @property
    def rate_half_width(self) -> float:
        """Return half the width of the 95 % interval of the mean, from independent measurements."""
        squares = sum((rate.value * rate.relative_half_width) ** 2 for rate in self.rates)
        return math.sqrt(squares) / len(self.rates)

    @property
    def with_latest_rate_only(self) -> _DwpStep:
        """Return the same step with only its latest measurement."""
        return _DwpStep(self.dwp, self.rates[-1:])


def _compare_steps(step: _DwpStep, other: _DwpStep, intervals: float = 1.0) -> int:
    """Return 1 if `step` is faster than `other` by `intervals` half widths, -1 if slower, or 0."""
    difference = step.median_rate - other.median_rate
    clear = intervals * math.hypot(step.rate_half_width, other.rate_half_width)
    return (difference > clear) - (difference < -clear)


class DwpSearch:
    """Search for the data-to-worker proximity (DWP) with the highest rate.

    Args:
        rate: function that measures the rate with this placement; `TimeUpError` ends the search.
        move_to: function that moves the program's pages to a DWP.

    Attributes:
        now: the present DWP.
        best: the best step so far; also valid after the search was interrupted.
        measured: the DWP and the rate of each measurement.
        settled: whether the search was completed.
    """

    def __init__(self, rate: Callable[[], MeasuredRate], move_to: Callable[[float], None]) -> None:
        self.rate, self.move_to = rate, move_to
        self.now = 0.0
        self.best: _DwpStep | None = None
        self.measured: list[tuple[float, MeasuredRate]] = []
        self.settled = False

    def find_best_dwp_and_move_pages(self) -> float:
        """Search, move the program to the best DWP found, and return that DWP."""
        with contextlib.suppress(TimeUpError):  # the best step so far stays
            self._climb()
            self.settled = True
        self._go_to(self.best.dwp if self.best else 0.0)
        return self.now

    def _climb(self) -> None:
        best = self.best = self._measure(_DwpStep(0.0))
        stale = 0
        for number in range(1, round(1.0 / STEP) + 1):
            tried = self._measure(_DwpStep(min(1.0, round(number * STEP, 9))))
            order = self._compare(tried, best)
            if order > 0:
                best = self.best = tried
            stale = 0 if order > 0 else stale + 1
            if order < 0 or stale == PATIENCE:
                break

    def _compare(self, tried: _DwpStep, best: _DwpStep) -> int:
        """Compare a step with the best step; measure both again if the difference is not clear.

        A step that looks worse is measured again too: if the search stopped because of a short
        disturbance, the program would stay slow for the rest of its run.
        """
        if _compare_steps(tried, best, CLEAR) > 0:
            return 1
        for _ in range(ROUNDS):
            self._measure(best)
            self._measure(tried)
            again = _compare_steps(tried.with_latest_rate_only, best.with_latest_rate_only)
            if again and again == _compare_steps(tried, best):
                return again
        return _compare_steps(tried, best)

    def _measure(self, step: _DwpStep) -> _DwpStep:
        self._go_to(step.dwp)
        rate = self.rate()
        step.rates.append(rate)
        self.measured.append((step.dwp, rate))
        return step

    def _go_to(self, dwp: float) -> None:
        if dwp != self.now:
            self.move_to(dwp)
            self.now = dwp


@dataclass
class AutonumaSettling:
    """Wait until the kernel (AutoNUMA) moves no more pages of the program."""

    seconds: float = 0.0  # time waited in seconds
    settled: bool = False  # whether the kernel stopped moving pages within `seconds`

    def wait_until_pages_rest(
        self, let_program_run: Callable[[float], bool], look: Callable[[], Mapping[int, float]]
    ) -> None:
        """Look at the pages of a running program until they no longer move.

        `let_program_run` lets the program run for some seconds, and returns False when it has
        ended. `look` returns the present share of the pages on each node.
        """
        began = time.monotonic()
        seen = [look()]
        while not self.settled and self.seconds < LONGEST_SECONDS and let_program_run(LOOK_SECONDS):
            seen = [*seen, look()][-LOOKS:]
            rest = all(largest_share_deviation(shares, seen[-1]) <= CHANGE for shares in seen)
            self.settled = len(seen) == LOOKS and rest
            self.seconds = time.monotonic() - began
