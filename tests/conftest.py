"""Fixtures and markers of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `alone` every test that runs the real tools or the real workflow."""
    for item in items:
        if item.get_closest_marker("real") or item.path.is_relative_to(ROOT / "tests/workflow"):
            item.add_marker(pytest.mark.alone)
