"""Waits for what another process does, and no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def soon(true: Callable[[], Found], seconds: float = 120.0) -> Found:
    """Wait until something holds, and return it."""
    limit = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < limit, f"it did not come true within {seconds:g} s"
        time.sleep(0.01)
    return found
