"""A root folder with the files of a kernel, and what tests need of the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_files import Kernel

from chaosity.runner import observed_state


@pytest.fixture
def numa_maps() -> None:
    """Skip the test on a kernel that does not say where pages are."""
    if observed_state.read_process_memory(os.getpid()) is None:
        pytest.skip("this kernel has no numa_maps")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    (tmp_path / "root").mkdir()
    return Kernel(tmp_path / "root")
