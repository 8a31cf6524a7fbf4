"""Measure a program's rate while it runs, from its output or from a processor counter."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.place.settle_placement import MeasuredRate, TimeUpError
from chaosity.runner import event_counters
from chaosity.runner.parse_tool_output import parse_event_line
from chaosity.runner.progress_samples_and_rates import (
    Series,
    common_time_span,
    rate_in_window,
    rate_precision,
)

SAMPLES, LINES, INSTRUCTIONS = "samples", "lines", "instructions"
# Keys of a sample that are not the amount.
_TIMES = ("begin_ns", "end_ns")
# A measurement ends when half its 95 % interval is below 1 %, but not before half a second, because
# caches and TLBs must recover after a move of pages. After 5 s the measurement ends with any
# interval; if a comparison of steps is not clear, the search measures again.
PRECISION, SHORTEST, LONGEST = 0.01, 0.5, 5.0
# A program without an interval after this time reports too seldom: batch means need 20 samples.
HOPELESS_SECONDS = 60.0
# Interval between two readings of the counter; 20 readings give an interval.
READ_SECONDS = 0.02


class ProgramEndedError(Exception):
    """The program ended."""


class RateSource:
    """A source of the program's progress.

    Attributes:
        series: the samples so far, see `runner.progress_samples_and_rates`.
    """

    def __init__(self) -> None:
        self.series: Series = []

    def read_line(self, text: str, now: float) -> None:
        """Handle a line of the program's output, received at `now` on the monotonic clock."""

    def add_progress_until_now(self) -> None:
        """Add the progress since the last call; sources that read output lines do nothing here."""

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
        """Add the sample in a line, if the line has a sample with its begin and end."""
        sample = parse_event_line(text, "sample") or {}
        amounts = (
            name
            for name, value in sample.items()
            if type(value) in (int, float) and name not in _TIMES
        )
        try:
            begin, end = (sample[name] * 1e-9 for name in _TIMES)
            self.series.append((begin, end, float(sample[self.key or next(amounts)])))
        except (ValueError, KeyError, TypeError, StopIteration):
            return  # not a sample of this form


class LineSource(RateSource):
    """Progress from lines that match a regular expression; each line counts as 1 (iteration)."""

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


def check_rate_source(text: str) -> None:
    """Check, before the program runs, that `open_rate_source` will be able to open a source."""
    open_rate_source(text, os.getpid()).close_source()


def open_rate_source(text: str, pid: int) -> RateSource:
    """Return the source that a text names: samples[=KEY], lines=REGEX or instructions.

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
    raise UserError(f"{text!r} is not a source of a rate", "--rate", remedy)


@dataclass
class RateMeter:
    """Measure a program's rate, beginning at the time of the call."""

    source: RateSource  # source of the program's progress
    # Lets the program run for a number of seconds; returns False if the program has ended.
    let_program_run: Callable[[float], bool]
    until: float = math.inf  # end of the available time, by CLOCK_MONOTONIC in seconds
    has_measured: bool = False

    def __call__(self) -> MeasuredRate:
        """Measure the rate from now on until it is precise enough, and return the rate.

        Raises:
            ProgramEndedError: the program ended before the rate was precise enough.
            TimeUpError: there is no more time.
            UserError: the program reports no progress, or too rarely.
        """
        began = time.monotonic()
        self.source.series.clear()
        self.source.add_progress_until_now()
        while True:
            if not self.let_program_run(READ_SECONDS):
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
