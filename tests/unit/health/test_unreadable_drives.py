"""Drives that the user of the check may not read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaosity.health.check_host import may_read_drives
from chaosity.health.check_points import CheckPoint
from nightly_checks import check_points
from playbooks import NOBODY


@pytest.fixture
def drive() -> Iterator[Path]:
    """A file in place of a drive, in a folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "drive")
        path.write_bytes(b"data")
        path.chmod(0o600)
        yield path


@pytest.fixture
def another_user() -> Iterator[None]:
    """A user without rights, until the test has ended."""
    if os.geteuid() != 0:
        pytest.skip("another user needs root")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def point_of(drive: Path) -> CheckPoint:
    """The point of a check that reads a drive."""
    point = next(each for each in check_points() if each.load["target"]["drives"])
    [facts] = point.load["target"]["drives"]
    target = {
        **point.load["target"],
        "drives": [{"component": facts["component"], "node": facts["node"], "path": str(drive)}],
    }
    return replace(point, load={**point.load, "target": target})  # type: ignore[typeddict-item]


def test_the_owner_may_read_the_drive(drive: Path) -> None:
    assert may_read_drives(point_of(drive))


def test_another_user_may_not(drive: Path, another_user: None) -> None:
    assert not may_read_drives(point_of(drive))


def test_a_missing_drive_is_left_to_the_measurement_which_names_it(
    drive: Path, another_user: None
) -> None:
    assert may_read_drives(point_of(drive.with_name("gone")))
    assert may_read_drives(next(each for each in check_points() if each.load["target"]["drives"]))


def test_memory_needs_no_right(another_user: None) -> None:
    memory = next(each for each in check_points() if not each.load["target"]["drives"])
    assert may_read_drives(memory)
