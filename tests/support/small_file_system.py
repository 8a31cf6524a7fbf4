"""Real small file systems, which tests fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILLER = "filler"


@contextmanager
def small_file_system(folder: Path, size: int, inodes: int = 100_000) -> Iterator[Path]:
    """Mount an empty file system in memory on a folder; skips the test without root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={inodes}", "none", folder],
        check=True,
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(mounted: Path, leave: int = 0) -> None:
    """Write a file until only `leave` bytes of the file system are free."""
    with (mounted / FILLER).open("ab", buffering=0) as stream:
        while (space := free_bytes(mounted) - leave) > 0:
            stream.write(bytes(min(space, 2**20)))


def free_again(mounted: Path) -> None:
    """Remove what `fill` wrote."""
    (mounted / FILLER).unlink()


def free_bytes(mounted: Path) -> int:
    """How much a user can write."""
    status = os.statvfs(mounted)
    return status.f_bavail * status.f_frsize
