"""Run a program as a child process with a memory policy, and pass on its output and signals."""

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
from collections.abc import Callable, Sequence
from types import FrameType

from chaosity.errors import UserError
from chaosity.place import numa_system_calls
from chaosity.place.page_placement_plan import PlacementPlan
from chaosity.runner.tool_output import parse_event_line

# Signals that this process passes on to the program. SIGKILL cannot be passed on; if it ends this
# process, the kernel kills the program too.
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT")
# A terminal sends these signals to its whole foreground group, so also to the program.
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")
_CHUNK = 1 << 16
# This line tells the runner that the placement has settled; the runner uses only samples after it.
_SETTLED = b'{"event":"settled"}\n'


class ChildProgram:
    """The program of a placement request while it runs.

    With `by_line`, the output of the program goes to a pseudo-terminal, because C programs write
    each line at once only to a terminal. `at_ready` is called with the `mapping` in the program's
    ready line; each of `listeners` is called with each line and its time in monotonic seconds. The
    exit status `status` and the running time `seconds` are None while the program runs.
    """

    def __init__(self, command: Sequence[str], plan: PlacementPlan, by_line: bool) -> None:
        self.command, self.plan = command, plan
        # A terminal sends its input only to its foreground process group, so a program that may
        # read from the terminal stays in this process's group.
        self.own_group = not sys.stdin.isatty()
        self.by_line = by_line or sys.stdout.isatty()
        self.at_ready: Callable[[str | None], None] | None = None
        self.listeners: list[Callable[[str, float], None]] = []
        self.status: int | None = None
        self.seconds: float | None = None
        self.must_settle = False  # whether the program is ready and must settle
        self._rest = b""

    def start_program(self) -> None:
        """Start the program.

        Raises:
            UserError: the program is missing or cannot be run.
        """
        # Block signals until the handlers exist: without them, a signal would end this process
        # alone.
        numbers = {signal.Signals[name] for name in _PASSED_ON}
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        try:
            self._start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def _start(self) -> None:
        reading, writing = self._output()
        self.began = time.monotonic()
        try:
            self.process = subprocess.Popen(
                self.command,
                stdout=writing,
                preexec_fn=self._prepare,
                close_fds=False,  # the program inherits all files, such as a lock
                process_group=0 if self.own_group else None,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise UserError(f"the program cannot be run: {error}", self.command[0]) from None
        finally:
            os.close(writing)
        self.output: int | None = reading
        self.ended = os.pidfd_open(self.process.pid)
        self.selector = selectors.PollSelector()  # epoll refuses files such as /dev/null
        self.selector.register(self.output, selectors.EVENT_READ)
        self.selector.register(self.ended, selectors.EVENT_READ)
        for name in _PASSED_ON:
            is_passed = self.own_group or name not in _FROM_TERMINAL
            handler = self.send_signal if is_passed else lambda *_: None
            signal.signal(signal.Signals[name], handler)

    def _output(self) -> tuple[int, int]:
        """Return both ends of a terminal if output is wanted line by line, else of a pipe."""
        if not self.by_line:
            return os.pipe()
        reading, writing = pty.openpty()
        attributes = termios.tcgetattr(writing)
        attributes[1] &= ~termios.OPOST  # do not add carriage returns
        termios.tcsetattr(writing, termios.TCSANOW, attributes)
        return reading, writing

    def _prepare(self) -> None:
        """Set up the child before the program starts; the program's children inherit the setup."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
        numa_system_calls.die_with_parent()
        numa_system_calls.set_mempolicy(self.plan.mode, self.plan.nodes)

    def send_signal(self, number: int, _frame: FrameType | None = None) -> None:
        """Send a signal to the program, and to its descendants if it has its own process group."""
        with contextlib.suppress(ProcessLookupError):
            if self.own_group:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    @property
    def own_process_group(self) -> int | None:
        """Return the program's process group; None if the program is in this process's group."""
        return self.process.pid if self.own_group else None

    def let_program_run(self, seconds: float) -> bool:
        """Pass output on for `seconds`; return whether the program still runs.

        Returns early when the program is ready and its placement has to settle.
        """
        limit = time.monotonic() + seconds
        while self.status is None:
            left = limit - time.monotonic()
            events = self.selector.select(max(0.0, left))
            ready = {key.fd for key, _ in events}
            if self.output in ready:
                self._relay_output()
            elif self.ended in ready:
                self._collect_status()
            if left <= 0.0 or self.must_settle:
                break
        return self.status is None

    def print_settled(self) -> None:
        """Print a line that says that the placement has settled."""
        if self.status is None:
            self._write(_SETTLED)

    def _collect_status(self) -> None:
        """Collect the exit status after the whole output has been passed on."""
        code = self.process.wait()
        self.seconds = time.monotonic() - self.began
        self.status = 128 - code if code < 0 else code  # the exit status that a shell reports
        if self.output is not None:
            self._write(self._rest)
        self._close_output()
        self.selector.close()

    def _close_output(self) -> None:
        if self.output is not None:
            self.selector.unregister(self.output)
            os.close(self.output)
            self.output = None

    def _relay_output(self) -> None:
        """Pass on the program's output: whole lines, and begun lines that cannot be events."""
        assert self.output is not None
        try:
            chunk = os.read(self.output, _CHUNK)
        except OSError:  # the other side of the terminal is closed
            chunk = b""
        if not chunk:
            self._write(self._rest)
            self._close_output()
            return
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._inspect_line(line.decode(errors="replace"))
            self._write(line + b"\n")
        whole_lines = self.listeners or self.plan.settle
        if rest and not rest.startswith(b"{") and not whole_lines:
            self._write(rest)
            rest = b""
        self._rest = rest

    def _inspect_line(self, line: str) -> None:
        ready = parse_event_line(line, "ready") if self.at_ready else None
        if ready and self.at_ready:
            self.at_ready(ready.get("mapping"))
            self.must_settle = self.plan.settle
        for listener in self.listeners:
            listener(line, time.monotonic())

    def _write(self, data: bytes) -> None:
        """Write to standard output; if nobody reads it, stop reading the program's output."""
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            self._close_output()


def check_program_exists(command: Sequence[str]) -> None:
    """Check that the command names a program that exists.

    Raises:
        UserError: no program is named, or it is not found.
    """
    if not command:
        raise UserError(
            "the command line names no program", remedy="end with -- PROGRAM ARGUMENT ..."
        )
    if shutil.which(command[0]) is None:
        raise UserError("the command is not an executable program on this host", command[0])
