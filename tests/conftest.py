"""Fixtures and markers of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# On a busy machine, the time that an example takes says nothing about the code.
settings.register_profile("without deadline", deadline=None)
settings.load_profile("without deadline")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real topologies and published measurements that do not ship with the project."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("../shared is not here: it holds real topologies and published measurements")
    return folder
