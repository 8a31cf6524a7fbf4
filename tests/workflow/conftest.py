"""Runs the real workflow in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from workflow_folder import Workflow


@pytest.fixture
def workflow(root: Path, tmp_path: Path) -> Workflow:
    """A workflow of its own for a test."""
    return Workflow(root, tmp_path)
