"""A guardian: a process that kills programs and cleans up if this process is killed.

The guardian is in a session of its own, so that a signal to this process's group does not reach it.
It inherits the locks of this process, and so keeps them until it has finished.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from chaosity.runner.observed_placement import process_and_descendants

_NAME = "chaosity-guard"  # in lists of processes; the kernel keeps 15 characters
_PR_SET_NAME = 15  # of linux/prctl.h


class Guardian:
    """The pipe on which a guardian listens; its other end closes when this process ends."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def kill_with_this_process(self, pid: int) -> None:
        """Let the guardian kill a program, see `kill_program`, too, if this process is killed."""
        with contextlib.suppress(BrokenPipeError):  # the guardian was killed
            os.write(self._pipe, f"{pid}\n".encode())


def kill_program(pid: int) -> None:
    """Kill a process, its group and its descendants, but no guardian among them.

    Descendants may have left the group: each process of fio has a session of its own.
    """
    for process in process_and_descendants(pid):
        _kill_unless_guardian(process)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _kill_unless_guardian(process: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        if Path(f"/proc/{process}/comm").read_text().strip() != _NAME:
            os.kill(process, signal.SIGKILL)


def kill_this_program() -> None:
    """Kill the descendants of this process, then this process; its guardian tidies up."""
    own = os.getpid()
    for process in process_and_descendants(own):
        if process != own:
            _kill_unless_guardian(process)
    os.kill(own, signal.SIGKILL)


@contextlib.contextmanager
def guarded(clean_up: Callable[[], None]) -> Iterator[Guardian]:
    """Run a block with a guardian, which calls `clean_up` after the block.

    If this process is killed, the guardian first kills its programs. Threads do not survive in the
    guardian, so `clean_up` may use none.
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
    """Wait for the end of the process that writes to the pipe, then clean up."""
    try:
        # Not by /proc/self/comm, which a container may not let anybody write.
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _NAME.encode())
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):  # a reader of the program's output must not wait for the guardian
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
