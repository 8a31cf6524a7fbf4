"""Progress samples, rates and values from them, also of tools whose lines have time stamps."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from math import exp
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.records.record_format import VALID
from chaosity.runner import metric_values, record_checks
from chaosity.runner.metric_values import rate_in_window, samples_from_json_lines
from chaosity.runner.point_measurement import measure_point
from chaosity.runner.tool_output import ExtractionError
from chaosity.store.tidy_table_from_records import ReplicateOutcome, tidy_rows_of_outcome
from small_load import SAMPLES

FIO_LOG = {
    "in": "rate_bw.*.log",
    "csv": {"end": 0, "rate": 1},
    "interval_seconds": 0.1,
    "time_scale": 1e-3,
    "rate_scale": 1024,
    "clock": "realtime",
}


def test_rows_of_fio_become_bytes_on_the_monotonic_clock():
    log = "1795232350900, 1000, 0, 0, 0\n1795232351000, 2000, 0, 0, 0\n"
    [series] = metric_values.progress_series(FIO_LOG, {"rate_bw.1.log": log}, 1795232350.0)
    assert series[0] == pytest.approx((0.8, 0.9, 102400.0), rel=1e-6)
    assert series[1] == pytest.approx((0.9, 1.0, 204800.0), rel=1e-6)


@pytest.mark.parametrize("log", ["", "1000", "x, y", "1000, fast"])
def test_a_log_with_another_form_is_an_error(log):
    with pytest.raises(ExtractionError):
        metric_values.progress_series(FIO_LOG, {"rate_bw.1.log": log}, 0.0)


@given(
    st.lists(st.floats(0.01, 10), min_size=1, max_size=60),
    st.floats(1e3, 1e12),
)
def test_a_steady_rate_does_not_depend_on_the_samples(lengths, steady):
    samples, now = [], 0.0
    for length in lengths:
        samples.append((now, now + length, steady * length))
        now += length
    assert metric_values.rate_in_window([samples], 0.0, now) == pytest.approx(steady)
    assert metric_values.rate_in_window([samples], now / 4, now / 2) == pytest.approx(steady)


def test_precision_is_unknown_with_few_samples():
    samples = [(float(i), i + 1.0, 1.0) for i in range(19)]
    assert metric_values.rate_precision([samples], 0.0, 19.0) is None


def test_precision_of_alternating_batches():
    # Batches of two samples: means 9 and 11 in turn, so standard deviation 1.054 over ten.
    samples = [(float(i), i + 1.0, 9.0 if (i // 2) % 2 else 11.0) for i in range(20)]
    reached = metric_values.rate_precision([samples], 0.0, 20.0)
    assert reached is not None
    assert reached.relative_half_width == pytest.approx(2.262 * 1.0541 / 10**0.5 / 10, rel=1e-3)
    assert not reached.drifts
    assert reached.cannot_reach(0.015, 4)  # 0.0754 * 0.688 / 2 = 0.026
    assert not reached.cannot_reach(0.03, 4)


def end_of_run(rate, seed=0, wanted=0.01, longest=5.0):
    """Looks at a rate each 0.1 s, as the runner does; returns the time and reason of the end."""
    random, samples = Random(seed), []
    for n in range(int(longest * 100)):
        begin, end = n / 100, (n + 1) / 100
        samples.append((begin, end, rate(begin, random) / 100))
        if n < 50 or n % 10:
            continue
        reached = metric_values.rate_precision([samples], 0.0, end)
        if reached.relative_half_width <= wanted:
            return end, "precise"
        if reached.cannot_reach(wanted, longest / end):
            return end, "out of reach"
    return longest, "time"


def with_noise(rate, noise):
    return lambda second, random: rate(second) + random.gauss(0, noise)


@pytest.mark.parametrize(
    ("rate", "reason"),
    [
        (with_noise(lambda _: 1.0, 0.0), "precise"),
        (with_noise(lambda _: 1.0, 0.05), "precise"),
        (with_noise(lambda _: 1.0, 0.5), "out of reach"),
        (with_noise(lambda second: 1 + second / 5, 0.03), "time"),
        (with_noise(lambda second: 1 - second / 10, 0.02), "time"),
        (with_noise(lambda second: 1 - 0.5 * exp(-second / 0.3), 0.01), "time"),
    ],
    ids=["constant", "little noise", "much noise", "rises", "falls", "warms up"],
)
def test_a_run_ends_early_when_precise_or_when_precision_is_out_of_reach(rate, reason):
    ends = [end_of_run(rate, seed) for seed in range(4)]
    # One in twenty random series looks like a drift, and a drift can be precise near its end.
    assert sum(found == reason for _, found in ends) >= 3, ends
    if reason == "out of reach":
        assert sorted(end for end, _ in ends)[2] < 1.0
    elif reason == "time":
        assert "out of reach" not in {found for _, found in ends}


def test_noise_that_fits_to_the_precision_at_the_longest_time_rarely_ends_a_run():
    """The interval at the longest time is 0.7 % wide, below the wanted 1 %."""
    ends = [end_of_run(with_noise(lambda _: 1.0, 0.07), seed) for seed in range(20)]
    assert sum(found == "out of reach" for _, found in ends) <= 3, ends


def sample(begin, end, **blocks):
    counts = {value.lstrip("_").replace("_", "."): n for value, n in blocks.items()}
    return f'{{"event":"sample","begin_ns":{begin},"end_ns":{end},"blocks":{json.dumps(counts)}}}\n'


def test_a_quantile_counts_all_samples_within_the_window():
    text = sample(0, 10, _1=100) + sample(10, 20, _2=2, _3=1) + sample(20, 30, _3=2, _4_5=1)
    found = [
        metric_values.sample_quantile_in_window(
            SAMPLES, {"key": "blocks", "quantile": q}, text, 10e-9, 30e-9
        )
        for q in (0, 0.5, 0.99, 1)
    ]
    assert found == [2.0, 3.0, 4.5, 4.5]


def test_a_window_without_a_whole_sample_has_no_quantile():
    with pytest.raises(ExtractionError, match="common window"):
        metric_values.sample_quantile_in_window(
            SAMPLES, {"key": "blocks", "quantile": 0.5}, sample(0, 10, _1=1), 1e-9, 1
        )


@given(st.lists(st.floats(0.5, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_is_between_the_extremes(values, share):
    counts = json.dumps({repr(value): values.count(value) for value in values})
    text = f'{{"event":"sample","begin_ns":1,"end_ns":2,"blocks":{counts}}}'
    found = metric_values.sample_quantile_in_window(
        SAMPLES, {"key": "blocks", "quantile": share}, text, 0, 1
    )
    assert found in values
    below = sum(value < found for value in values)
    assert below <= share * len(values) + 1e-6


@pytest.mark.parametrize(
    "changed",
    [{"begin": "x"}, {"end": None}, {"end": float("inf")}, {"amount": [1]}, {"begin": 10**400}],
)
def test_a_sample_of_another_form_is_an_error_of_the_output(changed):
    source = {"event": "sample", "begin": "begin", "end": "end", "amount": "amount"}
    line = {"event": "sample", "begin": 0, "end": 1, "amount": 2, **changed}
    with pytest.raises(ExtractionError):
        metric_values.samples_from_json_lines(source, json.dumps(line))
    del line[next(iter(changed))]
    with pytest.raises(ExtractionError):
        metric_values.samples_from_json_lines(source, json.dumps(line))


@pytest.mark.parametrize("blocks", [[1], {"x": 1}, {"1.5": "many"}, 3])
def test_counts_of_another_form_are_an_error_of_the_output(blocks):
    source = {"event": "sample", "begin": "begin", "end": "end"}
    line = json.dumps({"event": "sample", "begin": 0, "end": 1, "blocks": blocks})
    with pytest.raises(ExtractionError):
        metric_values.counts_in_window(source, "blocks", line, 0.0, 1.0)


# Metrics by node: from samples to values, checks and rows of the table.


SOURCE = {
    "progress": True,
    "at_most": None,
    "by_node": {"amount": "bytes_by_node", "time": "ns_by_node"},
}
METRIC = "path_bandwidth_bytes_per_second"


def lines(*samples):
    """Output of a load: begin and end in seconds, and bytes and nanoseconds of nodes."""
    found = [
        {
            "event": "sample",
            "begin_ns": begin * 10**9,
            "end_ns": end * 10**9,
            "bytes": sum(moved.values()),
            "bytes_by_node": moved,
            "ns_by_node": spent,
        }
        for begin, end, moved, spent in samples
    ]
    return "".join(json.dumps(line) + "\n" for line in [{"event": "ready"}, *found])


TEXT = lines(
    (0, 1, {"0": 100, "3": 10}, {"0": 5 * 10**8, "3": 5 * 10**8}),
    (1, 2, {"0": 300, "3": 30}, {"0": 5 * 10**8, "3": 15 * 10**8}),
)


def test_a_node_rate_is_the_rate_of_a_thread_times_the_threads():
    found = metric_values.rates_if_all_threads_used_one_node(
        SAMPLES, SOURCE, TEXT, 0.0, 2.0, [0, 3], 4
    )
    assert found == pytest.approx({"0": 400 / 1.0 * 4, "3": 40 / 2.0 * 4})


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=8), st.integers(1, 64))
def test_a_steady_node_rate_does_not_depend_on_the_samples(times, threads):
    """Every node moves 3 bytes a nanosecond while a thread is at it."""
    samples = [(i, i + 1, {"2": 3 * time}, {"2": time}) for i, time in enumerate(times)]
    found = metric_values.rates_if_all_threads_used_one_node(
        SAMPLES, SOURCE, lines(*samples), 0.0, len(times) - 0.3, [2], threads
    )
    assert found["2"] == pytest.approx(3e9 * threads)


@pytest.mark.parametrize(
    ("text", "nodes", "message"),
    [
        (TEXT, [0, 1], "node 1 was not accessed within the common window"),
        (lines((5, 6, {"0": 1}, {"0": 1})), [0], "node 0 was not accessed"),
        (TEXT.replace("ns_by_node", "times"), [0], "no bytes_by_node or no ns_by_node"),
    ],
)
def test_samples_with_missing_keys_are_an_error(text, nodes, message):
    with pytest.raises(ExtractionError, match=message):
        metric_values.rates_if_all_threads_used_one_node(SAMPLES, SOURCE, text, 0.0, 2.0, nodes, 1)


@pytest.fixture
def point(make_point):
    """A load on node 0 that reads from nodes 0 and 3."""
    place = {
        "0": {"relation": "same_node", "distance": 10},
        "3": {"relation": "other_package", "distance": 32},
    }
    target = {
        "name": "nodes0,3",
        "kind": "nodes",
        "nodes": [0, 3],
        "drives": [],
        "relation": "other_package",
        "distance": 32,
        "by_node": place,
    }
    total = {"progress": True, "at_most": None}
    metrics = {METRIC: SOURCE, "bandwidth_bytes_per_second": total}
    return make_point(metrics=metrics, target=target)


def record(point):
    [load] = point["loads"]
    return {
        "environment_before": {"realtime_minus_monotonic_seconds": 0.0},
        "loads": [{**load, "outputs": {"stdout": TEXT}}],
    }


def test_a_record_has_a_value_for_each_node(point):
    read = metric_values.metric_values_or_reasons(record(point))["memory"]
    assert read[METRIC][0] == pytest.approx({"0": 400.0, "3": 20.0})
    assert read["bandwidth_bytes_per_second"][0] == pytest.approx(440 / 2)
    checks = record_checks.check_metric_bounds(point["loads"][0], read)
    assert [c["name"] for c in checks] == [
        f"memory: {METRIC} of node 0",
        f"memory: {METRIC} of node 3",
        "memory: bandwidth_bytes_per_second",
    ]
    assert all(c["passed"] for c in checks)


def test_loads_that_run_together_have_the_rates_of_the_time_in_which_both_ran(point):
    """Each load moves 100 bytes in its first second, then 300. One second is common to both."""
    [load] = point["loads"]
    load["metrics"] = {"bandwidth_bytes_per_second": {"progress": True}}
    loads = []
    for name, begin in (("early", 0), ("late", 1)):
        seconds = enumerate((100, 300), start=begin)
        text = lines(*((at, at + 1, {"0": moved}, {"0": 1}) for at, moved in seconds))
        loads.append({**load, "name": name, "outputs": {"stdout": text}})
    found = metric_values.metric_values_or_reasons({**record(point), "loads": loads})
    rates = {name: own["bandwidth_bytes_per_second"][0] for name, own in found.items()}
    assert rates == pytest.approx({"early": 300.0, "late": 100.0})


def test_each_node_is_checked_against_the_bound(point):
    [load] = point["loads"]
    load["metrics"] = {METRIC: {**SOURCE, "at_most": 100.0}}
    checks = record_checks.check_metric_bounds(load, {METRIC: ({"0": 400.0, "3": 20.0}, None)})
    assert [c["passed"] for c in checks] == [False, True]
    for impossible in (0.0, -1.0, float("nan"), float("inf")):
        checks = record_checks.check_metric_bounds(load, {METRIC: ({"0": impossible}, None)})
        assert not checks[0]["passed"]


@pytest.mark.parametrize("status", ["valid", "failed", "missing"])
def test_the_tidy_table_has_a_row_for_each_node(point, status):
    total = {"bandwidth_bytes_per_second": (220.0, None)}
    found = {"memory": {METRIC: ({"0": 400.0, "3": 20.0}, None), **total}}
    outcome = ReplicateOutcome(status, readings=found if status == "valid" else {})
    rows = list(tidy_rows_of_outcome(point, 1, outcome))
    assert [(row["metric"], row["target"]) for row in rows] == [
        (METRIC, "node0"),
        (METRIC, "node3"),
        ("bandwidth_bytes_per_second", "nodes0,3"),
    ]
    [near, far, whole] = rows
    columns = ("target_kind", "target_nodes", "relation", "distance")
    assert [near[name] for name in columns] == ["node", "0", "same_node", 10]
    assert [far[name] for name in columns] == ["node", "3", "other_package", 32]
    assert [whole[name] for name in columns] == ["nodes", "0,3", "other_package", 32]
    wanted = [400.0, 20.0, 220.0] if status == "valid" else [None] * 3
    assert [row["value"] for row in rows] == wanted


@pytest.mark.alone
def test_real_loads_have_values_by_node(make_point):
    given = make_point(metrics={METRIC: SOURCE})
    one = given["loads"][0]
    given["loads"] = [{**one, "name": f"memory{number}"} for number in range(2)]
    record = measure_point(given, 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    for found in metric_values.metric_values_or_reasons(record).values():
        assert found[METRIC][0] == pytest.approx({"0": 1e6}, rel=1e-3)


STAMP = Path(__file__).resolve().parents[3] / "roles/runner/files/chaosity_stamp.py"
PROGRESS = {**SAMPLES, "amount": "amount", "pauses": True}
# Like most tools, it does not flush: to a pipe all lines would come at its end.
TOOL = """
import sys, time
set_up, measures, rate = map(float, sys.argv[1:4])
keep = b"x" * (1 << 20)
time.sleep(set_up)
print("begins")
time.sleep(measures)
print("ends")
time.sleep(set_up)
print("rate", rate, "MB/s")
sys.exit(int(sys.argv[4]))
"""
LINES = ["--begin", "^begins$", "--end", "^ends$", "--value", "^rate ([0-9.]+)", "--scale", "1e6"]


def tool(set_up: float, measures: float, rate: float, status: int = 0) -> list[str]:
    return [sys.executable, "-c", TOOL, *map(str, (set_up, measures, rate, status))]


def stamped(*options: str, command: list[str]) -> list[str]:
    return [sys.executable, str(STAMP), *options, "--", *command]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def events(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_a_run_is_stamped_when_it_measures_and_not_during_its_set_up():
    before = time.monotonic_ns(), time.time_ns()
    ended = run(stamped(*LINES, "--max-seconds", "0.1", command=tool(0.3, 0.5, 100)))
    after = time.monotonic_ns(), time.time_ns()
    sample, done = events(ended.stdout)
    assert ended.returncode == 0
    assert before[0] + 0.3e9 < sample["begin_ns"]
    assert sample["end_ns"] < after[0] - 0.3e9
    assert before[1] < sample["end_realtime_ns"] < after[1]
    seconds = (sample["end_ns"] - sample["begin_ns"]) * 1e-9
    assert 0.45 < seconds < 5
    assert sample["amount"] == pytest.approx(100e6 * seconds)
    assert (done["runs"], done["stopped_by"]) == (1, "time")
    assert "begins\nends\nrate 100.0 MB/s\n" in ended.stdout  # the tool's own output, as it was


def test_without_lines_the_whole_run_is_stamped():
    options = ["--value", "^rate ([0-9.]+)", "--amount", "600", "--max-seconds", "0.1"]
    sample, _ = events(run(stamped(*options, command=tool(0.2, 0.2, 3))).stdout)
    seconds = (sample["end_ns"] - sample["begin_ns"]) * 1e-9
    assert seconds > 0.6
    assert sample["amount"] == pytest.approx(600 / 3 * seconds)  # the value is a time in seconds


def test_each_line_of_a_run_can_be_a_measurement():
    script = 'for i in 1 2 3; do echo "width $i: $i.5"; sleep 0.1; done'
    options = ["--begin", "^width", "--end", "^width [23]", "--value", r"^width [23]: ([0-9.]+)"]
    command = stamped(*options, "--max-seconds", "0.1", command=["sh", "-c", script])
    first, second, _ = events(run(command).stdout)
    assert second["begin_ns"] == pytest.approx(first["end_ns"], abs=1e6)
    for sample, rate in ((first, 2.5), (second, 3.5)):
        seconds = (sample["end_ns"] - sample["begin_ns"]) * 1e-9
        assert seconds > 0.0  # a busy machine reads a line late, so the interval can be short
        assert sample["amount"] == pytest.approx(rate * seconds)


def test_the_value_is_the_first_of_several_groups():
    options = [*LINES[:4], "--value", "^rate ([0-9]+)[.]([0-9]+)", "--max-seconds", "0.1"]
    sample, _ = events(run(stamped(*options, command=tool(0, 0.1, 7.5))).stdout)
    assert sample["amount"] == pytest.approx(7 * (sample["end_ns"] - sample["begin_ns"]) * 1e-9)


def test_it_repeats_the_tool_until_a_signal_and_leaves_the_broken_run_out():
    pipe = subprocess.PIPE
    command = stamped(*LINES, command=tool(0, 0.1, 100))
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    lines = []
    while sum('"sample"' in line for line in lines) < 3:
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    found = events("".join(lines) + rest)
    assert [event["run"] for event in found[:-1]] == list(range(1, found[-1]["runs"] + 1))
    assert found[-1]["stopped_by"] == "signal"


@pytest.mark.parametrize(
    ("options", "command", "status", "reason"),
    [
        (LINES, tool(0, 0, 1, status=3), 1, "ended with status 3"),
        (LINES, ["no-such-tool"], 1, "no-such-tool cannot be started"),
        (LINES[:4], tool(0, 0, 1), 2, "--value and a command are needed"),
        ([*LINES[:4], "--value", "("], tool(0, 0, 1), 2, "is not a pattern"),
        ([*LINES[:4], "--value", "^rate"], tool(0, 0, 1), 2, "'^rate' has no group"),
        ([*LINES[:4], "--value", "^(rate)"], tool(0, 0, 1), 1, "not all values are numbers: rate"),
        ([*LINES[:6], "--amount", "600"], tool(0, 0, 0), 1, "a time of 0 s gives no rate"),
        ([*LINES[:4], "--value", "^speed (.*)"], tool(0, 0, 1), 1, "1 measurements and 0 values"),
        (["--begin", "^never$", *LINES[2:]], tool(0, 0, 1), 1, "0 measurements and 1 values"),
    ],
)
def test_what_gives_no_value_is_an_error(options, command, status, reason):
    ended = run(stamped(*options, "--max-seconds", "0.1", command=command))
    assert ended.returncode == status
    assert reason in ended.stderr


def load(make_point, name: str, *words: float) -> dict:
    [made] = make_point(
        name=name,
        command=stamped(*LINES, command=tool(*words)),
        start="spawn",
        progress=PROGRESS,
        valid=[{"name": "ended well", "event": "done", "key": "stopped_by", "equals": "signal"}],
    )["loads"]
    return made


@pytest.mark.alone
def test_two_stamped_tools_share_a_window(make_point):
    loads = [load(make_point, "memory", 0.02, 0.3, 100), load(make_point, "device", 0.02, 0.4, 200)]
    stopping = {"relative_precision": None, "min_seconds": 2, "max_seconds": 2}
    record = measure_point(make_point(point={"loads": loads, "stopping": stopping}), 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    values = metric_values.metric_values_or_reasons(record)
    for name, rate in (("memory", 100e6), ("device", 200e6)):
        assert values[name]["bandwidth_bytes_per_second"][0] == pytest.approx(rate)
    [note] = [c for c in record["verdict"]["checks"] if c["name"] == "measured together"]
    assert re.match(r"\d+ % of the common window", note["detail"])


def test_the_rate_is_that_of_the_time_in_which_all_tools_measured():
    """The first load moves less while the second measures, from 2 to 4 and from 6 to 8."""
    first = [(0, 2, 20), (2, 4, 10), (4, 6, 20), (6, 8, 10)]
    second = [(2, 4, 6), (6, 8, 6)]
    assert rate_in_window([first], 0, 8) == 60 / 8
    assert rate_in_window([first], 0, 8, [second]) == 5
    assert rate_in_window([second], 0, 8, [second]) == 3
    with pytest.raises(ValueError, match="did not run at the same time"):
        rate_in_window([first], 4, 6, [second])


def as_lines(samples: list[tuple[float, float, float]]) -> str:
    lines = (
        {"event": "sample", "begin_ns": begin * 1e9, "end_ns": end * 1e9, "amount": amount}
        for begin, end, amount in samples
    )
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.alone
@pytest.mark.parametrize(("pause", "passed"), [(1, True), (8, False)])
def test_long_pauses_are_noted(make_point, pause, passed):
    record = measure_point(make_point(), 1)
    [load] = record["loads"]
    series = [(0, 16 + pause, 8)], [(0, 8, 8), (8 + pause, 16 + pause, 8)]
    record["loads"] = [
        {**load, "progress": PROGRESS, "outputs": {"stdout": as_lines(samples), "stderr": ""}}
        for samples in series
    ]
    [note] = [n for n in record_checks.check_record(record) if n["name"] == "measured together"]
    assert (note["passed"], note["decisive"]) == (passed, False)
    assert note["detail"].startswith(f"{100 * 16 / (16 + pause):.0f} %")


def test_rates_of_two_outputs_are_those_of_the_runner(tmp_path: Path):
    series = [[(0, 2, 20e9), (3, 8, 10e9)], [(1, 7, 6e9)]]
    files = [tmp_path / "memory.txt", tmp_path / "device.txt"]
    for file, samples in zip(files, series, strict=True):
        file.write_text(as_lines(samples))
    said = run([sys.executable, str(STAMP), "--together", *map(str, files)]).stdout.splitlines()
    for line, own in zip(said, series, strict=True):
        [alone] = [samples_from_json_lines(PROGRESS, as_lines(own))]
        rate = rate_in_window([alone], 1, 7, series) * 1e-9
        assert f": {rate:.2f} GB/s" in line
    assert "measuring together for 5.0 of 6.0 s" in said[0]


def test_rates_of_outputs_without_a_common_time_are_refused(tmp_path: Path):
    files = [tmp_path / "memory.txt", tmp_path / "device.txt"]
    for file, begin in zip(files, (0, 5), strict=True):
        file.write_text(as_lines([(begin, begin + 1, 1)]))
    ended = run([sys.executable, str(STAMP), "--together", *map(str, files)])
    assert ended.returncode == 2
    assert "did not measure at the same time" in ended.stderr
    files[0].write_text("")
    assert "has no sample" in run([sys.executable, str(STAMP), "--together", str(files[0])]).stderr
