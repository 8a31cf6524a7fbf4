"""A root folder with the files of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernel_files import Kernel


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    (tmp_path / "root").mkdir()
    return Kernel(tmp_path / "root")
