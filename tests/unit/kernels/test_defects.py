"""Each program finds out that it computed something wrong: it is built with defects on purpose."""

from __future__ import annotations

import os

import pytest
from every_program import (
    BANDWIDTH,
    COPIES,
    CORE_TO_CORE,
    LATENCY,
    MIB,
    OPENCL,
    PATHS,
    SUM,
    TASKS,
    TRAFFIC,
    WORKLOAD,
    Program,
)
from kernel_binary import ERRORS, FOR_TESTS, KERNELS, Run, arguments, build, run
from test_tasks import PROGRAMS
from test_traffic import MIXES
from test_workload import KERNELS as WORKLOADS

PASSES = "--max-seconds 0.02 --warmup-passes 9"  # the defects are in pass 3
STREAMED = [f"{PASSES} --kernel {kernel} --array-bytes {64 * 1001}" for kernel in KERNELS]
WORKED = [f"{PASSES} --kernel {kernel} --bytes {64 * 1001}" for kernel in WORKLOADS]
RUN = [f"--runtime vanilla --program {name} --max-seconds 0.05" for name in PROGRAMS]
COPIED = [
    f"--direction {way} --max-seconds 0.1" for way in ("to_device", "from_device", "both_ways")
]
CHASED = ["--bytes 65536 --max-seconds 0.02"]
UNWALKED = [f"--warmup-bytes 64 {CHASED[0]}"]
MOVED = ["--max-seconds 0.05"]
WRONG, TIMES = "computed wrong values", "moved less or more often than was counted"
# Of defects in streams: 1 and 2 leave out an end in every pass or in one, 3 leaves out a pass, 4
# has an element that is off by the last bit. Others are explained beside MUTANT in the sources.
OF_STREAMS = (1, 2, 3, 4)
# Numbers of defects, ways in which the program is run, words of its message.
DEFECTS: dict[Program, list[tuple[int, list[str], str]]] = {
    # Each kernel has two of the defects, so that no kernel's check is left out.
    BANDWIDTH: [(number, STREAMED[number % 2 :: 2], "") for number in OF_STREAMS],
    WORKLOAD: [(number, WORKED, WRONG) for number in OF_STREAMS],
    PATHS: [(number, MOVED, "") for number in OF_STREAMS],
    LATENCY: [
        (1, CHASED, "not one cycle"),
        (2, CHASED, "not one cycle"),
        (2, UNWALKED, "does not link every line once"),
        (3, CHASED, "did not take as many steps"),
    ],
    CORE_TO_CORE: [(1, MOVED, "was not the next number"), (2, MOVED, TIMES), (3, MOVED, TIMES)],
    SUM: [(1, ["--array-bytes 6400 --max-seconds 0.05"], "")],
    TASKS: [(1, RUN, "wrong values")],
    # The sums are checked after the last pass and the pass before it.
    OPENCL: [(1, MOVED, ""), (2, MOVED, ""), (3, MOVED, "")],
    COPIES: [(1, COPIED, ""), (2, COPIED, "")],
}


def run_with(defect: int, program: Program, words: list[str]) -> Run:
    command = [build(program.name, FOR_TESTS), *words]
    return run(command, env=os.environ | {"CHOSEN_DEFECT": str(defect)})


def require_found(ran: Run) -> None:
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert "must not be used" in ran.stderr


@pytest.mark.parametrize("program", DEFECTS, ids=lambda program: program.name)
def test_defects_are_found_out(options: list[str], program: Program):
    assert run_with(0, program, [*options, *DEFECTS[program][0][1][0].split()]).code == 0
    for number, ways, words in DEFECTS[program]:
        for way in ways:
            ran = run_with(number, program, [*options, *way.split()])
            require_found(ran)
            assert words in ran.stderr, way
            assert program is SUM or all(ran.done[key] > 0 for key in ERRORS if key in ran.done)
            if program is OPENCL:
                elements = ran.done["wrong_elements"]
                assert elements >= MIB if number == 3 else 4 <= elements <= 8
            if program is COPIES:
                assert ran.done["wrong_words"] >= 2


def shorter_than_a_pass(defect: int, words: list[str]) -> Run:
    """A run in which no thread came to a chunk twice, so that nothing closes a gap."""
    while True:  # a thread that waits for its processor lets the others go on for milliseconds
        ran = run_with(defect, TRAFFIC, [*words, "--peak-seconds=1e-6", "--max-seconds=1e-6"])
        chunks = ran.done["chunks"] + ran.done["warmup_chunks"]
        chunks_a_pass = ran.ready["bytes_per_pass"] / ran.ready["chunk_bytes"]
        if chunks < chunks_a_pass / len(ran.ready["threads"]):
            return ran


@pytest.mark.parametrize("program", [TRAFFIC], ids=["chaosity-traffic"])
def test_a_chunk_that_is_wrong_is_found_out(options: list[str], program: Program):
    for number in OF_STREAMS:
        for kernel in [*MIXES][number % 2 :: 2]:
            large = [*options, "--kernel", kernel, "--array-bytes", str(8 * MIB)]
            ran = shorter_than_a_pass(number, large)
            require_found(ran)
            assert ran.done["max_relative_error"] > 0


@pytest.mark.parametrize("kernel", ["read", "fill", "copy"])
def test_a_chunk_left_out_shows_though_later_passes_do_it(cpu: str, kernel: str):
    options = ["--peak-seconds", "0.01", "--max-seconds", "0.03"]
    ran = run_with(3, TRAFFIC, arguments(kernel, cpu, MIB, *options))
    require_found(ran)
    assert ran.done["bytes"] > 4 * MIB
