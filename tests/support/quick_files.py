"""Files of tests are written without waiting for the disk, and their pictures are small.

Nothing has to outlast a power failure, and nobody looks at the pictures, which take half of the
time of a figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

_PICTURE_SIZE = "chaosity.figures.vega_lite.PNG_SCALE"


@contextmanager
def quick_files() -> Iterator[None]:
    """Write files of this process quickly."""
    with mock.patch.object(os, "fsync"), mock.patch(_PICTURE_SIZE, 0.3):
        yield


@pytest.fixture(scope="package", autouse=True)
def all_files_are_quick() -> Iterator[None]:
    """Write files quickly in all tests of a folder; its conftest.py imports this."""
    with quick_files():
        yield
