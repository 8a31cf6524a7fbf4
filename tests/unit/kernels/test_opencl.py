"""chaosity-opencl on the OpenCL devices of this machine: PoCL makes the processor a device.

A stand-in for a vendor's driver (opencl_driver.c) adds GPUs in PCI slots, which can be listed only,
and a second loader (opencl_reversed_loader.c) lists the platforms in the opposite order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_binary import MEMORY_CHECKED, build, make, refusal, run_valid

from chaosity.runner import devices_of_point

HERE = Path(__file__).parent
ELEMENTS = 1 << 20
SMALL = ["--elements", str(ELEMENTS), "--sample-seconds", "0.01", "--max-seconds", "0.1"]


def list_devices(opencl: Path, environment: dict[str, str] | None = None) -> dict:
    listed = subprocess.run(
        [opencl, "--list"], env=environment, check=True, capture_output=True, timeout=60
    )
    return json.loads(listed.stdout)


@pytest.fixture(scope="module")
def device(opencl: Path) -> dict:
    """The first device of this machine."""
    devices = list_devices(opencl)["devices"]
    if not devices:
        pytest.skip("this machine has no OpenCL device")
    return devices[0]


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables with which the loader finds also the stand-in's GPUs."""
    vendors = tmp_path_factory.mktemp("vendors")
    driver = vendors / "driver.so"
    make("gcc", "-shared", "-fPIC", "-o", driver, HERE / "opencl_driver.c")
    (vendors / "driver.icd").write_text(f"{driver}\n")
    for file in Path("/etc/OpenCL/vendors").glob("*.icd"):
        (vendors / file.name).write_text(file.read_text())
    return {**os.environ, "OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}


@pytest.fixture(scope="module")
def second_loader(
    opencl: Path, gpus: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Environment variables with which programs find another loader first, such as CUDA's."""
    folder = tmp_path_factory.mktemp("loader")
    first = Path(list_devices(opencl)["loader"]).read_bytes()
    # With another name of the same length, both can be loaded into one program.
    renamed = folder / "libOpenCX.so.1"
    renamed.write_bytes(first.replace(b"libOpenCL.so.1\0", b"libOpenCX.so.1\0"))
    options = ("-Wl,-soname,libOpenCL.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed")
    source = HERE / "opencl_reversed_loader.c"
    make("gcc", "-shared", "-fPIC", "-o", folder / "libOpenCL.so.1", source, *options, renamed)
    return {**gpus, "LD_LIBRARY_PATH": str(folder)}


def test_the_list_has_the_slots_and_numbers_of_equal_devices(opencl: Path, gpus: dict[str, str]):
    found = [one for one in list_devices(opencl, gpus)["devices"] if one["platform"] == "Stand-in"]
    assert [(one["device"], one["twin"], one["pci"]) for one in found] == [
        ('Model "X"', 0, "0000:c1:01.0"),  # NVIDIA's keys
        ('Model "X"', 1, "0000:41:00.3"),  # AMD's
        ("Model Y?", 0, "0001:07:00.2"),  # Khronos'; a byte of the name is no UTF-8
    ]
    for one in found:
        assert (one["type"], one["compute_units"], one["unified_memory"]) == ("gpu", 132, False)
        assert one["driver"] is one["uuid"] is one["shared_virtual_memory"] is None


@pytest.mark.parametrize(
    ("options", "bus"),
    [
        (["--platform", "Stand-in"], "c1"),
        (["--slot", "0000:41:00.3"], "41"),
        (["--device", 'Model "X"', "--twin", "1"], "41"),
        (["--platform", "Stand-in", "--twin", "2"], "07"),
    ],
)
def test_a_device_is_chosen_by_name_and_slot_with_any_loader(
    opencl: Path,
    gpus: dict[str, str],
    second_loader: dict[str, str],
    options: list[str],
    bus: str,
):
    for environment in (gpus, second_loader):
        said = subprocess.run([opencl, *options], env=environment, capture_output=True, text=True)
        assert f"opened bus {bus}\n" in said.stderr
        assert said.returncode == 2


# A tool that takes the number of a platform and prints its name, as clpeak does.
NUMBER_TO_NAME = """
import ctypes, sys
opencl = ctypes.CDLL("libOpenCL.so.1")
found, name = (ctypes.c_void_p * 16)(), ctypes.create_string_buffer(100)
opencl.clGetPlatformIDs(16, found, None)
opencl.clGetPlatformInfo(ctypes.c_void_p(found[int(sys.argv[1])]), 0x902, 100, name, None)
print(name.value.decode())
"""


def test_a_tool_that_takes_numbers_gets_those_of_its_own_loader(
    opencl: Path, device: dict, gpus: dict[str, str], second_loader: dict[str, str], monkeypatch
):
    for name, text in {**gpus, "PATH": f"{opencl.parent}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, text)
    command = [sys.executable, "-c", NUMBER_TO_NAME, devices_of_point.PLATFORM_NUMBER]
    wanted = {"name": "opencl0", **device}
    load, [check] = devices_of_point.fill_in_device_numbers(
        {"command": command, "environment": {"A": "1"}, "target": {"device": wanted}}
    )
    assert check["passed"]
    assert load["environment"]["A"] == "1"
    for environment in (gpus, second_loader):
        own = {**environment, **load["environment"]}
        said = subprocess.run(load["command"], env=own, capture_output=True, text=True)
        assert said.stdout.strip() == device["platform"]
    without = subprocess.run(load["command"], env=second_loader, capture_output=True, text=True)
    assert without.stdout.strip() == "Stand-in"  # the numbers of one loader are wrong for the other


def test_samples_count_passes_and_every_element_is_right(opencl: Path, device: dict):
    ran = run_valid([str(opencl), *SMALL])
    assert (ran.ready["platform"], ran.ready["device"]) == (device["platform"], device["device"])
    assert ran.ready["compute_units"] == device["compute_units"]
    assert ran.ready["elements"] == ELEMENTS
    assert ran.ready["bytes_per_pass"] == 4 * 4 * ELEMENTS  # three matrices read, one written
    for sample in ran.samples:
        assert sample["bytes"] == ran.ready["passes_per_sample"] * ran.ready["bytes_per_pass"]
    moved = sum(sample["bytes"] for sample in ran.samples) / ran.ready["bytes_per_pass"]
    assert ran.done["passes"] > moved  # those before the first sample


def test_the_sums_fall_again_before_a_float_would_round_them(device: dict):
    """With three passes up and three down, thousands of passes stay exact."""
    program = build("chaosity-opencl", "EXTRA=-DCYCLE=3")
    ran = run_valid([str(program), "--elements", "4096", *SMALL[2:]])
    assert ran.done["passes"] > 6


def test_a_host_without_a_driver_is_refused(opencl: Path, tmp_path: Path):
    none = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "OPENCL_VENDOR_PATH": str(tmp_path)}
    assert "this host has no OpenCL device" in refusal([str(opencl)], env=none)
    assert list_devices(opencl, none)["devices"] == []


def test_the_list_is_clean_under_the_sanitizers(gpus: dict[str, str]):
    program = build("chaosity-opencl", MEMORY_CHECKED)
    environment = {**gpus, "ASAN_OPTIONS": "detect_leaks=0"}
    assert len(list_devices(program, environment)["devices"]) >= 3
    assert "this host has" in refusal([program, "--slot", "none"], env=environment)
