"""How fast a program goes, while it runs, by what it prints or by what its processor counts."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from chaosity.errors import UserError
from chaosity.place.settling import MeasuredRate, TimeUpError
from chaosity.runner import event_counters, progress
from chaosity.runner.tool_output import sample_event

SAMPLES, LINES, INSTRUCTIONS = "samples", "lines", "instructions"
# What a sample says beside the amount.
_TIMES = ("begin_ns", "end_ns")
# A rate is known when half its 95 % interval is below 1 %, but not before half a second, since
# what a move of pages leaves in caches and TLBs has to pass; after 5 s the interval is taken as it
# is, for in doubt the search measures again.
PRECISION, SHORTEST, LONGEST = 0.01, 0.5, 5.0
# Without an interval by then the program reports too seldom: batch means take 20 samples.
HOPELESS_SECONDS = 60.0
# The counter is read so often; 20 readings make an interval.
READ_SECONDS = 0.02


class NoRateError(Exception):
    """The program has no rate that can be read; the text says why and what to do."""


class ProgramEndedError(Exception):
    """The program ended."""


class RateSource(Protocol):
    """Something that tells how far the program is."""

    series: progress.Series

    def line(self, text: str, now: float) -> None:
        """Take a line of the program's output."""

    def poll(self) -> None:
        """Look now, where looking is what tells."""


class SampleSource:
    """JSON lines such as ``{"event":"sample","begin_ns":1,"end_ns":2,"bytes":3}``.

    Args:
        key: of the amount; None: the first number beside the times.
    """

    def __init__(self, key: str | None = None) -> None:
        self.key, self.series = key, []

    def line(self, text: str, now: float) -> None:
        """Take a line; `now` does not matter, since samples carry their times."""
        found = sample_event(text)
        if found is None:
            return
        try:
            begin, end = (found[name] * 1e-9 for name in _TIMES)
            key = self.key or next(name for name, value in found.items() if _amount(name, value))
            self.series.append((begin, end, float(found[key])))
        except (ValueError, KeyError, TypeError, StopIteration):
            return  # not of this form, so no sample

    def poll(self) -> None:
        """Nothing: lines come by themselves."""


def _amount(name: str, value: Any) -> bool:
    return name not in _TIMES and isinstance(value, int | float) and not isinstance(value, bool)


class LineSource:
    """Lines that match a pattern, such as a program's iterations; each counts as one."""

    def __init__(self, pattern: str) -> None:
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise UserError(f"{pattern!r} is no regular expression: {error}", "--rate") from None
        self.series: progress.Series = []
        self.last: float | None = None

    def line(self, text: str, now: float) -> None:
        """Count a line that matches, from the one before it on."""
        if self.pattern.search(text):
            if self.last is not None:
                self.series.append((self.last, now, 1.0))
            self.last = now

    def poll(self) -> None:
        """Nothing: lines come by themselves."""


class InstructionSource:
    """The processor's count of the program's instructions; spinning threads count too.

    Args:
        pid: of the program, before it has started anything.
    """

    def __init__(self, pid: int) -> None:
        self.series: progress.Series = []
        self.handle = event_counters.open_event_for_process(event_counters.INSTRUCTIONS, pid)
        self.last, self.count = time.monotonic(), 0

    def line(self, text: str, now: float) -> None:
        """Nothing: output does not matter."""

    def poll(self) -> None:
        """Read the counter."""
        now = time.monotonic()
        count, _, _ = event_counters.read_event_count(self.handle)
        self.series.append((self.last, now, float(count - self.count)))
        self.last, self.count = now, count


def check_rate_source(text: str) -> None:
    """Refuse what is no source of a rate, before anything runs.

    Raises:
        UserError: it is none, or this machine cannot count instructions.
    """
    kind, _, rest = text.partition("=")
    if kind == LINES and rest:
        LineSource(rest)
    elif kind == INSTRUCTIONS and not rest:
        try:
            os.close(
                event_counters.open_event_for_process(event_counters.INSTRUCTIONS, os.getpid())
            )
        except event_counters.CounterError as error:
            raise UserError(
                f"instructions cannot be counted, since {error}", "--rate instructions",
                "take samples or lines=REGEX",
            ) from None  # fmt: skip
    elif kind != SAMPLES:
        raise UserError(
            f"{text!r} tells no rate", "--rate",
            "it is samples, samples=KEY, lines=REGEX or instructions",
        )  # fmt: skip


def open_rate_source(text: str, pid: int) -> RateSource:
    """Where the rate of a running program is read: samples[=KEY], lines=REGEX or instructions.

    Raises:
        UserError: see `check`.
    """
    kind, _, rest = text.partition("=")
    if kind == LINES:
        return LineSource(rest)
    if kind == INSTRUCTIONS:
        return InstructionSource(pid)
    return SampleSource(rest or None)


@dataclass
class RateMeter:
    """Measures a rate from now on.

    Attributes:
        source: what is read.
        pump: lets the program go on for some seconds; False when it has ended.
        until: when there is no more time, by CLOCK_MONOTONIC in seconds.
        gave: whether it has given a rate before.
    """

    source: RateSource
    pump: Callable[[float], bool]
    until: float = math.inf
    gave: bool = False

    def __call__(self) -> MeasuredRate:
        """The rate over a stretch from now that is long enough for its noise.

        Raises:
            EndedError: the program ended before.
            TimeUpError: there is no more time.
            NoRateError: it reports nothing, or too seldom.
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
            inside = [one for one in self.source.series if one[0] >= began]
            if passed >= SHORTEST and inside:
                begin, end = progress.common_span([inside])
                width = progress.relative_half_width([inside], begin, end)
                if width is not None and (width <= PRECISION or passed >= LONGEST):
                    self.gave = True
                    return MeasuredRate(
                        progress.rate_in_window([inside], begin, end), width, passed
                    )
            if now >= self.until and self.gave:
                raise TimeUpError
            if passed >= HOPELESS_SECONDS or now >= self.until:
                raise NoRateError(
                    f"the program reported {len(inside)} times in {passed:.0f} s, and a rate with "
                    "an interval takes 20: let it report more often, or take --rate lines=REGEX or "
                    "--rate instructions"
                )
