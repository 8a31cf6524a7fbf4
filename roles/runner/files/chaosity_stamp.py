#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeat a tool until it is stopped, and stamp with the time when it measured.

Most tools do not report when they measured, so two of them cannot be measured together. This
program runs such a tool again and again and passes its output on. After each run it prints a JSON
line for each measurement of the run, with begin and end on the clocks that all programs of the host
share, and the amount that was moved:

    {"event": "sample", "run": 1, "begin_ns": 1, "end_ns": 2, "end_realtime_ns": 3, "amount": 4.0}

The tool writes to a pseudo-terminal, because to a pipe it would write its lines only when it ends.

It is a single file that needs only Python 3.9, so it runs on macOS as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

# Begin and end in seconds, and the amount.
Sample = tuple[float, float, float]

EXIT_INVALID, EXIT_REFUSED = 1, 2


class StopRequest:
    """SIGTERM or SIGINT, which also end the tool that runs at this time."""

    def __init__(self) -> None:
        self.arrived = False
        self.tool: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Note the signal and pass it on; no exception, which could interrupt the tool's start."""
        self.arrived = True
        if self.tool is not None:
            self.tool.terminate()

    def start_tool(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start the tool; end it at once if a signal arrived meanwhile."""
        self.tool = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
        if self.arrived:
            self.tool.terminate()
        return self.tool


class FailedRunError(Exception):
    """A run of the tool has no result; the text says why."""


class RunStamps:
    """The stamps of the lines of one run.

    Args:
        begin: a measurement begins at the last line that matches this pattern before its end; None:
            when the tool starts.
        end: a measurement ends at each line that matches this pattern; None: when the tool ends.
    """

    def __init__(self, begin: str | None, end: str | None) -> None:
        self.begin, self.end = begin, end
        self.began: int | None = time.monotonic_ns() if begin is None else None
        self.spans: list[tuple[int, int, int]] = []

    def add_line(self, line: str) -> None:
        """Stamp a line that the tool has just written."""
        if self.end is not None and re.search(self.end, line):
            self._close()
        if self.begin is not None and re.search(self.begin, line):
            self.began = time.monotonic_ns()

    def add_end_of_tool(self) -> None:
        """Stamp the end of the tool."""
        if self.end is None:
            self._close()

    def _close(self) -> None:
        """End a measurement, if it has begun."""
        if self.began is not None:
            self.spans.append((self.began, time.monotonic_ns(), time.time_ns()))
            self.began = None


def lines_of_terminal(terminal: int) -> Iterator[str]:
    """Yield the lines that a tool writes to a pseudo-terminal, until it ends."""
    rest = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when the tool has closed its side
            part = b""
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace") + "\n"
        if not part:
            break
    if rest:
        yield rest.decode(errors="replace") + "\n"


def run_tool_once(command: Sequence[str], stamps: RunStamps, stop: StopRequest) -> str | None:
    """Run the tool, pass its output on, and return the output; None if a signal ended the run.

    Raises:
        FailedRunError: the tool cannot be started, or ended with another status than 0.
    """
    terminal, tools_side = os.openpty()
    tty.setraw(tools_side)  # otherwise each line would end with a carriage return
    output = []
    try:
        process = stop.start_tool(command, tools_side)
    except OSError as error:
        raise FailedRunError(f"{command[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(tools_side)
    for line in lines_of_terminal(terminal):
        stamps.add_line(line)
        output.append(line)
        sys.stdout.write(line)
    status = process.wait()
    stamps.add_end_of_tool()
    os.close(terminal)
    # A signal to the whole process group reaches the tool too, and perhaps before this process.
    if stop.arrived or status in (-signal.SIGTERM, -signal.SIGINT):
        return None
    if status != 0:
        raise FailedRunError(f"{command[0]} ended with status {status}")
    return "".join(output)


def samples_of_run(
    stamps: RunStamps, output: str, options: argparse.Namespace
) -> list[tuple[int, int, int, float]]:
    """Return begin, end, end by the wall clock, and amount of each measurement of a run.

    Raises:
        FailedRunError: the output has no measurement, another number of values, or a value that
            is not a number or gives no rate.
    """
    texts = [match.group(1) for match in re.finditer(options.value, output, re.MULTILINE)]
    try:
        found = [float(text) for text in texts]
    except (TypeError, ValueError):
        raise FailedRunError(f"not all values are numbers: {', '.join(map(str, texts))}") from None
    if options.amount and not all(found):
        raise FailedRunError("a time of 0 s gives no rate")
    if not found or len(found) != len(stamps.spans):
        raise FailedRunError(
            f"the run has {len(stamps.spans)} measurements and {len(found)} values"
        )
    samples = []
    for number, value in enumerate(found):  # zip(strict=True) needs Python 3.10
        begin, end, realtime = stamps.spans[number]
        rate = options.amount / value if options.amount else value * options.scale
        samples.append((begin, end, realtime, rate * (end - begin) * 1e-9))
    return samples


def repeat_tool(options: argparse.Namespace) -> int:
    """Repeat the tool until a signal or the end of its time; return the exit status."""
    stop = StopRequest()
    limit = time.monotonic() + options.max_seconds
    runs, stopped_by = 0, "time"
    while runs == 0 or time.monotonic() < limit:
        stamps = RunStamps(options.begin, options.end)
        try:
            output = run_tool_once(options.command, stamps, stop)
            if output is None:
                stopped_by = "signal"
                break
            samples = samples_of_run(stamps, output, options)
        except FailedRunError as error:
            print(f"chaosity-stamp: {error}", file=sys.stderr)
            return EXIT_INVALID
        runs += 1
        for begin, end, realtime, amount in samples:
            stamp = {"begin_ns": begin, "end_ns": end, "end_realtime_ns": realtime}
            print(json.dumps({"event": "sample", "run": runs, **stamp, "amount": amount}))
        sys.stdout.flush()
    print(json.dumps({"event": "done", "runs": runs, "stopped_by": stopped_by}), flush=True)
    return 0


def read_samples(file: IO[str]) -> list[Sample]:
    """Return the samples in the output of this program."""
    lines = [json.loads(line) for line in file if line.startswith('{"event": "sample"')]
    return [(x["begin_ns"] * 1e-9, x["end_ns"] * 1e-9, x["amount"]) for x in lines]


def rates_together(found: Sequence[Sequence[Sample]]) -> tuple[list[float], float, float]:
    """Return the rate of each tool in the time in which all measured, and the lengths.

    The lengths in seconds are those of this time and of the common window: from the begin of the
    last tool to begin, to the end of the first to end.
    """
    begin = max(samples[0][0] for samples in found)
    end = min(samples[-1][1] for samples in found)
    spans = [(begin, end)] if end > begin else []
    for samples in found:
        overlaps = [(max(b, c), min(e, f)) for b, e in spans for c, f, _ in samples]
        spans = [(first, last) for first, last in overlaps if last > first]
    together = sum(last - first for first, last in spans)
    moved = [
        sum(
            amount * max(0.0, min(e, last) - max(b, first)) / (last - first)
            for b, e in spans
            for first, last, amount in samples
        )
        for samples in found
    ]
    return [each / together if together else 0.0 for each in moved], together, end - begin


def print_rates_together(names: Sequence[str]) -> int:
    """Print the rate of each tool in the time in which all of them ran; return the exit status."""
    found = []
    for name in names:
        try:
            with Path(name).open(encoding="utf-8") as file:
                found.append(read_samples(file))
        except (OSError, ValueError, KeyError) as error:
            return print_refusal(f"{name} is not an output of this program: {error}")
        if not found[-1]:
            return print_refusal(f"{name} has no sample; was its first run stopped?")
    rates, together, window = rates_together(found)
    if not together:
        return print_refusal("the tools did not measure at the same time")
    for number, rate in enumerate(rates):
        print(
            f"{names[number]}: {rate * 1e-9:.2f} GB/s,"
            f" measuring together for {together:.1f} of {window:.1f} s"
        )
    return 0


def print_refusal(sentence: str) -> int:
    """Print an error and return the exit status for it."""
    print(f"chaosity-stamp: {sentence}", file=sys.stderr)
    return EXIT_REFUSED


def pattern(text: str) -> str:
    """Return a regular expression if Python accepts it."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pattern: {error}") from None
    return text


def pattern_with_group(text: str) -> str:
    """Return a regular expression if Python accepts it and it has a group."""
    if re.compile(pattern(text)).groups == 0:
        raise argparse.ArgumentTypeError(f"{text!r} has no group, in parentheses, for the value")
    return text


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the options; end the program with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="chaosity-stamp",
        usage="chaosity-stamp --value PATTERN [OPTION]... -- COMMAND...\n"
        "       chaosity-stamp --together FILE FILE...",
        description="Repeat a tool until it is stopped, and stamp when it measured.",
        epilog="Patterns are Python's regular expressions. SIGTERM or SIGINT ends the program; the "
        "run that it interrupts gives no sample. Exit status: 0 stopped, 1 a run of the tool "
        "failed, 2 refused.",
    )
    parser.add_argument(
        "--begin",
        type=pattern,
        metavar="PATTERN",
        help="a measurement begins at this line; without it, when the tool starts, so the tool's "
        "set-up counts as measuring",
    )
    parser.add_argument(
        "--end",
        type=pattern,
        metavar="PATTERN",
        help="and ends at this line; without it, at the tool's end",
    )
    parser.add_argument(
        "--value",
        type=pattern_with_group,
        metavar="PATTERN",
        help="its first group is the rate of a measurement; as many values as measurements",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="turns the tool's unit into bytes per second"
    )
    parser.add_argument(
        "--amount", type=float, help="the value is the time in seconds for this many bytes"
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=float("inf"),
        metavar="S",
        help="no run begins later; the first always runs",
    )
    parser.add_argument(
        "--together",
        nargs="+",
        metavar="FILE",
        help="print the rates of tools in the time in which all of them ran, from their outputs",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the tool, after --")
    options = parser.parse_args(words)
    if not options.together and not (options.command and options.value):
        parser.error("--value and a command are needed, or --together with files")
    return options


def main() -> int:
    """Run the command line and return the exit status."""
    options = parse_arguments(sys.argv[1:])
    if options.together:
        return print_rates_together(options.together)
    return repeat_tool(options)


if __name__ == "__main__":
    sys.exit(main())
