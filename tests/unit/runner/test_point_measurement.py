"""A point through the runner: what is right is valid, all else fails with its reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaosity.cpusets import parse_cpu_list
from chaosity.records.record_files import load_record, save_record
from chaosity.records.record_format import FAILED, VALID
from chaosity.runner import load_process, metric_values
from chaosity.runner.point_measurement import (
    can_stop_by_precision,
    measure_point,
    spent_processor_seconds,
)
from chaosity.runner.record_checks import check_record
from small_load import WITHOUT_PROGRESS, small_point

pytestmark = pytest.mark.alone


def reason(record):
    assert record["verdict"]["status"] == FAILED
    return record["verdict"]["reason"]


def test_a_fault_of_the_program_fails_the_point_and_the_log_says_where(
    make_point, capfd, monkeypatch
):
    monkeypatch.setenv("SECRET", "hunter2")
    point = make_point()
    del point["loads"][0]["initiator"]["nodes"]
    assert reason(measure_point(point, 1)) == "measured: KeyError: 'nodes'"
    log = capfd.readouterr().err
    assert "Traceback" in log and "_check_initiator_nodes_as_planned" in log
    assert "hunter2" not in log


@pytest.fixture(scope="module")
def measured():
    return measure_point(small_point(), 1)


def test_a_good_load_gives_a_valid_record(measured):
    record = measured
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    rate = metric_values.metric_values_or_reasons(record)["memory"]["bandwidth_bytes_per_second"][0]
    assert 1e5 < rate < 1e6  # a byte in each microsecond of a sample
    assert record["loads"][0]["signalled"] == "TERM"
    assert record["environment_before"]["facts"]["load_average"]
    assert "value" not in json.dumps(record)  # a record holds no derived number


def test_a_measurement_leaves_no_file_open(make_point):
    command = [sys.executable, "-W", "error", "-m", "chaosity.runner", "-"]
    asked = json.dumps(make_point())
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["verdict"]["status"] == VALID
    assert done.stderr == ""


ABOVE = {"bandwidth_bytes_per_second": {"progress": True, "at_most": 10.0}}
BASE = small_point()["loads"][0]["placement"]
NEEDS = {"program": "no-such-tool", "install": "install the package none"}


@pytest.mark.parametrize(
    ("wrong", "load", "expected"),
    [
        ("dies", {}, "ended before it was ready: cannot allocate"),
        ("crash", {}, "exit status 3"),
        ("rubbish", {}, "incomplete JSON"),
        ("invalid", {}, "right: False, required: equals True"),
        ("", {"command": ["no-such-tool"]}, "no-such-tool is not installed"),
        ("", {"needs": NEEDS}, "no-such-tool is not installed; install the package none"),
        ("", {"placement": {**BASE, "cpus": "4000"}}, "may not run on PU [4000]"),
        ("", {"memory_bytes": 2**60}, "bytes free"),
        ("", {"placement": {**BASE, "memory_nodes": [77]}}, "node 77 has no memory"),
        ("", {"metrics": ABOVE}, "above the bound"),
    ],
)
def test_failures_have_a_reason(wrong, load, expected):
    assert expected in reason(measure_point(small_point(wrong, **load), 1))


def test_a_tool_gets_of_the_variables_that_change_values_only_those_of_its_file(
    make_point, monkeypatch
):
    of_site = {
        **{"OMP_PROC_BIND": "true", "GOMP_CPU_AFFINITY": "0", "LD_PRELOAD": ""},
        **{"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_ARENA_MAX": "1"},
        "LD_LIBRARY_PATH": "/opt/tool/lib",
    }
    for name, value in of_site.items():
        monkeypatch.setenv(name, value)
    load = make_point()["loads"][0]
    names = [*of_site, "OMP_NUM_THREADS"]
    reported = f"import os; print([x for x in {names} if x in os.environ])"
    program = load["command"][2].replace("import json", f"{reported}\nimport json", 1)
    command = [sys.executable, "-c", program, ""]
    record = measure_point(make_point(command=command, environment={"OMP_NUM_THREADS": "3"}), 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    assert "['LD_LIBRARY_PATH', 'OMP_NUM_THREADS']" in record["loads"][0]["outputs"]["stdout"]


def test_a_slow_version_query_costs_no_measurement(make_point, monkeypatch):
    monkeypatch.setattr(load_process, "VERSION_SECONDS", 0.2)
    point = make_point()
    point["loads"][0]["needs"] |= {"version": ["sleep", "600.25"]}
    record = measure_point(point, 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    assert record["loads"][0]["program"]["version"] is None
    running = subprocess.run(["pgrep", "-f", "sleep 600.25"], capture_output=True, check=False)
    assert running.stdout == b""


def test_a_version_query_that_cannot_run_costs_no_measurement(make_point):
    point = make_point()
    point["loads"][0]["needs"] |= {"version": ["no-such-tool", "--version"]}
    record = measure_point(point, 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    assert record["loads"][0]["program"]["version"] is None


def test_a_program_of_another_format_leaves_neither_files_nor_processes(make_point, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    point = make_point(command=[str(program)])
    point["loads"][0]["needs"] |= {"version": ["sh", "-c", "echo 1.2.3; sleep 0.25"]}
    opened = len([*Path("/proc/self/fd").iterdir()])
    assert f"{program} cannot be run" in reason(measure_point(point, 1))
    assert len([*Path("/proc/self/fd").iterdir()]) == opened
    running = subprocess.run(["pgrep", "-f", "sleep 0.25"], capture_output=True, check=False)
    assert running.stdout == b""


def test_threads_that_stray(make_point):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one unit: nowhere to stray to")
    point = make_point()
    point["loads"][0]["placement"]["cpus"] = str(min(os.sched_getaffinity(0)))
    assert "may leave" in reason(measure_point(point, 1))


def test_precision_ends_a_steady_point_early(make_point):
    began = time.monotonic()
    stopping = {"relative_precision": 0.5, "min_seconds": 0.2, "max_seconds": 20.0}
    measure_point(make_point(point={"stopping": stopping}), 1)
    assert time.monotonic() - began < 5


def test_a_noisy_point_ends_when_more_time_would_not_make_it_precise(make_point):
    stopping = {"relative_precision": 0.001, "min_seconds": 0.2, "max_seconds": 20.0}
    began = time.monotonic()
    record = measure_point(make_point("noisy", point={"stopping": stopping}), 1)
    assert time.monotonic() - began < 10
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    [note] = [check for check in record["verdict"]["checks"] if check["name"].endswith("precision")]
    assert note["passed"] is False
    assert "s of at most 20 s" in note["detail"]


def test_precision_is_computed_in_the_common_window():
    """A load that ran before the others, and steadily, is not steady beside them."""
    steady = [(n / 100, (n + 1) / 100, 1.0) for n in range(2000)]
    unsteady = [(20 + n / 100, 20 + (n + 1) / 100, 1.0 + n // 20 % 2) for n in range(200)]
    ahead = SimpleNamespace(samples=steady + unsteady)
    later = SimpleNamespace(samples=[(first, last, 1.0) for first, last, _ in unsteady])
    assert can_stop_by_precision([ahead], 0.1, 60)
    assert can_stop_by_precision([later], 0.1, 60)
    assert not can_stop_by_precision([ahead, later], 0.1, 60)


def test_a_pass_longer_than_the_stopping_rule_is_awaited(make_point):
    stopping = {"relative_precision": 0.01, "min_seconds": 0.1, "max_seconds": 0.2}
    record = measure_point(make_point("slow", point={"stopping": stopping}), 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]


def test_attempts_are_kept_and_the_newest_is_current(make_point, tmp_path):
    path = tmp_path / "rep1.json"
    for wrong in ("dies", ""):
        save_record(measure_point(make_point(wrong), 1), path)
    kept = sorted(p.name.split(".")[-2] for p in (tmp_path / "attempts").glob("*.json"))
    assert kept == ["failed", "valid"]
    assert load_record(path)["verdict"]["status"] == VALID


def test_a_silent_load_starts_after_the_first_samples_of_the_others(make_point):
    point = make_point("slow")  # longer than the head start
    point["loads"] += make_point("silent", name="silent", **WITHOUT_PROGRESS)["loads"]
    record = measure_point(point, 1)
    checks = {check["name"]: check for check in record["verdict"]["checks"]}
    assert "values" not in checks, checks["values"]
    loud, quiet = record["loads"]
    first = loud["outputs"]["stdout"].split('"begin_ns": ')[1].split(",")[0]
    assert quiet["began_monotonic_seconds"] > int(first) / 1e9
    # The others must report progress until it ends.
    lines = loud["outputs"]["stdout"].splitlines()
    loud["outputs"]["stdout"] = "\n".join(lines[:20])
    failed = {check["name"] for check in check_record(record) if check["passed"] is False}
    assert "values" in failed


def test_what_this_process_did_before_is_not_time_of_the_measurement(make_point):
    """A check measures many points in one process. Its own time hides that of other programs."""
    while time.process_time() < 1.5:  # its imports alone take longer
        pass
    before = time.process_time()
    record = measure_point(make_point(), 1, spent_before=spent_processor_seconds())
    assert 0.0 < record["runner_seconds"] < 1.0
    # A process that measures a single point counts from its start.
    assert measure_point(make_point(), 1)["runner_seconds"] > before


@pytest.mark.parametrize(
    ("kind", "drives", "undisturbed"),
    [
        ("idle", [], True),
        ("user", [], False),
        ("softirq", [], False),
        ("steal", [{"component": "drive0"}], False),
        ("system", [{"component": "drive0"}], False),
        # A drive interrupts the processors for the load that reads it.
        ("softirq", [{"component": "drive0"}], True),
        ("irq", [{"component": "drive0"}], True),
    ],
)
def test_time_of_other_programs_and_interrupts_is_noted(measured, kind, drives, undisturbed):
    record = deepcopy(measured)
    [load] = record["loads"]
    load["target"] |= {"drives": drives}
    before, after = record["environment_before"], record["environment_after"]
    elapsed = after["taken_monotonic_seconds"] - before["taken_monotonic_seconds"]
    seconds = dict(before["processor_seconds"])
    seconds["user"] += load["processor_seconds"] + record["runner_seconds"]
    seconds[kind] += 0.02 * elapsed * os.cpu_count()
    after["processor_seconds"] = after["load_units_processor_seconds"] = seconds
    before["load_units_processor_seconds"] = before["processor_seconds"]
    [note] = [each for each in check_record(record) if each["name"] == "undisturbed"]
    assert note["passed"] is undisturbed, note


@pytest.mark.parametrize(
    ("here", "elsewhere", "runner", "undisturbed"),
    [
        (0.005, 0.03, 0.2, True),  # an idle server with hundreds of units
        (0.02, 0.0, 0.0, False),  # on the unit of the load, or on a unit of the same core
        (0.0, 0.2, 0.0, False),  # a program elsewhere that can use much bandwidth
        (0.0, 0.03, 0.4, True),  # the runner itself, on other units
    ],
)
def test_other_programs_may_use_other_units_a_little(
    measured, here, elsewhere, runner, undisturbed
):
    record = deepcopy(measured)
    [load] = record["loads"]
    load["placement"]["cpus"] = "0"
    before, after = record["environment_before"], record["environment_after"]
    before["taken_monotonic_seconds"], after["taken_monotonic_seconds"] = 0.0, 4.0
    record["runner_seconds"] = 4.0 * runner
    on_unit = load["processor_seconds"] + 4.0 * here
    before["load_units_processor_seconds"] = before["processor_seconds"] = {"user": 0.0}
    after["load_units_processor_seconds"] = {"user": on_unit}
    after["processor_seconds"] = {"user": on_unit + 4.0 * (elsewhere + runner)}
    [note] = [each for each in check_record(record) if each["name"] == "undisturbed"]
    assert note["passed"] is undisturbed, note


@pytest.mark.parametrize(("step", "passed"), [(0.004, True), (-0.004, True), (-0.006, False)])
@pytest.mark.parametrize("clock", ["monotonic", "realtime"])
def test_a_step_of_the_clock_of_time_stamps_fails_loads_that_run_together(
    measured, step, passed, clock
):
    """The time stamps of fio are of the wall clock, and another load has others."""
    record = deepcopy(measured)
    [load] = record["loads"]
    load["progress"]["clock"] = clock
    record["loads"].append({**load, "name": "other"})
    before, after = record["environment_before"], record["environment_after"]
    name = "realtime_minus_monotonic_seconds"
    after[name] = before[name] + step
    [check] = [each for each in check_record(record) if each["name"] == "wall clock"]
    assert (check["passed"], check["decisive"]) == (passed, clock == "realtime")


def test_a_program_on_another_unit_is_seen_there(make_point):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("this machine has one processing unit")
    point = make_point()
    command = point["loads"][0]["command"]
    point["loads"][0] |= {"command": ["taskset", "--cpu-list", str(allowed[0]), *command]}
    point["loads"][0]["placement"]["cpus"] = str(allowed[0])
    loop = ["taskset", "--cpu-list", str(allowed[-1]), "sh", "-c", "while true; do :; done"]
    with subprocess.Popen(loop) as other:
        record = measure_point(point, 1, spent_before=spent_processor_seconds())
        other.kill()
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    [note] = [check for check in record["verdict"]["checks"] if check["name"] == "undisturbed"]
    assert not note["passed"]
    elsewhere = re.search(r"on all others ([0-9.]+) % of the time of one unit", note["detail"])
    assert float(elsewhere[1]) > 30
    after = record["environment_after"]
    assert allowed[0] in parse_cpu_list(after["load_units"])
    part, whole = after["load_units_processor_seconds"], after["processor_seconds"]
    assert all(0 <= part[kind] <= whole[kind] for kind in whole)
