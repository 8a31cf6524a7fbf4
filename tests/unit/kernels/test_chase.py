"""The chain is one random cycle over all lines, and its latencies are counted right."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_binary import build_driver, functions, run

KIB = 1024


@pytest.fixture(scope="module")
def chains() -> Path:
    """The driver that prints chains."""
    sources = ("latency/pointer_chase.c", "common/start_line_and_signals.c", "common/errors.c")
    return build_driver("chase_driver.c", *sources)


@pytest.fixture(scope="module")
def bins() -> Path:
    """The driver that prints bins of durations."""
    sources = ("latency/timed_blocks.c", "common/start_line_and_signals.c", "common/errors.c")
    return build_driver("blocks_driver.c", *sources)


def chains_of(
    driver: Path, lines: int, line_bytes: int, seed: int, seeds: int = 1, block_lines: int = 0
) -> list[tuple]:
    """For each seed what the driver prints: facts, one turn's lines, ends of walks."""
    command = [driver, *map(str, (lines, line_bytes, seed, seeds, block_lines))]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    groups = [line.split(":") for line in text.splitlines()]
    return [tuple([int(word) for word in group.split()] for group in three) for three in groups]


# around the batch of the shuffle and the unrolled part of the walk, and odd ones
@pytest.mark.parametrize("line_bytes", [16, 64, 128])
def test_one_turn_visits_each_line_once(chains: Path, line_bytes: int):
    for lines in (2, 3, 5, 63, 64, 65, 66, 127, 128, 129, 130, 1000, 20_011):
        for facts, turn, walks in chains_of(chains, lines, line_bytes, seed=1, seeds=5):
            assert facts == [lines, 1]
            assert turn[0] == 0
            assert sorted(turn) == list(range(lines))
            assert walks == [turn[steps % lines] for steps in range(200)]


@settings(deadline=None, max_examples=40)  # each example is a process
@given(lines=st.integers(2, 3000), block=st.integers(0, 400), seed=st.integers(0, 2**64 - 1))
def test_any_size_gives_one_cycle_that_finishes_each_block_before_the_next(
    chains: Path, lines: int, block: int, seed: int
):
    ((facts, turn, _),) = chains_of(chains, lines, 16, seed, block_lines=block)
    assert facts == [lines, 1]
    assert sorted(turn) == list(range(lines))
    if block == 0:
        return  # the whole chain is one block
    # The turn begins at the first line, which is the last one of its block.
    visited = [line // block for line in (*turn[1:], turn[0])]
    changes = sum(one != other for one, other in pairwise(visited))
    assert changes == -(-lines // block) - 1


def test_the_order_within_blocks_and_the_order_of_blocks_are_random(chains: Path):
    ((_, turn, _),) = chains_of(chains, 64_000, 16, seed=3, block_lines=640)
    order = [line // 640 for line in turn[1::640]]
    assert len(set(order)) == 100
    for sequence in (order, [line % 640 for line in turn[1:641]]):
        assert sum(b - a == 1 for a, b in pairwise(sequence)) < 8  # about 1 is expected
    ((_, turn, _),) = chains_of(chains, 10_000, 64, seed=1)
    assert sum(abs(b - a) <= 2 for a, b in pairwise(turn)) < 20  # about 4 are expected


def test_the_same_seed_gives_the_same_cycle_and_another_seed_another(chains: Path):
    turns = [tuple(turn) for _, turn, _ in chains_of(chains, 1000, 64, seed=0, seeds=200)]
    assert len(set(turns)) == 200
    for block_lines in (0, 4000):  # a block of all lines is the chain without blocks
        ((_, again, _),) = chains_of(chains, 1000, 64, seed=7, block_lines=block_lines)
        assert tuple(again) == turns[7]


def test_all_cycles_are_equally_likely(chains: Path):
    turns = Counter(tuple(turn) for _, turn, _ in chains_of(chains, 5, 16, seed=0, seeds=6000))
    assert len(turns) == 24  # (5 - 1)!
    chi_squared = sum((count - 250) ** 2 / 250 for count in turns.values())
    assert chi_squared < 49.7  # 23 degrees of freedom: one in a thousand; the seeds are fixed


def binned(driver: Path, durations: list[int]) -> tuple[list[float], float, dict[float, int]]:
    text = "\n".join(map(str, durations))
    printed = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    *centres, median, sample = printed.stdout.splitlines()
    keys = json.loads(sample)
    return [float(one) for one in centres], float(median), {float(k): v for k, v in keys.items()}


@settings(deadline=None, max_examples=25)  # each example is a process
@given(durations=st.lists(st.integers(0, 2**40 - 1), min_size=1, max_size=300))
def test_bins_are_narrow_and_lose_nothing(bins: Path, durations: list[int]):
    centres, median, sample = binned(bins, durations)
    for duration, centre in zip(durations, centres, strict=True):
        assert abs(centre - duration) <= duration / 1024  # half of a bin of 0.2 %
        assert centre == duration or duration >= 1024
    assert sum(sample.values()) == len(durations)
    assert median == sorted(centres)[(len(centres) - 1) // 2]
    assert list(sample) == sorted(sample)
    counts = Counter(centre / 4 for centre in centres)
    assert list(sample.values()) == [counts[centre] for centre in sorted(counts)]
    assert list(sample) == pytest.approx(sorted(counts), rel=1e-6)


def test_longer_than_any_bin_counts_in_the_last(bins: Path):
    centres, _, sample = binned(bins, [2**40 - 1, 2**50, 2**63])
    assert len(set(centres)) == 1
    assert list(sample.values()) == [3]


def test_blocks_become_longer_if_accesses_become_faster():
    # As when another process leaves the core after the length was chosen: the timer had 1.2 % of
    # the blocks of a chase whose length was chosen beside one.
    sources = ("latency/timed_blocks.c", "common/start_line_and_signals.c", "common/errors.c")
    driver = build_driver("lengths_driver.c", *sources)
    text = subprocess.run([driver], capture_output=True, text=True, check=True).stdout
    *lines, forgotten = map(json.loads, text.splitlines())
    done, samples = lines[-1], lines[:-1]
    assert 0 < done["timer_share"] <= 0.0051  # a block is timed with its own readings
    assert forgotten > 0
    assert sum(sample["accesses"] for sample in samples) == done["accesses"]
    assert done["accesses"] == done["blocks"] * done["accesses_per_block"]


def test_ready_says_what_is_chased(latency: Path, cpu: str):
    options = ["--line-bytes", "128", "--seed", "18446744073709551615", "--max-seconds", "0.01"]
    command = [latency, "--cpu", cpu, "--bytes", "65536", *options]
    ran = run([*command, "--block-bytes", "4096"])
    wanted = {"bytes": 65536, "line_bytes": 128, "lines": 512, "seed": 2**64 - 1}
    assert {key: ran.ready[key] for key in wanted} == wanted
    assert (ran.ready["block_bytes"], ran.done["valid"]) == (4096, True)
    assert run(command).ready["block_bytes"] == 0


def test_the_line_and_the_warm_up_are_those_of_the_cpu(latency: Path, cpu: str):
    caches = Path(f"/sys/devices/system/cpu/cpu{cpu}/cache")
    if not (caches / "index0" / "coherency_line_size").exists():
        pytest.skip("this kernel does not know the caches")
    command = [latency, "--cpu", cpu, "--max-seconds", "0.01", "--bytes"]
    ready = run([*command, "4096"]).ready
    line_bytes = int((caches / "index0" / "coherency_line_size").read_text())
    assert (ready["line_bytes"], ready["warmup_bytes"]) == (line_bytes, 4096)
    sizes = [path.read_text() for path in caches.glob("index*/size")]
    largest = max(int(size.strip().removesuffix("K")) * KIB for size in sizes)
    if largest <= 512 * KIB**2:
        ready = run([*command, str(2 * largest)]).ready
        assert ready["warmup_bytes"] == largest


def test_the_loop_is_loads_and_little_else(latency: Path):
    body = functions(latency)["chase_walk"]
    if not re.search(r"%r", body):
        pytest.skip("not x86-64")
    instructions = [line.split("\t")[1].split()[0] for line in body.splitlines() if "\t" in line]
    loads = re.findall(r"mov +\(%r", body)
    assert len(loads) >= 64
    assert len(instructions) < len(loads) + 30
