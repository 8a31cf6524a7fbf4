"""Hold back the ready line and output of a program until its pages are placed.

A search needs a running program, but the measurement must begin after the search. So the program's
barrier is opened early and its output is held back. The measuring process only sees a program that
gets ready slowly. The ready line arrives when the placement has settled. Samples that began before
the answer to the ready line never arrive.
"""

from __future__ import annotations

import contextlib
import enum
import os

from chaosity.runner.parse_tool_output import parse_event_line

_CHUNK = 1 << 16
STANDARD_INPUT = 0
_LINE = b"go\n"  # any line opens the barrier


class BarrierPhase(enum.Enum):
    """The phase of a program with a barrier."""

    BEFORE = "not ready yet"
    REACHED = "waits at its barrier; its ready line is held back"
    SETTLING = "runs; all its output is held back"
    SETTLED = "runs; its ready line was passed on, the answer is missing"
    RELEASED = "runs and is measured"
    LEFT_ALONE = "has no barrier, or input ended before it was ready; its output is passed on"


class BarrierProxy:
    """Pass lines between a program and the process that measures it; times are CLOCK_MONOTONIC.

    Attributes:
        phase: the program's phase.
        reading: file descriptor for the program's standard input.
    """

    def __init__(self) -> None:
        self.phase = BarrierPhase.BEFORE
        self.reading, self._writing = os.pipe()
        self._answered = False
        self._held: list[bytes] = []
        self._ready = b""
        self._released_ns: int | None = None

    @property
    def needs_whole_lines(self) -> bool:
        """Return whether each line must be complete and inspected before it is passed on."""
        return self.phase in (BarrierPhase.REACHED, BarrierPhase.SETTLING, BarrierPhase.SETTLED)

    def filter_line(self, line: bytes) -> bytes:
        """Return the bytes to pass on for a line of the program; empty to hold the line back."""
        if self.phase is BarrierPhase.LEFT_ALONE:
            return line
        text = line.decode(errors="replace")
        if self.phase is BarrierPhase.BEFORE:
            if parse_event_line(text, "ready") is None:
                return line
            self.phase, self._ready = BarrierPhase.REACHED, line
            return b""
        sample = parse_event_line(text, "sample")
        if sample is not None and (
            self._released_ns is None or sample.get("begin_ns", 0) < self._released_ns
        ):
            return b""
        if self.phase in (BarrierPhase.REACHED, BarrierPhase.SETTLING):
            self._held.append(line)
            return b""
        return line

    def open_barrier(self) -> None:
        """Open the program's barrier, so that the placement can settle while the program runs."""
        self.phase = BarrierPhase.SETTLING
        with contextlib.suppress(OSError):  # the program has just ended
            os.write(self._writing, _LINE)

    def release_ready_and_held_lines(self, now_ns: int) -> bytes:
        """Return the ready line and the other held lines after the placement settled (`now_ns`)."""
        self.phase = BarrierPhase.SETTLED
        if self._answered:
            self._release(now_ns)
        return self._ready + self.take_held_lines_without_ready_line()

    def take_held_lines_without_ready_line(self) -> bytes:
        """Return the held lines without the ready line, and forget them."""
        held, self._held = b"".join(self._held), []
        return held

    def read_input_and_detect_stop(self, now_ns: int) -> bool:
        """Read this process's input; if the input has ended, the program must stop: return True."""
        try:
            chunk = os.read(STANDARD_INPUT, _CHUNK)
        except OSError:
            chunk = b""
        if b"\n" in chunk:
            self._answered = True
            if self.phase is BarrierPhase.SETTLED:
                self._release(now_ns)
        elif not chunk:
            self._answered = True
            if self.phase is not BarrierPhase.BEFORE:
                return True
            self.stop_holding_unless_at_barrier()
            os.close(self._writing)  # the program finds the end of input at its barrier
        return False

    def stop_holding_unless_at_barrier(self) -> None:
        """Stop holding lines back, if the program has not reached a barrier."""
        if self.phase is BarrierPhase.BEFORE:
            self.phase = BarrierPhase.LEFT_ALONE

    @property
    def awaits_input(self) -> bool:
        """Return whether neither a line nor the end of the input has been read yet."""
        return not self._answered

    def _release(self, now_ns: int) -> None:
        self.phase, self._released_ns = BarrierPhase.RELEASED, now_ns
