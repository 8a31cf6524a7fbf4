"""The chain is one random cycle over all lines, and its latencies are counted right."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_binary import Built, build_driver, refusal, run

HERE = Path(__file__).resolve().parent
KIB = 1024


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver that prints chains."""
    folder = tmp_path_factory.mktemp("chains")
    sources = ("latency/pointer_chase.c", "common/start_line_and_signals.c", "common/errors.c")
    return build_driver(folder, HERE / "chase_driver.c", *sources)


@pytest.fixture(scope="module")
def bins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver that prints bins of durations."""
    folder = tmp_path_factory.mktemp("bins")
    sources = ("latency/timed_blocks.c", "common/start_line_and_signals.c", "common/errors.c")
    return build_driver(folder, HERE / "blocks_driver.c", *sources)


def chains_of(
    driver: Path, lines: int, line_bytes: int, seed: int, seeds: int = 1, block_lines: int = 0
) -> list[tuple]:
    """For each seed what the driver prints: facts, one turn's lines, ends of walks."""
    command = [driver, *map(str, (lines, line_bytes, seed, seeds, block_lines))]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    groups = [line.split(":") for line in text.splitlines()]
    return [tuple([int(word) for word in group.split()] for group in three) for three in groups]


# around the batch of the shuffle and the unrolled part of the walk, and odd ones
@pytest.mark.parametrize("lines", [2, 3, 5, 63, 64, 65, 66, 127, 128, 129, 130, 1000, 100_003])
@pytest.mark.parametrize("line_bytes", [16, 64, 128])
def test_one_turn_visits_each_line_once(chains: Path, lines: int, line_bytes: int):
    for facts, turn, walks in chains_of(chains, lines, line_bytes, seed=1, seeds=5):
        assert facts == [lines, 1]
        assert turn[0] == 0
        assert sorted(turn) == list(range(lines))
        assert walks == [turn[steps % lines] for steps in range(200)]


@settings(deadline=None)  # each example is a process
@given(lines=st.integers(2, 5000), seed=st.integers(0, 2**64 - 1))
def test_any_size_and_any_seed_give_one_cycle(chains: Path, lines: int, seed: int):
    ((facts, turn, _),) = chains_of(chains, lines, 16, seed)
    assert facts == [lines, 1]
    assert sorted(turn) == list(range(lines))


@settings(deadline=None)  # each example is a process
@given(lines=st.integers(2, 3000), block=st.integers(1, 400), seed=st.integers(0, 2**64 - 1))
def test_each_block_is_finished_before_the_next(chains: Path, lines: int, block: int, seed: int):
    ((facts, turn, _),) = chains_of(chains, lines, 16, seed, block_lines=block)
    assert facts == [lines, 1]
    assert sorted(turn) == list(range(lines))
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


def test_a_block_of_all_lines_is_the_chain_without_blocks(chains: Path):
    whole = chains_of(chains, 1000, 64, seed=5)
    assert chains_of(chains, 1000, 64, seed=5, block_lines=4000) == whole


def test_the_same_seed_gives_the_same_cycle_and_another_seed_another(chains: Path):
    turns = [tuple(turn) for _, turn, _ in chains_of(chains, 1000, 64, seed=0, seeds=200)]
    assert len(set(turns)) == 200
    ((_, again, _),) = chains_of(chains, 1000, 64, seed=7)
    assert tuple(again) == turns[7]


def test_all_cycles_are_equally_likely(chains: Path):
    turns = Counter(tuple(turn) for _, turn, _ in chains_of(chains, 5, 16, seed=0, seeds=24_000))
    assert len(turns) == 24  # (5 - 1)!
    chi_squared = sum((count - 1000) ** 2 / 1000 for count in turns.values())
    assert chi_squared < 49.7  # 23 degrees of freedom: one in a thousand; the seeds are fixed


def test_neighbours_in_the_chain_are_no_neighbours_in_memory(chains: Path):
    ((_, turn, _),) = chains_of(chains, 10_000, 64, seed=1)
    near = sum(abs(turn[i] - turn[i - 1]) <= 2 for i in range(10_000))
    assert near < 20  # about 4 are expected


def binned(driver: Path, durations: list[int]) -> tuple[list[float], float, dict[float, int]]:
    text = "\n".join(map(str, durations))
    printed = subprocess.run([driver], input=text, capture_output=True, text=True, check=True)
    *centres, median, sample = printed.stdout.splitlines()
    keys = json.loads(sample)
    return [float(one) for one in centres], float(median), {float(k): v for k, v in keys.items()}


@settings(deadline=None)
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


def test_blocks_are_whole_lines_and_recorded(latency: Path, cpu: str):
    command = [latency, "--cpu", cpu, "--bytes", str(1024 * KIB), "--max-seconds", "0.1"]
    ran = run([*command, "--block-bytes", str(64 * KIB)])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.events[0]["block_bytes"] == 64 * KIB
    assert run(command).events[0]["block_bytes"] == 0
    assert "--block-bytes must be a multiple of the cache line" in refusal(
        [*command, "--block-bytes", "1000"]
    )


SIZES = {"in the L1": 16 * KIB, "odd": 64 * 1001, "in the L2": 512 * KIB}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_accesses_are_blocks_times_their_length(latency: Path, cpu: str, size: int):
    options = ["--max-seconds", "0.2", "--sample-seconds", "0.03"]
    ran = run([latency, "--cpu", cpu, "--bytes", str(size), *options])
    assert (ran.code, ran.stderr) == (0, "")
    done = ran.done
    assert done["valid"] is True
    assert done["stopped_by"] == "time"
    merged = Counter()
    for sample in ran.samples:
        blocks = sum(sample["blocks"].values())
        assert sample["accesses"] == blocks * done["accesses_per_block"] > 0
        assert sample["end_ns"] > sample["begin_ns"]
        merged.update({float(key): count for key, count in sample["blocks"].items()})
    assert merged.total() == done["blocks"]
    assert sum(sample["accesses"] for sample in ran.samples) == done["accesses"]
    in_order = sorted(merged.elements())
    assert done["latency_ns"] == in_order[(len(in_order) - 1) // 2]


def test_a_samples_blocks_fit_its_time(latency: Path, cpu: str):
    command = [latency, "--cpu", cpu, "--bytes", "65536", "--max-seconds", "0.2"]
    for sample in run(command).samples:
        each = sample["accesses"] / sum(sample["blocks"].values())
        inside = sum(float(key) * count * each for key, count in sample["blocks"].items())
        assert inside < 1.001 * (sample["end_ns"] - sample["begin_ns"])


@pytest.mark.parametrize("size", [16 * KIB, 512 * KIB])
def test_the_timer_is_below_one_per_cent(latency: Path, cpu: str, size: int):
    done = run([latency, "--cpu", cpu, "--bytes", str(size), "--max-seconds", "0.1"]).done
    assert done["timer_ns"] > 0
    assert 0 < done["timer_share"] < 0.01
    median_ns = done["latency_ns"] * done["accesses_per_block"]
    assert done["timer_share"] == pytest.approx(done["timer_ns"] / median_ns, rel=1e-3)


def test_blocks_become_longer_if_accesses_become_faster(tmp_path: Path):
    # As when another process leaves the core after the length was chosen: the timer had 1.2 % of
    # the blocks of a chase whose length was chosen beside one.
    sources = ("latency/timed_blocks.c", "common/start_line_and_signals.c", "common/errors.c")
    driver = build_driver(tmp_path, HERE / "lengths_driver.c", *sources)
    text = subprocess.run([driver], capture_output=True, text=True, check=True).stdout
    *lines, forgotten = map(json.loads, text.splitlines())
    done, samples = lines[-1], lines[:-1]
    assert 0 < done["timer_share"] <= 0.0051  # a block is timed with its own readings
    assert forgotten > 0
    assert sum(sample["accesses"] for sample in samples) == done["accesses"]
    assert done["accesses"] == done["blocks"] * done["accesses_per_block"]


def test_ready_says_what_is_chased(latency: Path, cpu: str):
    options = ["--line-bytes", "128", "--seed", "18446744073709551615", "--max-seconds", "0.01"]
    ready = run([latency, "--cpu", cpu, "--bytes", "65536", *options]).ready
    wanted = {"bytes": 65536, "line_bytes": 128, "lines": 512, "seed": 2**64 - 1}
    assert {key: ready[key] for key in wanted} == wanted
    assert [thread["cpu"] for thread in ready["threads"]] == [int(cpu)]


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


MUTANTS = {
    "several cycles": (1, "not one cycle"),
    "a line is left out": (2, "not one cycle"),
    "fewer steps than counted": (3, "did not take as many steps"),
}


@pytest.mark.parametrize(("mutant", "says"), MUTANTS.values(), ids=MUTANTS)
def test_a_wrong_chase_is_found_out(built: Built, cpu: str, mutant: int, says: str):
    binary = built("chaosity-latency", f"-DMUTANT={mutant}")
    ran = run([binary, "--cpu", cpu, "--bytes", "65536", "--max-seconds", "0.02"])
    assert ran.code == 1
    assert ran.done["valid"] is False
    assert says in ran.stderr
    assert "must not be used" in ran.stderr


def test_a_line_left_out_is_found_where_no_turn_is_walked(built: Built, cpu: str):
    binary = built("chaosity-latency", "-DMUTANT=2")
    options = ["--warmup-bytes", "64", "--max-seconds", "0.02"]
    ran = run([binary, "--cpu", cpu, "--bytes", "65536", *options])
    assert (ran.code, ran.done["valid"]) == (1, False)
    assert "does not link every line once" in ran.stderr


WRONG = [
    ({"--bytes": "64"}, "at least two lines"),
    ({"--bytes": "100"}, "multiple of the cache line"),
    ({"--bytes": "0"}, "are needed"),
    ({"--bytes": "1e6"}, "--bytes takes a whole number"),
    ({"--bytes": "192", "--line-bytes": "128"}, "multiple of the cache line"),
    ({"--bytes": str(1 << 50)}, "can give"),
    ({"--seed": "-1"}, "--seed takes a whole number"),
    ({"--warmup-bytes": "all"}, "--warmup-bytes takes a whole number"),
    ({"--cpu": "0-1"}, "--cpu takes a whole number"),
    ({"--cpu": "8191"}, "this process may not run on CPU 8191"),
]


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[str(change) for change, _ in WRONG])
def test_what_cannot_be_chased_gets_a_sentence(
    latency: Path, cpu: str, change: dict[str, str], says: str
):
    options = {"--cpu": cpu, "--bytes": "65536"} | change
    sentence = refusal([latency, *(f"{name}={value}" for name, value in options.items())])
    assert says in sentence


def test_more_than_the_node_has_is_refused(latency: Path, cpu: str, node: int):
    sentence = refusal(
        [latency, "--cpu", cpu, "--memory-nodes", str(node), "--bytes", str(1 << 50)]
    )
    assert re.search(rf"memory nodes {node} can give \d+ MiB", sentence)


def test_the_loop_is_loads_and_little_else(latency: Path):
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", latency], capture_output=True, text=True, check=True
    ).stdout
    body = listing.split("<chase_walk>:\n")[1].split("\n\n")[0]
    if not re.search(r"%r", body):
        pytest.skip("not x86-64")
    instructions = [line.split("\t")[1].split()[0] for line in body.splitlines() if "\t" in line]
    loads = re.findall(r"mov +\(%r", body)
    assert len(loads) >= 64
    assert len(instructions) < len(loads) + 30


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
def test_clean_under_valgrind(latency: Path, cpu: str):
    prefix = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full"]
    options = ["--bytes", "65536", "--max-seconds", "0.1"]
    ran = run([*prefix, str(latency), "--cpu", cpu, *options])
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.done["valid"] is True
