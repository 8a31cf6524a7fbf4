"""chaosity-opencl on the OpenCL devices of this machine: PoCL makes the processor a device."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from kernel_binary import Built, Checked, Start, last_events, next_event, refusal, run, waiting

from chaosity.runner.opencl_device_lookup import parse_clinfo

ELEMENTS = 1 << 20
SMALL = ["--elements", str(ELEMENTS), "--sample-seconds", "0.01", "--max-seconds", "0.1"]


@pytest.fixture(scope="module")
def device() -> dict:
    """The first device, as clinfo names it."""
    try:
        said = subprocess.run(["clinfo", "--raw"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("clinfo is not installed")
    devices = parse_clinfo(said.stdout)
    if not devices:
        pytest.skip("this machine has no OpenCL device")
    return dict(devices[0])


def test_samples_follow_one_another_and_every_element_is_right(opencl: Path, device: dict):
    ran = run([str(opencl), *SMALL])
    assert (ran.code, ran.stderr) == (0, "")
    assert (ran.ready["platform"], ran.ready["device"]) == (device["platform"], device["device"])
    assert ran.ready["compute_units"] == device["compute_units"]
    assert ran.ready["elements"] == ELEMENTS
    assert ran.ready["bytes_per_pass"] == 4 * 4 * ELEMENTS  # three matrices read, one written
    for former, sample in zip(ran.samples, ran.samples[1:], strict=False):
        assert sample["begin_ns"] == former["end_ns"]
    for sample in ran.samples:
        assert sample["bytes"] == ran.ready["passes_per_sample"] * ran.ready["bytes_per_pass"]
    moved = sum(sample["bytes"] for sample in ran.samples) / ran.ready["bytes_per_pass"]
    assert ran.done["passes"] > moved  # those before the first sample
    assert ran.done["valid"] is True
    assert ran.done["wrong_elements"] == 0


# The sums are checked after the last pass and the pass before it.
MUTANTS = {"every pass leaves out four elements": 1, "one pass leaves them out": 2}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_pass_that_leaves_elements_out_is_found(built: Built, device: dict, mutant: int):
    ran = run([str(built("chaosity-opencl", f"-DMUTANT={mutant}")), *SMALL])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert 4 <= ran.done["wrong_elements"] <= 8
    assert "must not be used" in ran.stderr


def test_a_pass_that_was_not_done_is_found(built: Built, device: dict):
    ran = run([str(built("chaosity-opencl", "-DMUTANT=3")), *SMALL])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert ran.done["wrong_elements"] >= ELEMENTS


def test_the_sums_fall_again_before_a_float_would_round_them(built: Built, device: dict):
    """With three passes up and three down, thousands of passes stay exact."""
    program = built("chaosity-opencl", "-DCYCLE=3")
    ran = run([str(program), "--elements", "4096", *SMALL[2:]])
    assert (ran.code, ran.done["valid"]) == (0, True)
    assert ran.done["passes"] > 6


def test_it_waits_at_the_barrier_and_stops_on_a_signal(opencl: Path, device: dict, start: Start):
    process, ready = waiting(start, [str(opencl), *SMALL[:4], "--max-seconds", "60"])
    assert ready["event"] == "ready"
    process.stdin.write("go\n")
    process.stdin.flush()
    assert next_event(process)["event"] == "sample"
    process.send_signal(signal.SIGTERM)
    *_, done = last_events(process)
    assert (done["stopped_by"], done["valid"]) == ("signal", True)
    assert process.returncode == 0


def test_the_end_of_input_at_the_barrier_is_no_measurement(opencl: Path, device: dict):
    ran = run([str(opencl), *SMALL, "--barrier"])
    assert (ran.code, ran.samples) == (0, [])
    assert (ran.done["valid"], ran.done["stopped_by"]) == (None, "end_of_input")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--platform", "250"], "--platform 250: this host has"),
        (["--device", "250"], "--device 250: the platform has"),
        (["--elements", "6"], "--elements takes a multiple of 4"),
        (["--elements", "0"], "--elements takes a multiple of 4"),
        (["--elements", str(1 << 48)], "the device has no memory for a matrix"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    opencl: Path, device: dict, options: list[str], reason: str
):
    assert reason in refusal([str(opencl), *options])


def test_a_host_without_a_driver_is_refused(opencl: Path, tmp_path: Path):
    none = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "OPENCL_VENDOR_PATH": str(tmp_path)}
    assert "this host has 0 OpenCL platforms" in refusal([str(opencl)], env=none)


def test_clean_under_the_sanitizers(memory_checked: Checked, device: dict):
    """Leaks are not searched, because the driver does not free all of its memory at the end."""
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    ran = run([*memory_checked("chaosity-opencl"), *SMALL], env=environment)
    assert (ran.code, ran.stderr) == (0, "")
