"""A guardian: a process that kills programs and cleans up if this process is killed.

The guardian is in another session, so a signal to the group of this process does not reach the
guardian. The guardian inherits the locks of this process, and holds these locks until it has
cleaned up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from chaosity.runner.observed_state import process_and_descendants

# Name of the guardian in lists of processes; the kernel keeps at most 15 characters.
_GUARDIAN_PROCESS_NAME = "chaosity-guard"
_PR_SET_NAME = 15  # from linux/prctl.h


class Guardian:
    """The writing end of the pipe to the guardian; the pipe closes when this process ends."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def kill_too_if_this_process_is_killed(self, pid: int) -> None:
        """Ask the guardian to kill a program (see `kill_program`) if this process is killed."""
        with contextlib.suppress(BrokenPipeError):  # the guardian was killed
            os.write(self._pipe, f"{pid}\n".encode())


def kill_program(pid: int) -> None:
    """Kill a process, its group and its descendants, except guardians.

    Descendants may have left the group; for example, each process of fio runs in another session.
    """
    for process in process_and_descendants(pid):
        _kill_unless_guardian(process)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _kill_unless_guardian(process: int) -> None:
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        if Path(f"/proc/{process}/comm").read_text().strip() != _GUARDIAN_PROCESS_NAME:
            os.kill(process, signal.SIGKILL)


def kill_this_process_and_descendants() -> None:
    """Kill the descendants of this process, then this process; its guardian stays and cleans up."""
    own = os.getpid()
    for process in process_and_descendants(own):
        if process != own:
            _kill_unless_guardian(process)
    os.kill(own, signal.SIGKILL)


@contextlib.contextmanager
def with_guardian(clean_up: Callable[[], None]) -> Iterator[Guardian]:
    """Run a block with a guardian, which calls `clean_up` after the block.

    If this process is killed, the guardian kills the programs that this process named, and then
    calls `clean_up`. The guardian is a fork without the other threads of this process, so
    `clean_up` must not wait for a thread.
    """
    reading, writing = os.pipe()
    guardian = os.fork()
    if guardian == 0:
        os.close(writing)
        _run_guardian(clean_up, reading)
    os.close(reading)
    try:
        yield Guardian(writing)
    finally:
        with contextlib.suppress(BrokenPipeError):  # the guardian was killed
            os.write(writing, b"end\n")
        os.close(writing)
        os.waitpid(guardian, 0)


def _run_guardian(clean_up: Callable[[], None], pipe: int) -> None:
    """Wait until the watched process closes its end of the pipe, then clean up and exit."""
    try:
        # prctl sets the name, because some containers forbid writing to /proc/self/comm.
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _GUARDIAN_PROCESS_NAME.encode())
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):  # readers of the program's output must not wait for the guardian
            os.dup2(null, standard)
        received = b""
        while more := os.read(pipe, 64):
            received += more
        words = received.split()
        if b"end" not in words:
            for pid in words:
                kill_program(int(pid))
        clean_up()
    finally:
        os._exit(0)
