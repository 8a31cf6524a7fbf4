"""chaosity-stamp: tools without progress get time stamps and can be measured together."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaosity.records.record_format import VALID
from chaosity.runner import metric_values, record_checks
from chaosity.runner.metric_values import rate_in_window, samples_from_json_lines
from chaosity.runner.point_measurement import measure_point

STAMP = Path(__file__).resolve().parents[3] / "roles/runner/files/chaosity_stamp.py"
PROGRESS = {
    "event": "sample",
    "begin": "begin_ns",
    "end": "end_ns",
    "amount": "amount",
    "time_scale": 1e-9,
    "pauses": True,
}
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
        assert seconds > 0.09
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
