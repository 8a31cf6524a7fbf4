"""Writes the figures of these tests quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quick_files import quick_files


@pytest.fixture(scope="package", autouse=True)
def _quick_files() -> Iterator[None]:
    with quick_files():
        yield
