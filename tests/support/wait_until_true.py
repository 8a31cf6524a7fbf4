"""Waits for another process, no longer than necessary, and finds the files that it writes."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found], seconds: float = 120.0, *, pause: float = 0.01
) -> Found:
    """Wait until a condition is true; returns its value.

    Args:
        condition: it is looked at again and again.
        seconds: the longest time to wait.
        pause: time between two looks in seconds.

    Raises:
        AssertionError: the condition is still false after this time.
    """
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, f"the condition is false after {seconds:g} s"
        time.sleep(pause)
    return found


def files_of_running_program(folder: Path, pattern: str) -> list[Path]:
    """Return the sorted files that match, in folders that another process makes and removes.

    `Path.glob` raises FileNotFoundError if it lists a folder that is just being removed.
    """
    return sorted(folder / path for path in glob.glob(pattern, root_dir=folder))  # noqa: PTH207
