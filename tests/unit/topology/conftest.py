"""Fixtures of the tests of the topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from machines import OWN_TOPOLOGIES


@pytest.fixture(scope="session")
def own() -> Path:
    """The folder of topologies that ship with the tests; its README.md describes each."""
    return OWN_TOPOLOGIES
