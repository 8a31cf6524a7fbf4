"""The validation can fail, and the program is clean under the sanitizers."""

from __future__ import annotations

import pytest
from kernel_binary import KERNELS, Built, Checked, arguments, run

MUTANTS = {
    "every pass leaves out the last cache line": 1,
    "one pass leaves out the last cache line": 2,
    "one pass is not done": 3,
    "one element is off by the last bit": 4,
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_kernel_that_is_wrong_is_found_out(built: Built, cpus: str, mutant: int):
    binary = built("chaosity-bandwidth", f"-DMUTANT={mutant}")
    options = ["--max-seconds", "0.02", "--warmup-passes", "9"]  # the mistakes are in pass 3
    for kernel in KERNELS:
        ran = run([binary, *arguments(kernel, cpus, 64 * 1001, *options)])
        assert ran.code == 1, kernel
        assert ran.done["valid"] is False
        assert ran.done["max_relative_error"] > 0
        assert "must not be used" in ran.stderr


def run_clean(checked: Checked, cpus: str, kernels: list[str]) -> None:
    for kernel in kernels:
        for pages in ("base", "thp"):
            options = ["--max-seconds", "0.02", "--barrier", "--pages", pages]
            words = arguments(kernel, cpus, 64 * 1001, *options)
            ran = run([*checked("chaosity-bandwidth"), *words], stdin=None, input="go\n")
            if pages == "thp" and ran.code == 2:
                continue  # this machine has none; what it says then is tested elsewhere
            assert (ran.code, ran.stderr) == (0, ""), (kernel, pages)


@pytest.mark.thorough
def test_clean_under_address_and_undefined_behaviour_sanitizer(memory_checked: Checked, cpus: str):
    run_clean(memory_checked, cpus, KERNELS)


@pytest.mark.thorough
def test_clean_under_thread_sanitizer(threads_checked: Checked, cpus: str):
    # what threads share is the same for all
    run_clean(threads_checked, cpus, ["read", "triad_nt"])
