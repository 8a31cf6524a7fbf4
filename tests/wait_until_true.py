"""Waits for another process, no longer than necessary."""

from __future__ import annotations

import time
from collections.abc import Callable
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
