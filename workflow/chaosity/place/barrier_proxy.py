"""The barrier of a program that has to run before others may measure it.

A search needs a program that runs, and who waits for the program's ready line wants it settled. So
the program's barrier is opened early and its output kept. Seen from outside it gets ready slowly:
its ready line comes when all has settled, and no sample that began before the line that answers.
"""

from __future__ import annotations

import contextlib
import enum
import os

from chaosity.runner.tool_output import ready_event, sample_event

_CHUNK = 1 << 16
STANDARD_INPUT = 0
_LINE = b"go\n"  # any would do


class Phase(enum.Enum):
    """How far a program is that waits at a barrier."""

    BEFORE = "not ready yet"
    REACHED = "waits at its barrier; its ready line is kept"
    SETTLING = "runs; all that it writes is kept"
    SETTLED = "runs; its ready line was passed on, and the answer is awaited"
    RELEASED = "runs and is measured"
    LEFT_ALONE = "its barrier is its own: input ended before it was ready, or it never waits"


class BarrierProxy:
    """What stands between the barrier of a program and the outside.

    Attributes:
        phase: how far it is.
        reading: what the program has as standard input.
    """

    def __init__(self) -> None:
        self.phase = Phase.BEFORE
        self.reading, self._writing = os.pipe()
        self._answered = False
        self._kept: list[bytes] = []
        self._ready = b""
        self._released_ns: int | None = None

    @property
    def keeps(self) -> bool:
        """Whether nothing may be passed on but in whole lines that were looked at."""
        return self.phase in (Phase.REACHED, Phase.SETTLING, Phase.SETTLED)

    def passes(self, line: bytes) -> bytes:
        """What is passed on now that the program has written a line."""
        if self.phase is Phase.LEFT_ALONE:
            return line
        text = line.decode(errors="replace")
        if self.phase is Phase.BEFORE:
            if ready_event(text) is None:
                return line
            self.phase, self._ready = Phase.REACHED, line
            return b""
        sample = sample_event(text)
        if sample is not None and (
            self._released_ns is None or sample.get("begin_ns", 0) < self._released_ns
        ):
            return b""
        if self.phase in (Phase.REACHED, Phase.SETTLING):
            self._kept.append(line)
            return b""
        return line

    def open(self) -> None:
        """Open the program's barrier, to settle while it runs."""
        self.phase = Phase.SETTLING
        with contextlib.suppress(OSError):  # it has just ended
            os.write(self._writing, _LINE)

    def settled(self, now_ns: int) -> bytes:
        """End the settling; returns what was kept: the ready line and what followed.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        self.phase = Phase.SETTLED
        if self._answered:
            self._release(now_ns)
        found, self._kept = self._ready + b"".join(self._kept), []
        return found

    def ended(self) -> bytes:
        """What was kept of a program that has ended: its last words, for it never was ready."""
        found, self._kept = b"".join(self._kept), []
        return found

    def hear(self, now_ns: int) -> bool:
        """Take what stands on our input; returns whether it means that the program is to stop.

        Args:
            now_ns: CLOCK_MONOTONIC.
        """
        try:
            chunk = os.read(STANDARD_INPUT, _CHUNK)
        except OSError:
            chunk = b""
        if b"\n" in chunk:
            self._answered = True
            if self.phase is Phase.SETTLED:
                self._release(now_ns)
        elif not chunk:
            self._answered = True
            if self.phase is not Phase.BEFORE:
                return True
            self.leave_alone()
            os.close(self._writing)  # at its barrier it finds the end of input by itself
        return False

    def leave_alone(self) -> None:
        """Keep nothing of a program whose barrier is not ours to open."""
        if self.phase is Phase.BEFORE:
            self.phase = Phase.LEFT_ALONE

    @property
    def listens(self) -> bool:
        """Whether input matters: until a line, or its end, has come."""
        return not self._answered

    def _release(self, now_ns: int) -> None:
        self.phase, self._released_ns = Phase.RELEASED, now_ns
