"""Each program finds out that it computed something wrong: it is built with defects on purpose."""

from __future__ import annotations

from pathlib import Path

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
from kernel_binary import KERNELS, Built, Run, arguments, run
from test_tasks import PROGRAMS
from test_traffic import MIXES
from test_workload import KERNELS as WORKLOADS

PASSES = "--max-seconds 0.02 --warmup-passes 9 "  # the defects are in pass 3
TURN = "--turn-seconds 0.0005 "
NO_TURN = "--warmup-bytes 64 "
STREAMED = [f"{PASSES}--kernel {kernel} --array-bytes {64 * 1001}" for kernel in KERNELS]
WORKED = [f"{PASSES}--kernel {kernel} --bytes {64 * 1001}" for kernel in WORKLOADS]
RUN = [f"--runtime vanilla --program {name} --max-seconds 0.05" for name in PROGRAMS]
COPIED = [
    f"--direction {way} --max-seconds 0.1" for way in ("to_device", "from_device", "both_ways")
]
CHASED = ["--bytes 65536 --max-seconds 0.02"]
MOVED = ["--max-seconds 0.1"]

# Number of the defect, what it is, ways in which the program is run, words of its message.
DEFECTS: dict[Program, list[tuple[int, str, list[str], str]]] = {
    BANDWIDTH: [
        (1, "every pass leaves out the last cache line", STREAMED, ""),
        (2, "one pass leaves out the last cache line", STREAMED, ""),
        (3, "one pass is not done", STREAMED, ""),
        (4, "one element is off by the last bit", STREAMED, ""),
    ],
    WORKLOAD: [
        (1, "every pass leaves out an end", WORKED, "computed wrong values"),
        (2, "one pass leaves out an end", WORKED, "computed wrong values"),
        (3, "one pass is not done", WORKED, "computed wrong values"),
        (4, "one element is off by the last bit", WORKED, "computed wrong values"),
    ],
    PATHS: [
        (1, "every chunk leaves out an end", MOVED, ""),
        (2, "one chunk leaves out an end", MOVED, ""),
        (3, "one chunk is not read", MOVED, ""),
        (4, "one element is off by the last bit", MOVED, ""),
    ],
    LATENCY: [
        (1, "several cycles", CHASED, "not one cycle"),
        (2, "a line is left out", CHASED, "not one cycle"),
        (2, "and no turn is walked", [NO_TURN + CHASED[0]], "does not link every line once"),
        (3, "fewer steps than counted", CHASED, "did not take as many steps"),
    ],
    CORE_TO_CORE: [
        (1, "a wrong answer", MOVED, "was not the next number"),
        (2, "fewer moves than counted", MOVED, "moved less or more often than was counted"),
        (3, "one line only", MOVED, "moved less or more often than was counted"),
    ],
    SUM: [(1, "leaves out a line", ["--array-bytes 6400 --max-seconds 0.05"], "")],
    TASKS: [(1, "leaves out an end", RUN, "wrong values")],
    OPENCL: [  # the sums are checked after the last pass and the pass before it
        (1, "every pass leaves out four elements", MOVED, ""),
        (2, "one pass leaves them out", MOVED, ""),
        (3, "one pass is not done", MOVED, ""),
    ],
    COPIES: [
        (1, "every copy leaves out a line", COPIED, ""),
        (2, "later copies have one line", COPIED, ""),
    ],
}
EACH = [
    pytest.param(program, *row, id=f"{program.name}: {row[1]}")
    for program, rows in DEFECTS.items()
    for row in rows
]
ERRORS = ("max_relative_error", "wrong", "wrong_words", "wrong_elements")  # keys of the last line


def require_found(ran: Run) -> None:
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert "must not be used" in ran.stderr


@pytest.mark.parametrize(("program", "number", "defect", "ways", "words"), EACH)
def test_a_defect_is_found_out(
    built: Built,
    options: list[str],
    program: Program,
    number: int,
    defect: str,
    ways: list[str],
    words: str,
):
    binary = built(program.name, f"-DMUTANT={number}")
    for way in ways:
        ran = run([str(binary), *options, *way.split()])
        require_found(ran)
        assert words in ran.stderr, way
        assert program is SUM or all(ran.done[key] > 0 for key in ERRORS if key in ran.done)
        if program is OPENCL:
            elements = ran.done["wrong_elements"]
            assert elements >= MIB if number == 3 else 4 <= elements <= 8
        if program is COPIES:
            assert ran.done["wrong_words"] >= 2


def shorter_than_a_pass(binary: Path, options: list[str]) -> Run:
    """A run in which no thread came to a chunk twice, so that nothing closes a gap."""
    while True:  # a thread that waits for its processor lets the others go on for milliseconds
        ran = run([str(binary), *options, "--peak-seconds", "1e-6", "--max-seconds", "1e-6"])
        chunks = ran.done["chunks"] + ran.done["warmup_chunks"]
        chunks_a_pass = ran.ready["bytes_per_pass"] / ran.ready["chunk_bytes"]
        if chunks < chunks_a_pass / len(ran.ready["threads"]):
            return ran


TRAFFIC_DEFECTS = {
    "every chunk leaves out its last cache line": 1,
    "one chunk leaves out its last cache line": 2,
    "one chunk is not done": 3,
    "one element is off by the last bit": 4,
}


@pytest.mark.parametrize("program", [TRAFFIC], ids=["chaosity-traffic"])
@pytest.mark.parametrize("number", TRAFFIC_DEFECTS.values(), ids=TRAFFIC_DEFECTS)
def test_a_chunk_that_is_wrong_is_found_out(
    built: Built, options: list[str], program: Program, number: int
):
    binary = built(program.name, f"-DMUTANT={number}")
    for kernel in MIXES:
        large = [*options, "--kernel", kernel, "--array-bytes", str(16 * MIB)]
        ran = shorter_than_a_pass(binary, large)
        require_found(ran)
        assert ran.done["max_relative_error"] > 0


@pytest.mark.parametrize("kernel", ["read", "fill", "copy"])
def test_a_chunk_left_out_shows_though_later_passes_do_it(built: Built, cpu: str, kernel: str):
    binary = built(TRAFFIC.name, "-DMUTANT=3")
    options = ["--peak-seconds", "0.01", "--max-seconds", "0.03"]
    ran = run([str(binary), *arguments(kernel, cpu, MIB, *options)])
    require_found(ran)
    assert ran.done["bytes"] > 4 * MIB
