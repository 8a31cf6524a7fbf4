"""The validation can fail, and the program is clean under the sanitizers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kernel_binary import KERNELS, arguments, build, run

pytestmark = pytest.mark.real

MUTANTS = {
    "every pass leaves out the last cache line": 1,
    "one pass leaves out the last cache line": 2,
    "one pass is not done": 3,
    "one element is off by the last bit": 4,
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_kernel_that_is_wrong_is_found_out(tmp_path: Path, cpus: str, mutant: int):
    binary = build(tmp_path, f"EXTRA=-DMUTANT={mutant}")
    options = ["--max-seconds", "0.02", "--warmup-passes", "9"]  # the mistakes are in pass 3
    for kernel in KERNELS:
        ran = run([binary, *arguments(kernel, cpus, 64 * 1001, *options)])
        assert ran.code == 1, kernel
        assert ran.done["valid"] is False
        assert ran.done["max_relative_error"] > 0
        assert "must not be used" in ran.stderr


def run_clean(binary: Path, cpus: str, kernels: list[str], prefix: tuple[str, ...] = ()) -> None:
    for kernel in kernels:
        for pages in ("base", "thp"):
            options = ["--max-seconds", "0.02", "--barrier", "--pages", pages]
            command = [*prefix, str(binary), *arguments(kernel, cpus, 64 * 1001, *options)]
            ran = run(command, stdin=None, input="go\n")
            if pages == "thp" and ran.code == 2:
                continue  # this machine has none; what it says then is tested elsewhere
            assert (ran.code, ran.stderr) == (0, ""), (kernel, pages)


def test_clean_under_address_and_undefined_behaviour_sanitizer(tmp_path: Path, cpus: str):
    flags = "-g -fsanitize=address,undefined -fno-sanitize-recover=all"
    run_clean(build(tmp_path, f"EXTRA={flags}"), cpus, KERNELS)


def test_clean_under_thread_sanitizer(tmp_path: Path, cpus: str):
    # without random addresses: GCC 12's sanitizer cannot place its shadow memory with the wide
    # randomisation of newer kernels
    setarch = shutil.which("setarch")
    prefix = (setarch, "-R") if setarch else ()
    binary = build(tmp_path, "EXTRA=-g -fsanitize=thread")
    tried = run([*prefix, str(binary), *arguments("copy", cpus, 6400, "--max-seconds", "0.01")])
    if "unexpected memory mapping" in tried.stderr or "Operation not permitted" in tried.stderr:
        pytest.skip("the thread sanitizer cannot run here")
    run_clean(binary, cpus, ["read", "triad_nt"], prefix)  # what threads share is the same for all
