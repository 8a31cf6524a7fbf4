"""Any program as a child: with its memory policy, its output and signals passed through."""

from __future__ import annotations

import contextlib
import os
import pty
import selectors
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from chaosity.errors import UserError
from chaosity.place import kernel_calls
from chaosity.place.barrier_proxy import STANDARD_INPUT, BarrierProxy, Phase
from chaosity.runner.tool_output import ready_event

# Those that a program may act upon; SIGKILL cannot be passed on, so the program dies with us.
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT")
# A terminal sends these to all of its foreground, so the program has them already.
_BY_TERMINAL = ("SIGINT", "SIGQUIT")
_CHUNK = 1 << 16


class ChildProgram:
    """A program while it runs.

    Args:
        command: the program and its arguments.
        mode: the kernel's memory policy for it, see `calls`.
        nodes: of that policy.
        by_line: have it write each line at once, as C programs do on a terminal alone.
        gate: for one that waits at a barrier and is to settle before anybody hears of it.
    """

    def __init__(
        self,
        command: Sequence[str],
        mode: int,
        nodes: Collection[int],
        by_line: bool,
        gate: BarrierProxy | None = None,
    ) -> None:
        self.command, self.mode, self.nodes, self.gate = command, mode, nodes, gate
        # A terminal's input goes to its foreground group alone, so the program stays in it.
        self.own_group = not sys.stdin.isatty()
        self.by_line = by_line or sys.stdout.isatty()
        self.at_ready: Callable[[str | None], None] | None = None
        self.listeners: list[Callable[[str, float], None]] = []
        self.status: int | None = None
        self.told_to_stop = False
        self._rest = b""

    def start(self) -> None:
        """Start it.

        Raises:
            UserError: it is not there or cannot be run.
        """
        # Until there are handlers a signal would end this process, and nobody would pass it on.
        numbers = {signal.Signals[name] for name in _PASSED_ON}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            self._start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def _start(self) -> None:
        reading, writing = self._output()
        try:
            self.process = subprocess.Popen(
                self.command,
                stdin=self.gate.reading if self.gate else None,
                stdout=writing,
                preexec_fn=self._prepare,
                close_fds=False,  # what we were given, such as a lock, is the program's too
                process_group=0 if self.own_group else None,
            )
        except OSError as error:
            raise UserError(f"cannot be run: {error.strerror}", self.command[0]) from None
        except subprocess.SubprocessError as error:
            raise UserError(f"cannot be prepared: {error}", self.command[0]) from None
        finally:
            os.close(writing)
            if self.gate:
                os.close(self.gate.reading)
        self.output: int | None = reading
        self.ended = os.pidfd_open(self.process.pid)
        self.selector = selectors.PollSelector()  # epoll refuses files, such as /dev/null as input
        if self.gate:
            self.selector.register(STANDARD_INPUT, selectors.EVENT_READ)
        self.selector.register(self.output, selectors.EVENT_READ)
        self.selector.register(self.ended, selectors.EVENT_READ)
        for name in _PASSED_ON:
            if self.own_group or name not in _BY_TERMINAL:
                signal.signal(signal.Signals[name], self._pass_on)
            else:
                signal.signal(signal.Signals[name], lambda *_: None)

    def _output(self) -> tuple[int, int]:
        """Both ends of its standard output: a terminal if it is to write by line, else a pipe."""
        if not self.by_line:
            return os.pipe()
        reading, writing = pty.openpty()
        attributes = termios.tcgetattr(writing)
        attributes[1] &= ~termios.OPOST  # the bytes as they are, with no carriage returns
        termios.tcsetattr(writing, termios.TCSANOW, attributes)
        return reading, writing

    def _prepare(self) -> None:
        """In the child, before the program: threads and all that it starts inherit these."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        kernel_calls.die_with_parent()
        kernel_calls.set_mempolicy(self.mode, self.nodes)

    def _pass_on(self, number: int, _frame: Any) -> None:
        self.send(number)

    def send(self, number: int) -> None:
        """Send a signal to the program, and to what it has started where that is possible."""
        self.told_to_stop |= number == signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            if self.own_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    @property
    def group(self) -> int | None:
        """Its process group, None when that is ours."""
        return self.process.pid if self.own_group else None

    @property
    def at_barrier(self) -> bool:
        """Whether it waits at a barrier that is ours to open."""
        return self.gate is not None and self.gate.phase is Phase.REACHED

    def pump(self, seconds: float) -> bool:
        """Pass output on for some time; returns whether the program still runs after it.

        It returns early when the program has come to a barrier that is ours to open.
        """
        limit = time.monotonic() + seconds
        while self.status is None:
            left = limit - time.monotonic()
            events = self.selector.select(max(0.0, left))
            ready = {key.fd for key, _ in events}
            if self.output in ready:
                self._relay()
            elif self.ended in ready:
                self._finish()
            if self.gate and STANDARD_INPUT in ready and self.status is None:
                self._hear(self.gate)
            if left <= 0.0 or self.at_barrier:
                break
        return self.status is None

    def _hear(self, gate: BarrierProxy) -> None:
        """Listen to whoever is to release the program; end of input means stop."""
        # Once: a program on its way out, such as a Python that winds up, may die of a second one.
        if gate.hear(time.monotonic_ns()) and not self.told_to_stop:
            self.send(signal.SIGTERM)
        if not gate.listens:
            self.selector.unregister(STANDARD_INPUT)

    def settled(self) -> None:
        """Let others hear that it is ready."""
        if self.gate and self.status is None:
            self._write(self.gate.settled(time.monotonic_ns()))

    def _finish(self) -> None:
        """Collect the status; what is still in the pipe has been passed on."""
        code = self.process.wait()
        self.status = 128 - code if code < 0 else code  # as shells tell a signal
        if self.output is not None:
            self._pass(self._rest)
        if self.gate:
            self._write(self.gate.ended())
        self._close()
        self.selector.close()

    def _close(self) -> None:
        if self.output is not None:
            self.selector.unregister(self.output)
            os.close(self.output)
            self.output = None

    def _relay(self) -> None:
        """Pass on what it has written: whole lines, and parts of lines that cannot be events."""
        assert self.output is not None
        try:
            chunk = os.read(self.output, _CHUNK)
        except OSError:  # a terminal whose other side is closed
            chunk = b""
        if not chunk:
            self._pass(self._rest)
            self._close()
            return
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace"))
            self._pass(line + b"\n")
        kept = self.listeners or (self.gate and self.gate.keeps)
        if rest and not rest.startswith(b"{") and not kept:
            self._pass(rest)
            rest = b""
        self._rest = rest

    def _line(self, line: str) -> None:
        ready = ready_event(line) if self.at_ready else None
        if ready and self.at_ready:
            self.at_ready(ready.get("mapping"))
        for listener in self.listeners:
            listener(line, time.monotonic())

    def _pass(self, line: bytes) -> None:
        self._write(self.gate.passes(line) if self.gate and line else line)

    def _write(self, data: bytes) -> None:
        """Write to our standard output; when nobody reads it any more, nobody reads the program."""
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            self._close()


def check_program_exists(command: Sequence[str]) -> None:
    """Make sure that there is a program.

    Raises:
        UserError: none is named, or it is not found.
    """
    if not command:
        raise UserError("no program is named", remedy="end with -- PROGRAM ARGUMENT ...")
    if shutil.which(command[0]) is None:
        raise UserError("is no program that can be run here", command[0])
