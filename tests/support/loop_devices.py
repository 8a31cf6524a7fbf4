"""Loop devices: block devices that tests may overwrite."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def system_program(name: str) -> str:
    """Path of a program that may be in a folder of the system administrator.

    Raises:
        FileNotFoundError: it is not installed.
    """
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if path is None:
        raise FileNotFoundError(f"{name} is not installed; tests/provision.yml installs it")
    return path


def checksum(path: Path) -> str:
    """SHA-256 of a file or device."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def loop_device(image: Path, size: int = 64 * 2**20, *, filesystem: bool = False) -> Iterator[Path]:
    """A loop device over a new image, blank or with a file system; skips the test without root."""
    if os.geteuid() != 0:
        pytest.skip("loop devices need root")
    image.write_bytes(os.urandom(2**20) if filesystem else b"")
    with image.open("r+b") as stream:
        stream.truncate(size)
    if filesystem:
        subprocess.run([system_program("mkfs.ext4"), "-q", "-F", str(image)], check=True)
    with attached_loop_device(image) as device:
        yield device


@contextmanager
def attached_loop_device(file: Path, *options: str) -> Iterator[Path]:
    """A loop device over an existing file; skips the test where none is available."""
    losetup = system_program("losetup")
    command = [losetup, "--find", "--show", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop device is available: {done.stderr.strip()}")
    device = Path(done.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", str(device)], check=True)
