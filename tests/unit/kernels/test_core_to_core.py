"""Lines move between two CPUs, one at a time, and every move is counted and checked."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from kernel_binary import Built, refusal, run


@pytest.fixture
def pair(usable_cpus: list[int]) -> list[str]:
    """Two CPUs, as the options take them."""
    if len(usable_cpus) < 2:
        pytest.skip("this machine gives the tests one CPU only")
    return ["--cpu", str(usable_cpus[0]), "--responder", str(usable_cpus[1])]


def test_moves_are_blocks_times_their_length(core_to_core: Path, pair: list[str]):
    options = ["--max-seconds", "0.3", "--sample-seconds", "0.05"]
    ran = run([core_to_core, *pair, *options])
    assert (ran.code, ran.stderr) == (0, "")
    done = ran.done
    assert (done["valid"], done["stopped_by"]) == (True, "time")
    assert done["accesses_per_block"] % 2 == 0  # two moves a round trip
    merged = Counter()
    for sample in ran.samples:
        blocks = sum(sample["blocks"].values())
        assert sample["accesses"] == blocks * done["accesses_per_block"] > 0
        merged.update({float(key): count for key, count in sample["blocks"].items()})
    assert merged.total() == done["blocks"]
    assert sum(sample["accesses"] for sample in ran.samples) == done["accesses"]
    in_order = sorted(merged.elements())
    assert done["latency_ns"] == in_order[(len(in_order) - 1) // 2]
    assert 0 < done["timer_share"] < 0.01


def test_each_line_has_a_median_and_all_lines_have_deciles(core_to_core: Path, pair: list[str]):
    ran = run([core_to_core, *pair, "--max-seconds", "0.3"])
    [lines] = [event for event in ran.events if event["event"] == "lines"]
    medians = sorted(lines["latency_ns"])
    assert len(medians) == 32
    assert (lines["p10_ns"], lines["p90_ns"]) == (medians[3], medians[28])
    # Each line has as many blocks as any other, to within one.
    assert medians[0] <= ran.done["latency_ns"] <= medians[-1]


MUTANTS = {
    "a wrong answer": (1, "was not the next number"),
    "fewer moves than counted": (2, "moved less or more often than was counted"),
    "one line only": (3, "moved less or more often than was counted"),
}


@pytest.mark.parametrize(("mutant", "says"), MUTANTS.values(), ids=MUTANTS)
def test_wrong_moves_are_found_out(built: Built, pair: list[str], mutant: int, says: str):
    binary = built("chaosity-core-to-core", f"-DMUTANT={mutant}")
    ran = run([binary, *pair, "--max-seconds", "0.1"])
    assert ran.code == 1
    assert ran.done["valid"] is False
    assert says in ran.stderr
    assert "must not be used" in ran.stderr


def test_both_ways_are_measured(core_to_core: Path, pair: list[str]):
    backwards = ["--cpu", pair[3], "--responder", pair[1]]
    ran = run([core_to_core, *backwards, "--max-seconds", "0.05"])
    assert [thread["cpu"] for thread in ran.ready["threads"]] == [int(pair[3]), int(pair[1])]
    assert ran.done["valid"] is True


def test_a_cpu_does_not_answer_itself(core_to_core: Path, cpu: str):
    assert "must be two CPUs" in refusal([core_to_core, "--cpu", cpu, "--responder", cpu])


def test_a_responder_is_needed(core_to_core: Path, cpu: str):
    assert "--cpu and --responder are needed" in refusal([core_to_core, "--cpu", cpu])


def test_a_responder_outside_the_affinity_is_refused(core_to_core: Path, pair: list[str]):
    command = ["taskset", "-c", pair[1], core_to_core, *pair]
    assert f"this process may not run on CPU {pair[3]}" in refusal(command)
