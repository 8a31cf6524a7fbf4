"""Fixtures and markers of all tests."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import settings

from expected_skips import pytest_runtest_makereport as pytest_runtest_makereport
from small_load import make_point as make_point
from workflow_folder import Workflow

# On a busy machine, the time that an example takes says nothing about the code. `make test` takes
# the same examples each time, so it fails only for what was changed; `make test-thorough` others,
# and `make fuzz` others and many.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.register_profile("many", deadline=None, max_examples=6000)
settings.load_profile("same")

# Started in the background by a shell or nohup, tests and their programs would ignore these
# signals. Tests press Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """End the run if `make` would not find the file of a test that must run alone."""
    for path in {item.path for item in items if item.get_closest_marker("alone")}:
        if "mark.alone" not in path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{path}: write pytest.mark.alone in this file")


def pytest_collection_finish() -> None:
    """Let Python's search for garbage pass over all collected tests, which stay to the end."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip the test if the time is over that `.ci/run` gives a whole run on a slow machine."""
    if time.time() > float(os.environ.get("CHAOSITY_TESTS_UNTIL", "inf")):
        pytest.skip("the time of this run is over")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture
def workflow(root: Path, tmp_path: Path) -> Workflow:
    """A workflow of its own for a test."""
    return Workflow(root, tmp_path)
