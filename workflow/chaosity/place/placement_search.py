"""Improve a placement while the program runs: search, or wait until AutoNUMA moves no more pages.

The search follows BWAP's tuner (Gureya et al., IPDPS 2020). The search begins with the given
shares. Step by step, the search moves pages towards the workers as long as the program gets faster.
Rates scatter, so a step counts as better or worse only if the 95 % intervals of the rates show it.
A doubtful step and the best step are measured again in turns, so that a drift of the machine
affects both steps. The program's rate comes from its output or from a processor counter.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chaosity.errors import UserError
from chaosity.place.page_placement import largest_share_deviation
from chaosity.runner import event_counters
from chaosity.runner.metric_values import Samples, common_time_span, rate_in_window, rate_precision
from chaosity.runner.tool_output import parse_event_line

# The data-to-worker proximity (0 to 1) grows by this number in each step, as in BWAP.
DWP_STEP = 0.1
# Largest number of times that a doubtful step and the best step are measured again.
REPEATED_COMPARISONS = 2
# A step that is better by this number of half widths of the interval is not measured again. The
# number is above 1, because machines drift between two measurements by more than the scatter within
# one measurement.
INTERVALS_OF_CLEAR_GAIN = 2.0
# Number of consecutive steps, not clearly better than the best step, that end the search.
MOST_STEPS_WITHOUT_GAIN = 2
# Time between two observations of the nodes of the pages. The kernel scans a program's memory at
# most once per second, and first after one second (numa_balancing_scan_delay_ms,
# scan_period_min_ms).
OBSERVATION_INTERVAL_SECONDS = 1.0
# Pages are at rest if, in the last OBSERVATIONS_AT_REST observations, the share of each node
# changed by at most LARGEST_CHANGE_AT_REST.
OBSERVATIONS_AT_REST, LARGEST_CHANGE_AT_REST = 4, 0.01
# A scan covers 256 MiB, so AutoNUMA may move pages of a large program for minutes. While pages
# move, the other loads of the point wait, so the program is measured after this time even if pages
# still move.
MOST_SETTLING_SECONDS = 20.0


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
        """Return the median of the rates, which a single disturbed measurement hardly changes."""
        return statistics.median(rate.value for rate in self.rates)

    @property
    def rate_half_width(self) -> float:
        """Return half the width of the 95 % interval of the mean of the measured rates."""
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

    `rate` measures the program's rate with the present placement, or raises a `TimeUpError`, which
    ends the search. `move_to` moves the program's pages to a DWP. `best` is the best step so far,
    and stays valid if the search is interrupted. `settled` says whether the search was completed,
    and `present_dwp` is the DWP according to which the pages now lie.
    """

    def __init__(self, rate: Callable[[], MeasuredRate], move_to: Callable[[float], None]) -> None:
        self.rate, self.move_to = rate, move_to
        self.present_dwp = 0.0
        self.best: _DwpStep | None = None
        self.measured: list[tuple[float, MeasuredRate]] = []
        self.settled = False

    def find_best_dwp_and_move_pages(self) -> float:
        """Search, move the program to the best DWP found, and return that DWP."""
        with contextlib.suppress(TimeUpError):  # the time is over, so the best step so far is used
            self._climb()
            self.settled = True
        self._go_to(self.best.dwp if self.best else 0.0)
        return self.present_dwp

    def _climb(self) -> None:
        best = self.best = self._measure_step(_DwpStep(0.0))
        stale = 0
        for number in range(1, round(1.0 / DWP_STEP) + 1):
            tried = self._measure_step(_DwpStep(min(1.0, round(number * DWP_STEP, 9))))
            order = self._compare_with_best_step(tried, best)
            if order > 0:
                best = self.best = tried
            stale = 0 if order > 0 else stale + 1
            if order < 0 or stale == MOST_STEPS_WITHOUT_GAIN:
                break

    def _compare_with_best_step(self, tried: _DwpStep, best: _DwpStep) -> int:
        """Compare a step with the best step; measure both again if the difference is not clear."""
        # Also a step of the search that looks worse is measured again. If a short disturbance ended
        # the search, the program would stay slow for the rest of its run.
        if _compare_steps(tried, best, INTERVALS_OF_CLEAR_GAIN) > 0:
            return 1
        for _ in range(REPEATED_COMPARISONS):
            self._measure_step(best)
            self._measure_step(tried)
            again = _compare_steps(tried.with_latest_rate_only, best.with_latest_rate_only)
            if again and again == _compare_steps(tried, best):
                return again
        return _compare_steps(tried, best)

    def _measure_step(self, step: _DwpStep) -> _DwpStep:
        self._go_to(step.dwp)
        rate = self.rate()
        step.rates.append(rate)
        self.measured.append((step.dwp, rate))
        return step

    def _go_to(self, dwp: float) -> None:
        if dwp != self.present_dwp:
            self.move_to(dwp)
            self.present_dwp = dwp


@dataclass
class AutonumaSettling:
    """Wait until the kernel (AutoNUMA) moves no more pages of the program."""

    seconds: float = 0.0  # time in seconds that was waited
    settled: bool = False  # says whether the kernel moved no more pages after `seconds`

    def wait_until_pages_rest(
        self, let_program_run: Callable[[float], bool], observe: Callable[[], Mapping[int, float]]
    ) -> None:
        """Observe a program's pages until they no longer move, at most for `MOST_SETTLING_SECONDS`.

        `let_program_run` lets the program run for some seconds, and returns False when it has
        ended. `observe` returns node -> present share of the pages.
        """
        began = time.monotonic()
        seen = [observe()]
        while (
            not self.settled
            and self.seconds < MOST_SETTLING_SECONDS
            and let_program_run(OBSERVATION_INTERVAL_SECONDS)
        ):
            seen = [*seen, observe()][-OBSERVATIONS_AT_REST:]
            rest = all(
                largest_share_deviation(shares, seen[-1]) <= LARGEST_CHANGE_AT_REST
                for shares in seen
            )
            self.settled = len(seen) == OBSERVATIONS_AT_REST and rest
            self.seconds = time.monotonic() - began


SAMPLES, LINES, INSTRUCTIONS = "samples", "lines", "instructions"
# Keys of the two times in a sample; another key has the amount.
_TIME_KEYS_OF_SAMPLE = ("begin_ns", "end_ns")
# A measurement of the rate ends when the half width of its 95 % interval is below 1 %. A
# measurement takes at least half a second, because caches and TLBs must recover after a move of
# pages. A measurement ends after 5 s with any interval; if a comparison of steps is not clear, the
# search measures again.
PRECISION, SHORTEST, LONGEST = 0.01, 0.5, 5.0
# Time in seconds after which a program whose rate has no interval yet reports too seldom. An
# interval needs 20 samples.
HOPELESS_SECONDS = 60.0
# Time between two readings of the instruction counter; the 95 % interval of a rate needs 20
# readings.
COUNTER_READING_INTERVAL_SECONDS = 0.02


class ProgramEndedError(Exception):
    """The program ended."""


class RateSource:
    """A source from which the program's progress is read.

    `series` are the samples of progress so far, see `runner.metric_values`.
    """

    def __init__(self) -> None:
        self.series: Samples = []

    def read_line(self, text: str, now: float) -> None:
        """Handle a line of the program's output, received at `now` on the monotonic clock."""

    def add_progress_until_now(self) -> None:
        """Add the progress since the last call; a source that reads lines has nothing to add."""

    def close_source(self) -> None:
        """Close the source."""


class SampleSource(RateSource):
    """Progress from JSON lines such as ``{"event":"sample","begin_ns":1,"end_ns":2,"bytes":3}``.

    `key` is the key of the amount; None selects the first number that is not a time.
    """

    def __init__(self, key: str | None = None) -> None:
        super().__init__()
        self.key = key

    def read_line(self, text: str, now: float) -> None:
        """Add the sample in a line, if the line contains a sample with a begin and an end."""
        sample = parse_event_line(text, "sample") or {}
        amounts = (
            name
            for name, value in sample.items()
            if type(value) in (int, float) and name not in _TIME_KEYS_OF_SAMPLE
        )
        try:
            begin, end = (sample[name] * 1e-9 for name in _TIME_KEYS_OF_SAMPLE)
            self.series.append((begin, end, float(sample[self.key or next(amounts)])))
        except (ValueError, KeyError, TypeError, StopIteration):
            return  # the line contains no sample in the form above


class LineSource(RateSource):
    """Progress from lines that match a regular expression; each line counts as one iteration."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise UserError(f"{pattern!r} is not a regular expression: {error}", "--rate") from None
        self.last: float | None = None

    def read_line(self, text: str, now: float) -> None:
        """Count a matching line as progress since the previous matching line."""
        if self.pattern.search(text):
            if self.last is not None:
                self.series.append((self.last, now, 1.0))
            self.last = now


class InstructionSource(RateSource):
    """Progress from the processor's count of instructions, including instructions of waiting loops.

    Processes that the program started before this source was opened do not count.
    """

    def __init__(self, pid: int) -> None:
        super().__init__()
        try:
            self.handle = event_counters.open_event_for_process(event_counters.INSTRUCTIONS, pid)
        except event_counters.CounterError as error:
            what = f"instructions cannot be counted: {error}"
            remedy = "use --rate samples or --rate lines=REGEX"
            raise UserError(what, "--rate instructions", remedy) from None
        self.last, self.count = time.monotonic(), 0

    def add_progress_until_now(self) -> None:
        """Read the counter."""
        now = time.monotonic()
        count, _, _ = event_counters.read_event_count(self.handle)
        self.series.append((self.last, now, float(count - self.count)))
        self.last, self.count = now, count

    def close_source(self) -> None:
        """Close the counter."""
        os.close(self.handle)


def check_rate_is_readable(text: str) -> None:
    """Check a source of rates before a program runs: whether this machine can read the source.

    Raises:
        UserError: see `rate_source_from_option`.
    """
    rate_source_from_option(text, os.getpid()).close_source()


def rate_source_from_option(text: str, pid: int) -> RateSource:
    """Return the source of progress that a text names: samples[=KEY], lines=REGEX or instructions.

    Raises:
        UserError: the source is unknown, or this machine cannot count instructions.
    """
    kind, _, rest = text.partition("=")
    if kind == LINES and rest:
        return LineSource(rest)
    if kind == INSTRUCTIONS and not rest:
        return InstructionSource(pid)
    if kind == SAMPLES:
        return SampleSource(rest or None)
    remedy = "use samples, samples=KEY, lines=REGEX or instructions"
    raise UserError(f"{text!r} does not say where the rate comes from", "--rate", remedy)


@dataclass
class RateMeter:
    """A callable that measures a program's rate, beginning at the time of each call."""

    source: RateSource  # source of the program's progress
    # Lets the program run for a number of seconds; returns False if the program has ended.
    let_program_run: Callable[[float], bool]
    until: float = math.inf  # end of the available time, by CLOCK_MONOTONIC in seconds
    has_measured: bool = False

    def __call__(self) -> MeasuredRate:
        """Measure the rate from now on until it is precise enough, and return the rate.

        Raises:
            ProgramEndedError: the program ended before the rate was precise enough.
            TimeUpError: the time is over, and an earlier call measured a rate.
            UserError: the program reports no progress, or too rarely for a rate.
        """
        began = time.monotonic()
        self.source.series.clear()
        self.source.add_progress_until_now()
        while True:
            if not self.let_program_run(COUNTER_READING_INTERVAL_SECONDS):
                raise ProgramEndedError
            self.source.add_progress_until_now()
            now = time.monotonic()
            passed = now - began
            inside = [sample for sample in self.source.series if sample[0] >= began]
            if passed >= SHORTEST and inside:
                begin, end = common_time_span([inside])
                reached = rate_precision([inside], begin, end)
                width = reached and reached.relative_half_width
                if width is not None and (width <= PRECISION or passed >= LONGEST):
                    self.has_measured = True
                    value = rate_in_window([inside], begin, end)
                    return MeasuredRate(value, width, passed)
            if now >= self.until and self.has_measured:
                raise TimeUpError
            if passed >= HOPELESS_SECONDS or now >= self.until:
                raise UserError(
                    f"the program reported {len(inside)} times in {passed:.0f} s, but a rate needs "
                    "20 reports",
                    remedy="let the program report more often, or use --rate lines=REGEX or "
                    "--rate instructions",
                )
