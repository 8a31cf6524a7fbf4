"""The loops of AArch64 compute what they say, in programs that QEMU emulates on another machine."""

from __future__ import annotations

import platform
import shutil

import pytest
from kernel_binary import KERNELS, arguments, build, refusal, run_valid

COMPILER = "aarch64-linux-gnu-gcc"
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(platform.machine() == "aarch64", reason="other tests run these loops here"),
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or shutil.which("qemu-aarch64") is None,
        reason="no cross compiler or no QEMU for AArch64",
    ),
]
# Processors and their sets; with SVE in vectors of 16 and 64 bytes, as processors have them.
SVE = ("sve", "neon")
PROCESSORS = {
    "cortex-a72": ("neon",),
    "max,sve128=on,sve256=off,sve512=off": SVE,
    "max,sve512=on": SVE,
}


def emulated(processor: str, program: str) -> list[str]:
    path = build(f"chaosity-{program}", f"CC={COMPILER}", "CXX=false")
    return ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", processor, str(path)]


@pytest.mark.parametrize("processor", PROCESSORS)
def test_each_instruction_set_validates(cpus: str, processor: str):
    command = emulated(processor, "bandwidth")
    said = refusal([*command, "--isa", "avx2"])
    assert said.endswith(f"it has {', '.join(PROCESSORS[processor])}")
    for isa in PROCESSORS[processor]:
        for kernel in KERNELS:
            options = ["--isa", isa, "--max-seconds", "0.001"]
            ran = run_valid([*command, *arguments(kernel, cpus, 64 * 1001, *options)])
            assert ran.ready["isa"] == isa


@pytest.mark.parametrize("program", ["bandwidth", "traffic"])
def test_one_is_chosen_in_a_trial_and_recorded(cpu: str, program: str):
    command = emulated("max", program)
    ran = run_valid([*command, *arguments("add_nt", cpu, 64000, "--max-seconds", "0.2")])
    assert set(ran.ready["isa_trial"]) == set(SVE)
    assert ran.ready["isa"] in SVE


def test_a_chase_and_a_workload_are_right(cpu: str):
    for program, options in {
        "latency": ["--cpu", cpu, "--bytes", "65536"],
        "workload": ["--kernel", "stencil", "--cpus", cpu, "--bytes", "65536"],
    }.items():
        command = emulated("max", program)
        ran = run_valid([*command, *options, "--max-seconds", "0.1"])
        assert "isa" not in ran.ready
