"""A drive of this machine that a test can stop: a real block device behind a rate limit.

`qemu-storage-daemon` serves a file through FUSE and delays its reads; a loop device is over that
file. No kernel module or cgroup is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loop_devices import attached_loop_device, system_program
from wait_until_true import wait_until

SIZE = 64 * 2**20


@dataclass(frozen=True)
class ThrottledDrive:
    """A block device and the program that serves it."""

    device: Path
    pid: int  # of the program; while it is stopped, the drive answers nothing


@contextmanager
def throttled_drive(folder: Path, bytes_per_second: int) -> Iterator[ThrottledDrive]:
    """A drive with this speed; skips the test without root, FUSE or a loop device.

    Raises:
        FileNotFoundError: qemu-storage-daemon is not installed.
    """
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("a throttled drive needs root and /dev/fuse")
    image, served = (folder / name for name in ("image", "served"))
    image.write_bytes(os.urandom(SIZE))
    served.touch()
    throttle = {
        "qom-type": "throttle-group",
        "id": "limits",
        "limits": {"bps-read": bytes_per_second},
    }
    drive = {
        "node-name": "drive",
        "driver": "throttle",
        "throttle-group": "limits",
        "read-only": True,
        "file": {"driver": "file", "filename": str(image), "read-only": True},
    }
    export = {"type": "fuse", "id": "export", "node-name": "drive", "mountpoint": str(served)}
    command = [
        system_program("qemu-storage-daemon"),
        *("--object", json.dumps(throttle)),
        *("--blockdev", json.dumps(drive)),
        *("--export", json.dumps(export)),
    ]
    with subprocess.Popen(command) as daemon:
        try:
            wait_until(lambda: daemon.poll() is not None or served.stat().st_size == SIZE)
            assert daemon.poll() is None, "qemu-storage-daemon ended"
            # The cache of the loop device would answer without the limit.
            with attached_loop_device(served, "--direct-io=on", "--read-only") as device:
                yield ThrottledDrive(device, daemon.pid)
        finally:
            daemon.terminate()
