"""Each kernel computes what it says, moves the bytes it says, with the stores it says."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest
from kernel_binary import ARRAYS, KERNELS, arguments, build, refusal, run

# odd numbers of cache lines: neither the unrolled loops nor the parts of two threads come out even
SIZES = [128, 64 * 37, 64 * 1001]


def offered(binary: Path) -> list[str]:
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


@pytest.mark.parametrize("array_bytes", SIZES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_runs_and_validates(bandwidth: Path, kernel: str, cpus: str, array_bytes: int):
    if kernel not in offered(bandwidth):
        pytest.skip(f"{kernel} is not offered on {platform.machine()}")
    options = ["--max-seconds", "0.02", "--sample-seconds", "0.005"]
    ran = run([bandwidth, *arguments(kernel, cpus, array_bytes, *options)])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
    assert ran.done["max_relative_error"] == 0


@pytest.mark.parametrize("kernel", ARRAYS)
def test_bytes_are_passes_times_arrays(bandwidth: Path, kernel: str, cpus: str):
    array_bytes = 64 * 1000
    ran = run([bandwidth, *arguments(kernel, cpus, array_bytes, "--max-seconds", "0.05")])
    bytes_per_pass = ARRAYS[kernel] * array_bytes
    assert ran.ready["arrays"] == ARRAYS[kernel]
    assert ran.ready["bytes_per_pass"] == bytes_per_pass
    assert sum(sample["bytes"] for sample in ran.samples) == ran.done["passes"] * bytes_per_pass
    assert all(sample["bytes"] % bytes_per_pass == 0 for sample in ran.samples)


def functions(binary: Path) -> dict[str, str]:
    """The disassembly of each function."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", binary], capture_output=True, text=True, check=True
    ).stdout
    parts = re.split(r"^[0-9a-f]+ <([^>]+)>:$", listing, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_ordinary_stores_are_ordinary_and_the_others_are_not(bandwidth: Path):
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        pytest.skip(f"no non-temporal stores on {machine}")
    non_temporal = r"\bv?movnt\w+" if machine == "x86_64" else r"\bstnp\b"
    code = functions(bandwidth)
    for kernel in ARRAYS:
        body = code["read_sum" if kernel == "read" else kernel]
        assert re.search(r"\bcall|\bbl\b", body) is None, f"{kernel} calls a function"
    using = {name for name, body in code.items() if re.search(non_temporal, body)}
    assert using == {kernel for kernel in KERNELS if kernel.endswith("_nt")}


def test_without_non_temporal_stores_their_kernels_are_not_offered(tmp_path: Path, cpu: str):
    binary = build(tmp_path, "chaosity-bandwidth", "EXTRA=-DWITHOUT_NON_TEMPORAL")
    assert offered(binary) == list(ARRAYS)
    assert "triad_nt is not offered" in refusal([binary, *arguments("triad_nt", cpu, 6400)])


def test_ready_line_says_what_was_built(bandwidth: Path, cpu: str):
    ready = run([bandwidth, *arguments("copy", cpu, 6400, "--max-seconds", "0.01")]).ready
    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{12}", ready["version"])
    assert ready["isa"] in ("avx512", "avx2", "sse2", "neon", "generic")
    assert ready["compiler"]


def test_help_has_an_example_that_names_only_options_there_are(bandwidth: Path):
    text = subprocess.run([bandwidth, "--help"], capture_output=True, text=True, check=True).stdout
    described, example = text.split("Example:")
    for option in re.findall(r"--[a-z-]+", example):
        assert f"  {option} " in described
