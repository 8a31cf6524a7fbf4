"""A simulated host with a map, for the commands that check it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from simulated_map import simulate_maps


@pytest.fixture(scope="session")
def mapped(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated host with a map; tests copy it."""
    [folder] = simulate_maps(root, tmp_path_factory.mktemp("mapped"), "sim")
    return folder


@pytest.fixture
def folder(mapped: Path, tmp_path: Path) -> Path:
    """A copy of the results of the simulated host with a map."""
    shutil.copytree(mapped.parent, tmp_path / "sim")
    return tmp_path / "sim" / mapped.name
