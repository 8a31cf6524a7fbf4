"""What the kernels load and store, counted by valgrind, is what they say they moved.

Valgrind's lackey prints the address of every instruction and of every access that it makes. Those
of a kernel's own function are picked out by the addresses of its code.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from kernel_binary import ARRAYS, FOR_TESTS, KERNELS, arguments, build, run_valid
from test_traffic import MIXES

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="built for what valgrind knows"),
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed"),
]

LINE = 64
ISA = "avx2"  # valgrind has no AVX-512


def fast_ones(kernels: Iterable[str]) -> list[object]:
    """All kernels; a read, an ordinary and a non-temporal store are in the fast layer."""
    fast = {"read", "copy", "triad_nt"}
    return [
        pytest.param(kernel, marks=() if kernel in fast else pytest.mark.thorough)
        for kernel in kernels
    ]


def code_of(binary: Path, function: str) -> range:
    """Addresses of a function's instructions."""
    listed = subprocess.run(["nm", "-S", binary], capture_output=True, text=True, check=True)
    found = re.search(rf"^(\w+) (\w+) [tT] {function}$", listed.stdout, re.MULTILINE)
    start, size = (int(field, 16) for field in found.groups())
    return range(start, start + size)


def accesses(trace: Path, code: range, start: int) -> tuple[Counter, Counter]:
    """How many bytes of each line the code loaded and stored; lines are counted from an address."""
    # Of megabytes, only what follows an instruction near the code is read: at most eight accesses.
    first, last = f"{code.start:08x}", f"{code.stop:08x}"
    near = first[: next(n for n in range(9) if first[: n + 1] != last[: n + 1])]
    command = ["grep", "-A", "8", "-E", f"^I +0*{near.lstrip('0')}", trace]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    loaded, stored = Counter(), Counter()
    inside = False
    for line in lines:
        kind = line[:2]
        if kind == "I ":
            inside = int(line[2:].split(",")[0], 16) in code
        elif inside and kind in (" L", " S", " M"):
            address, size = line[2:].split(",")
            place = (int(address, 16) - start) // LINE
            if kind != " S":
                loaded[place] += int(size)
            if kind != " L":
                stored[place] += int(size)
    return loaded, stored


def traced(binary: Path, kernel: str, trace: Path, options: list[str]):
    """A run and the bytes that the kernel loaded and stored in the mapping, by line."""
    lackey = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-file={trace}"]
    ran = run_valid([*lackey, str(binary), *options, "--isa", ISA])
    code = code_of(binary, f"{kernel}_{ISA}")
    loaded, stored = accesses(trace, code, int(ran.ready["mapping"], 16))
    trace.unlink()  # tens of megabytes
    arrays_lines = ran.ready["arrays"] * (ran.ready["array_bytes"] // LINE)
    # the function's own variables and what it returns to lie elsewhere
    return ran, *(
        {at: n for at, n in one.items() if 0 <= at < arrays_lines * 2} for one in (loaded, stored)
    )


def lines_of(array: int, array_bytes: int) -> range:
    """The lines of one array: each begins on a page of its own."""
    stride = -(-array_bytes // 4096) * 4096
    return range(array * stride // LINE, (array * stride + array_bytes) // LINE)


@pytest.mark.parametrize("kernel", fast_ones(KERNELS))
def test_each_line_of_each_array_is_moved_once_a_pass(tmp_path: Path, kernel: str, cpu: str):
    array_bytes = LINE * 37
    once = ["--warmup-passes", "1", "--sample-seconds", "1e-9", "--max-seconds", "1e-9"]
    options = arguments(kernel, cpu, array_bytes, *once)
    binary = build("chaosity-bandwidth", FOR_TESTS)
    ran, loaded, stored = traced(binary, kernel, tmp_path / "trace", options)
    passes = ran.done["passes"] + 1  # with the warm-up
    count = ARRAYS[kernel.removesuffix("_nt")]
    read = range(0, 1) if kernel == "read" else range(1, count)
    written = range(0, 0) if kernel == "read" else range(0, 1)
    each = LINE * passes
    assert loaded == {at: each for array in read for at in lines_of(array, array_bytes)}
    assert stored == {at: each for array in written for at in lines_of(array, array_bytes)}
    # and so the bytes that the samples tell are those that were moved
    assert sum(loaded.values()) + sum(stored.values()) == passes * ran.ready["bytes_per_pass"]


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", fast_ones(MIXES))
def test_traffic_counts_the_lines_that_it_moves(tmp_path: Path, kernel: str, cpu: str):
    arrays, reads, writes = MIXES[kernel]
    lines = 16 * 1024 // LINE // arrays
    array_bytes = LINE * lines * 5  # every chunk is a whole one
    soon = ["--peak-seconds", "1e-9", "--sample-seconds", "1e-9", "--max-seconds", "1e-9"]
    options = arguments(kernel, cpu, array_bytes, *soon)
    binary = build("chaosity-traffic", FOR_TESTS)
    ran, loaded, stored = traced(binary, kernel, tmp_path / "trace", options)
    chunks = ran.done["warmup_chunks"] + ran.done["chunks"]
    # an ordinary store is reported twice, for the line is fetched first, which no instruction says
    fetched = 1 if kernel in ("copy", "fill") else 0
    assert sum(loaded.values()) == chunks * lines * LINE * (reads - fetched)
    assert sum(stored.values()) == chunks * lines * LINE * writes
    assert chunks * ran.ready["chunk_bytes"] == chunks * lines * LINE * (reads + writes)
    for array in range(arrays):  # all of each array has its turn, as often as all else
        one = loaded if kernel == "read" or array > 0 else stored
        turns = [one[at] // LINE for at in lines_of(array, array_bytes)]
        assert max(turns) - min(turns) <= 2
    assert set(stored) <= set(lines_of(0, array_bytes))
