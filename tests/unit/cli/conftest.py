"""A simulated host with a map, for the commands that check it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from machines import configuration_folder, simulated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the results of a simulated host with a map."""
    mapped = configuration_folder(simulated("fleet", ["memory_bandwidth", "latency_matrix"]))
    shutil.copytree(mapped.parent, tmp_path / "sim")
    return tmp_path / "sim" / mapped.name
