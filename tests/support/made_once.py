"""Folders that one worker of pytest-xdist makes and all workers read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` fills, once in a session of pytest.

    Stolen tests need the prepared data of a module in two workers. The first worker makes it while
    the other waits. Tests must not change the folder.

    Raises:
        AssertionError: another worker could not make it.
    """
    base = factory.getbasetemp()
    # Each worker of pytest-xdist has a folder below that of the session.
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, complete = common / name, common / f"{name}.complete"
    with (common / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            assert not folder.exists(), f"another worker could not make {folder}: see its error"
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
