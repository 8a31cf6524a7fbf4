"""Each kernel computes what it says, moves the bytes it says, with the stores it says."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from array import array
from itertools import cycle
from pathlib import Path

import pytest
from kernel_binary import (
    ARRAYS,
    KERNELS,
    Start,
    arguments,
    build,
    functions,
    instruction_sets,
    refusal,
    run_valid,
    waiting,
)

# odd numbers of cache lines: neither the unrolled loops nor the parts of two threads come out even
SIZES = [128, 64 * 37, 64 * 1001]


def offered(binary: Path) -> list[str]:
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_and_validates_and_counts_passes_times_arrays(
    bandwidth: Path, kernel: str, cpu: str, cpus: str
):
    if kernel not in offered(bandwidth):
        pytest.skip(f"{kernel} is not offered on {platform.machine()}")
    options = ["--max-seconds", "0.01", "--sample-seconds", "0.002"]
    chosen = [(cpus, size, []) for size in SIZES]  # of the instruction set that is the fastest
    each = [["--isa", isa] for isa in instruction_sets(bandwidth)]
    chosen += [(cpu, size, isa) for isa, size in zip(each, cycle(SIZES), strict=False)]
    for used, array_bytes, isa in chosen:
        ran = run_valid([bandwidth, *arguments(kernel, used, array_bytes, *options, *isa)])
        if isa:
            assert (ran.ready["isa"], ran.ready["isa_trial"]) == (isa[1], None)
        arrays = ARRAYS[kernel.removesuffix("_nt")]
        bytes_per_pass = arrays * array_bytes
        assert (ran.ready["arrays"], ran.ready["bytes_per_pass"]) == (arrays, bytes_per_pass)
        assert sum(sample["bytes"] for sample in ran.samples) == ran.done["passes"] * bytes_per_pass
        assert all(sample["bytes"] % bytes_per_pass == 0 for sample in ran.samples)


def test_ordinary_stores_are_ordinary_and_the_others_are_not(bandwidth: Path):
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        pytest.skip(f"no non-temporal stores on {machine}")
    non_temporal = r"\bv?movnt\w+" if machine == "x86_64" else r"\bstnp\b"
    code = functions(bandwidth)
    sets = {"x86_64": {"avx512", "avx2", "sse2"}, "aarch64": {"sve", "neon"}}[machine]
    loops = {f"{kernel}_{isa}" for kernel in KERNELS for isa in sets}
    for name in loops:
        assert re.search(r"\bcall|\bbl\b", code[name]) is None, f"{name} calls a function"
    using = {name for name, body in code.items() if re.search(non_temporal, body)}
    assert using == {name for name in loops if "_nt_" in name}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the registers of x86-64")
def test_no_instruction_of_one_set_is_outside_of_its_loops(bandwidth: Path):
    code = functions(bandwidth)
    wide = {"zmm": "_avx512", "ymm": "_avx2"}
    for register, ending in wide.items():
        using = {name for name, body in code.items() if register in body}
        allowed = (ending, "_avx512")
        assert using and all(name.endswith(allowed) for name in using), using
    vex = {name for name, body in code.items() if re.search(r"\tv[a-z]", body)}
    assert all(name.endswith(tuple(wide.values())) for name in vex)


@pytest.mark.parametrize(
    ("kernel", "array_bytes"), [("read", 64), ("triad", 64 * 1001), ("copy_nt", 1 << 20)]
)
def test_the_fastest_instruction_set_of_a_trial_is_chosen_and_recorded(
    bandwidth: Path, cpu: str, kernel: str, array_bytes: int
):
    # The trial leaves no trace in the arrays, so the result is right.
    ran = run_valid([bandwidth, *arguments(kernel, cpu, array_bytes, "--max-seconds", "0.05")])
    rates = ran.ready["isa_trial"]
    if rates is None:
        assert instruction_sets(bandwidth) == [ran.ready["isa"]]
        return
    assert list(rates) == instruction_sets(bandwidth)
    assert rates[ran.ready["isa"]] >= 0.96 * max(rates.values()) > 0


def test_the_trial_leaves_what_it_wrote_as_it_was(bandwidth: Path, start: Start, cpu: str):
    # Without a pass the written array must hold what no kernel writes.
    options = ["--barrier", "--warmup-passes", "0", "--max-seconds", "1"]
    process, ready = waiting(start, [bandwidth, *arguments("fill", cpu, 1 << 20, *options)])
    with Path(f"/proc/{process.pid}/mem").open("rb") as memory:
        memory.seek(int(ready["mapping"], 16))
        assert set(array("d", memory.read(1 << 20))) == {-1.0}


def test_an_instruction_set_that_is_not_there_is_refused(bandwidth: Path, cpu: str):
    for isa in ("mmx", "sve" if platform.machine() == "x86_64" else "avx2"):
        said = refusal([bandwidth, "--isa", isa, *arguments("read", cpu, 6400)])
        assert f"--isa {isa}: this CPU or program does not have it; it has " in said


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 has a set valgrind lacks")
def test_a_cpu_that_lacks_an_instruction_set_runs_the_others(bandwidth: Path, cpu: str):
    # valgrind's CPU has no AVX-512
    emulated = ["valgrind", "--tool=none", "-q", str(bandwidth)]
    words = arguments("read", cpu, 6400, "--max-seconds", "0.01")
    assert "--isa avx512: this CPU" in refusal([*emulated, "--isa", "avx512", *words])
    ran = run_valid([*emulated, *words])
    assert set(ran.ready["isa_trial"]) == {"avx2", "sse2"}


def test_without_non_temporal_stores_their_kernels_are_not_offered(cpu: str):
    binary = build("chaosity-bandwidth", "EXTRA=-DWITHOUT_NON_TEMPORAL")
    assert offered(binary) == list(ARRAYS)
    assert "triad_nt is not offered" in refusal([binary, *arguments("triad_nt", cpu, 6400)])


def test_the_sites_openmp_variables_change_nothing(bandwidth: Path, cpus: str):
    site = {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": "cores",
        "OMP_NUM_THREADS": "1",
        "OMP_THREAD_LIMIT": "1",
        "GOMP_CPU_AFFINITY": cpus.split(",")[-1],
    }
    command = [bandwidth, *arguments("triad", cpus, 1 << 20, "--max-seconds", "0.05")]
    ran = run_valid(command, env=os.environ | site)
    assert [thread["cpu"] for thread in ran.ready["threads"]] == [int(c) for c in cpus.split(",")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="mbind has another number")
def test_a_container_that_forbids_memory_policies_is_named(bandwidth: Path, cpu: str, root: Path):
    filtered = [sys.executable, root / "tests/support/denied_system_calls.py", "237"]
    command = [bandwidth, *arguments("copy", cpu, 1 << 20, "--memory-nodes", "0")]
    said = refusal([*filtered, *command])
    assert "the container forbids memory policies; add CAP_SYS_NICE" in said
