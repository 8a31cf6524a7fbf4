"""Measures a program's rate while it runs: from its output, or from the processor's counter."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from chaosity.errors import UserError
from chaosity.place.dwp_search_and_autonuma import MeasuredRate, TimeUpError
from chaosity.runner import event_counters, progress_samples_and_rates
from chaosity.runner.parse_tool_output import parse_event_line

SAMPLES, LINES, INSTRUCTIONS = "samples", "lines", "instructions"
# Keys of a sample that are not the amount.
_TIMES = ("begin_ns", "end_ns")
# A measurement ends when half its 95 % interval is below 1 %, but not before half a second: after a
# move of pages, caches and TLBs must recover. After 5 s it ends with the interval as it is; in
# doubt the search measures again.
PRECISION, SHORTEST, LONGEST = 0.01, 0.5, 5.0
# A program without an interval by then reports too seldom: batch means need 20 samples.
HOPELESS_SECONDS = 60.0
# Interval between two readings of the counter; 20 readings give an interval.
READ_SECONDS = 0.02


class NoRateError(Exception):
    """The program's rate cannot be measured; the text gives the reason and a remedy."""


class ProgramEndedError(Exception):
    """The program ended."""


class RateSource(Protocol):
    """A source of the program's progress.

    Attributes:
        series: the samples so far, see `runner.progress_samples_and_rates`.
    """

    series: progress_samples_and_rates.Series

    def read_line(self, text: str, now: float) -> None:
        """Handle a line of the program's output, received at `now` on the monotonic clock."""

    def poll(self) -> None:
        """Read the source, if it does not depend on output."""


class SampleSource:
    """JSON lines such as ``{"event":"sample","begin_ns":1,"end_ns":2,"bytes":3}``.

    Args:
        key: key of the amount; None: the first number that is not a time.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key = key
        self.series: progress_samples_and_rates.Series = []

    def read_line(self, text: str, now: float) -> None:
        """Handle a line; samples have their own times."""
        sample = parse_event_line(text, "sample")
        if sample is None:
            return
        try:
            begin, end = (sample[name] * 1e-9 for name in _TIMES)
            key = self.key or next(
                name for name, value in sample.items() if _is_amount(name, value)
            )
            self.series.append((begin, end, float(sample[key])))
        except (ValueError, KeyError, TypeError, StopIteration):
            return  # not a sample of this form

    def poll(self) -> None:
        """Do nothing: lines arrive by themselves."""


def _is_amount(name: str, value: Any) -> bool:
    return name not in _TIMES and isinstance(value, int | float) and not isinstance(value, bool)


class LineSource:
    """Lines that match a pattern, such as a program's iterations; each counts as 1.

    Args:
        pattern: regular expression.

    Raises:
        UserError: it is not a regular expression.
    """

    def __init__(self, pattern: str) -> None:
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise UserError(f"{pattern!r} is not a regular expression: {error}", "--rate") from None
        self.series: progress_samples_and_rates.Series = []
        self.last: float | None = None

    def read_line(self, text: str, now: float) -> None:
        """Count a matching line, from the matching line before it."""
        if self.pattern.search(text):
            if self.last is not None:
                self.series.append((self.last, now, 1.0))
            self.last = now

    def poll(self) -> None:
        """Do nothing: lines arrive by themselves."""


class InstructionSource:
    """The processor's count of the program's instructions; spinning threads count too.

    Args:
        pid: the program, before it has started other processes.
    """

    def __init__(self, pid: int) -> None:
        self.series: progress_samples_and_rates.Series = []
        self.handle = event_counters.open_event_for_process(event_counters.INSTRUCTIONS, pid)
        self.last, self.count = time.monotonic(), 0

    def read_line(self, text: str, now: float) -> None:
        """Do nothing: the counter does not depend on output."""

    def poll(self) -> None:
        """Read the counter."""
        now = time.monotonic()
        count, _, _ = event_counters.read_event_count(self.handle)
        self.series.append((self.last, now, float(count - self.count)))
        self.last, self.count = now, count


def check_rate_source(text: str) -> None:
    """Check the source of a rate before anything runs.

    Raises:
        UserError: the source is unknown, or this machine cannot count instructions.
    """
    kind, _, rest = text.partition("=")
    if kind == LINES and rest:
        LineSource(rest)
    elif kind == INSTRUCTIONS and not rest:
        try:
            own = os.getpid()
            os.close(event_counters.open_event_for_process(event_counters.INSTRUCTIONS, own))
        except event_counters.CounterError as error:
            raise UserError(
                f"instructions cannot be counted: {error}",
                "--rate instructions",
                "use samples or lines=REGEX",
            ) from None
    elif kind != SAMPLES:
        remedy = "use samples, samples=KEY, lines=REGEX or instructions"
        raise UserError(f"{text!r} is not a source of a rate", "--rate", remedy)


def open_rate_source(text: str, pid: int) -> RateSource:
    """Return the source of a running program's rate.

    Args:
        text: samples[=KEY], lines=REGEX or instructions.
        pid: the program.

    Raises:
        UserError: see `check_rate_source`.
    """
    kind, _, rest = text.partition("=")
    if kind == LINES:
        return LineSource(rest)
    if kind == INSTRUCTIONS:
        return InstructionSource(pid)
    return SampleSource(rest or None)


@dataclass
class RateMeter:
    """Measures a program's rate from the present time on.

    Attributes:
        source: source of the program's progress.
        pump: lets the program run for some seconds; False when it has ended.
        until: end of the available time, by CLOCK_MONOTONIC in seconds.
        has_measured: whether it has measured a rate before.
    """

    source: RateSource
    pump: Callable[[float], bool]
    until: float = math.inf
    has_measured: bool = False

    def __call__(self) -> MeasuredRate:
        """Return the rate from now on, measured until it is precise enough.

        Raises:
            ProgramEndedError: the program ended first.
            TimeUpError: there is no more time.
            NoRateError: the program reports nothing, or too seldom.
        """
        began = time.monotonic()
        self.source.series.clear()
        self.source.poll()
        while True:
            if not self.pump(READ_SECONDS):
                raise ProgramEndedError
            self.source.poll()
            now = time.monotonic()
            passed = now - began
            inside = [sample for sample in self.source.series if sample[0] >= began]
            if passed >= SHORTEST and inside:
                begin, end = progress_samples_and_rates.common_time_span([inside])
                width = progress_samples_and_rates.relative_half_width([inside], begin, end)
                if width is not None and (width <= PRECISION or passed >= LONGEST):
                    self.has_measured = True
                    value = progress_samples_and_rates.rate_in_window([inside], begin, end)
                    return MeasuredRate(value, width, passed)
            if now >= self.until and self.has_measured:
                raise TimeUpError
            if passed >= HOPELESS_SECONDS or now >= self.until:
                raise NoRateError(
                    f"the program reported {len(inside)} times in {passed:.0f} s, but a rate needs "
                    "20 reports: let it report more often, or use --rate lines=REGEX or "
                    "--rate instructions"
                )
