"""A fake kernel that nobody has touched."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_kernel import Try


@pytest.fixture
def tried(tmp_path: Path) -> Try:
    return Try(tmp_path)
