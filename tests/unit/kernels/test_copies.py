"""chaosity-copies between the host and the OpenCL devices of this machine, such as PoCL's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kernel_binary import run_valid

PIECE = 64 * 4096
SMALL = ["--bytes", str(3 * PIECE), "--copy-bytes", str(PIECE), "--sample-seconds", "0.01"]
SHORT = [*SMALL, "--max-seconds", "0.1"]
# Copies to and from the device that a direction has.
DIRECTIONS = {"to_device": (True, False), "from_device": (False, True), "both_ways": (True, True)}
OF_EACH = pytest.mark.parametrize("direction", DIRECTIONS)


@pytest.fixture(scope="module", autouse=True)
def device(opencl: Path) -> None:
    said = subprocess.run([opencl, "--list"], check=True, capture_output=True, timeout=60).stdout
    if not json.loads(said)["devices"]:
        pytest.skip("this machine has no OpenCL device")


@OF_EACH
def test_each_byte_counts_once_and_all_data_is_right(copying: Path, direction: str):
    ran = run_valid([str(copying), "--direction", direction, "--memory-nodes", "0", *SHORT])
    assert (ran.ready["direction"], ran.ready["memory_nodes"]) == (direction, "0")
    assert (ran.ready["bytes"], ran.ready["copy_bytes"]) == (3 * PIECE, PIECE)
    counts = [ran.done["copies_to_device"], ran.done["copies_from_device"]]
    assert tuple(count > 3 for count in counts) == DIRECTIONS[direction]
    assert all(sample["bytes"] % PIECE == 0 for sample in ran.samples)
    # Not in a sample: the first three of each direction, and what was in flight at the end.
    copied = sum(sample["bytes"] for sample in ran.samples) // PIECE
    assert 0 < copied <= sum(counts) - 3 * sum(DIRECTIONS[direction])
