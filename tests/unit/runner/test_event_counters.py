"""Counters: the kernel's own events prove that it counts; what cannot be counted has its reason."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.records.record_format import VALID
from chaosity.runner import event_counters, metric_values
from chaosity.runner.point_measurement import measure_point
from chaosity.runner.tool_output import ExtractionError

# PERF_TYPE_SOFTWARE of perf_event_open(2), and events that every kernel counts.
CLOCK = {"event": "cpu-clock", "type": 1, "config": 0}
TASK_CLOCK = {"event": "task-clock", "type": 1, "config": 1}
SWITCHES = {"event": "context-switches", "type": 1, "config": 3}
NOWHERE = {"event": "nowhere", "type": 1, "config": 99}


def counted_while_sleeping(wanted, seconds=0.05):
    found = event_counters.LoadCounters(wanted, os.sched_getaffinity(0))
    found.start_counting()
    time.sleep(seconds)
    found.stop_counting()
    found.close_counters()
    return found.counted


@pytest.mark.alone
def test_the_kernels_clock_counts_the_time_of_every_unit():
    counted = counted_while_sleeping({"clock": {"events": [CLOCK]}})
    cpus = os.sched_getaffinity(0)
    assert {one["cpu"] for one in counted["clock"]["counts"]} == cpus
    for one in counted["clock"]["counts"]:
        assert one["count"] == pytest.approx(one["time_enabled_ns"], rel=0.02)
        assert one["time_enabled_ns"] >= 0.05e9
    assert event_counters.counter_value(counted, "clock") >= 0.05e9 * len(cpus)
    assert event_counters.smallest_counted_time_share(counted["clock"]) == 1.0


@pytest.mark.alone
def test_events_are_added_and_subtracted():
    minus = {**CLOCK, "sign": -1}
    found = counted_while_sleeping(
        {
            "twice": {"events": [CLOCK, CLOCK]},
            "nothing": {"events": [CLOCK, minus]},
            "once": {"events": [CLOCK]},
        }
    )
    cpus = len(os.sched_getaffinity(0))
    for name, times in (("twice", 2), ("once", 1)):
        # The counters do not begin at one instant: each is held to its own time.
        lasted = max(one["time_enabled_ns"] for one in found[name]["counts"])
        assert event_counters.counter_value(found, name) == pytest.approx(
            times * cpus * lasted, rel=0.02
        )
    lasted = max(one["time_enabled_ns"] for one in found["nothing"]["counts"])
    assert event_counters.counter_value(found, "nothing") < 0.02 * cpus * lasted


@pytest.mark.alone
def test_a_refused_event_keeps_its_reason_and_other_counters_count():
    found = counted_while_sleeping(
        {
            "no": {"events": [CLOCK, NOWHERE]},
            "host": {"reason": "no events are known"},
            "clock": {"events": [CLOCK]},
        }
    )
    assert found["no"] == {"reason": "this machine has no such counter (ENOENT)"}
    assert found["host"] == {"reason": "no events are known"}
    assert event_counters.counter_value(found, "clock") > 0
    for name in ("no", "host", "never"):
        with pytest.raises(ExtractionError):
            event_counters.counter_value(found, name)
    assert event_counters.smallest_counted_time_share(found["no"]) is None


@pytest.mark.alone
def test_a_process_is_counted_with_its_descendants():
    handle = event_counters.open_event_for_process(TASK_CLOCK, os.getpid())
    try:
        used = -time.process_time_ns()
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
        used += time.process_time_ns()
        count, _, _ = event_counters.read_event_count(handle)
    finally:
        os.close(handle)
    assert count > used + 10e6  # a Python takes longer than that to start


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its rights")
def test_without_rights_the_reason_names_the_setting():
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("anybody may count here")
    text = (
        "import json, os, sys\n"
        "from chaosity.runner.event_counters import LoadCounters\n"
        "os.setuid(65534)\n"
        f"print(json.dumps(LoadCounters({{'clock': {{'events': [{CLOCK!r}]}}}}, [0]).counted))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    said = json.loads(answer.stdout)["clock"]["reason"]
    assert "perf_event_paranoid" in said
    assert errno.errorcode[errno.EACCES] in said or errno.errorcode[errno.EPERM] in said


@pytest.mark.alone
@pytest.mark.parametrize("start", ["barrier", "spawn"])
def test_a_load_is_counted_from_its_release_to_its_stop(make_point, start):
    metrics = {
        "bandwidth_bytes_per_second": {"progress": True, "at_most": None},
        "clock_count": {"counter": "clock"},
        "switches_count": {"counter": "switches"},
        "misses_count": {"counter": "misses"},
    }
    wanted = {
        "clock": {"events": [CLOCK]},
        "switches": {"events": [SWITCHES]},
        "misses": {"events": [NOWHERE]},
    }
    how = "unready" if start == "spawn" else ""
    record = measure_point(make_point(how, metrics=metrics, counters=wanted, start=start), 1)
    assert record["verdict"]["status"] == VALID, record["verdict"]["reason"]
    [load] = record["loads"]
    found = metric_values.metric_values_or_reasons(record)["memory"]
    lasted = [one["time_enabled_ns"] for one in load["counted"]["clock"]["counts"]]
    assert len(lasted) == len(os.sched_getaffinity(0))
    assert min(lasted) > 0.15e9  # the stopping rule lets it run for 0.2 s at least
    assert found["clock_count"][0] == pytest.approx(len(lasted) * max(lasted), rel=0.02)
    assert found["switches_count"][0] >= 10  # it sleeps 5 ms at a time
    assert found["misses_count"] == (None, "this machine has no such counter (ENOENT)")
    names = {check["name"] for check in record["verdict"]["checks"]}
    assert "memory: clock_count" in names and "memory: misses_count" not in names
    assert "memory: clock" not in names  # the note on a counter that did not count all the time
    clock = load["clock"]  # most virtual machines have no source, real ones have one
    assert (
        0.3e9 < clock["hertz"] < 10e9
        if clock["hertz"]
        else "no scaling_cur_freq" in clock["reason"]
    )


def count(value, enabled=100, running=100, sign=1, cpu=0):
    return {
        "count": value,
        "time_enabled_ns": enabled,
        "time_running_ns": running,
        "sign": sign,
        "cpu": cpu,
    }


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 100)), min_size=1))
def test_counts_are_scaled_to_the_enabled_time(seen):
    counted = {"c": {"counts": [count(value, 100, running) for value, running in seen]}}
    expected = sum(value * 100 / running for value, running in seen)
    assert event_counters.counter_value(counted, "c") == pytest.approx(expected)
    assert (
        event_counters.smallest_counted_time_share(counted["c"])
        == min(running for _, running in seen) / 100
    )


@pytest.mark.parametrize(
    ("counts", "value"),
    [
        # The second ran half of its time, which began at 40 of 100.
        ([count(1000), count(600, enabled=60, running=30)], pytest.approx(3000)),
        ([count(600, enabled=60, running=60), count(1000, sign=-1)], 0.0),
        # A difference may be below zero, but only slightly.
        ([count(1000), count(1005, sign=-1)], 0.0),
        ([count(1000), count(1500, sign=-1)], "the counter's two events is below zero"),
        ([count(0, 100, 0, cpu=3)], "never ran the counter on PU 3"),
    ],
)
def test_values_of_counts(counts, value):
    if isinstance(value, str):
        with pytest.raises(ExtractionError, match=value):
            event_counters.counter_value({"c": {"counts": counts}}, "c")
    else:
        assert event_counters.counter_value({"c": {"counts": counts}}, "c") == value


# The clock of a load: from the kernel's own counters, else from the driver, else a reason.


CODES = {"aperf": "event=0x01", "mperf": "event=0x02", "tsc": "event=0x00"}


def pmu(folder: Path, codes: dict[str, str]) -> Path:
    """The files by which the kernel names its events, type 10."""
    (folder / "events").mkdir(parents=True)
    (folder / "type").write_text("10\n")
    for name, text in codes.items():
        (folder / "events" / name).write_text(f"{text}\n")
    return folder


def test_events_have_the_numbers_that_the_kernel_gives_them(tmp_path):
    found = event_counters.clock_counter_requests(pmu(tmp_path / "msr", CODES))
    assert found["aperf"] == {"events": [{"type": 10, "config": 1}]}
    assert list(found) == ["aperf", "mperf", "tsc"]


def test_without_one_of_the_events_nothing_is_counted(tmp_path):
    """As in most virtual machines, which show the TSC alone."""
    codes = {"tsc": CODES["tsc"]}
    assert event_counters.clock_counter_requests(pmu(tmp_path / "msr", codes)) == {}
    assert event_counters.clock_counter_requests(tmp_path / "none") == {}


def test_the_clock_is_aperf_over_mperf_times_the_rate_of_the_tsc():
    """Two processing units for 2 s, TSC at 2 GHz; they are busy half of the time, at 3 GHz."""
    two_seconds = 2_000_000_000

    def on_both_units(value):
        return {"counts": [count(value, two_seconds, two_seconds, cpu=cpu) for cpu in range(2)]}

    counted = {
        "aperf": on_both_units(3_000_000_000),
        "mperf": on_both_units(2_000_000_000),
        "tsc": on_both_units(4_000_000_000),
    }
    found = event_counters.clock_of_load(counted, 2, [1e9])
    assert found == {"hertz": pytest.approx(3e9), "source": "APERF and MPERF"}
    halted = {**counted, "mperf": on_both_units(0)}
    assert event_counters.clock_of_load(halted, 2, [])["hertz"] is None


def test_the_drivers_clock_is_an_estimate_and_says_so():
    found = event_counters.clock_of_load({"aperf": {"reason": "it needs root"}}, 2, [2e9, 3e9])
    assert found == {"hertz": 2.5e9, "source": "mean of scaling_cur_freq"}


def test_without_a_source_the_record_has_both_reasons():
    found = event_counters.clock_of_load({"aperf": {"reason": "it needs root (EPERM)"}}, 2, [])
    reason = "it needs root (EPERM), and there is no scaling_cur_freq"
    assert found == {"hertz": None, "reason": reason}


def test_the_drivers_files_are_read_on_evenly_spread_units(tmp_path):
    for cpu in range(64):
        (tmp_path / str(cpu)).write_text(f"{1_000_000 + cpu}\n")
    file = str(tmp_path / "{}")
    # 16 of 64 units: 0, 4, 8, ..., 60, whose mean number is 30.
    assert event_counters.read_scaling_frequency(range(64), file) == pytest.approx(1_000_030e3)
    assert event_counters.read_scaling_frequency((1, 2), file) == pytest.approx(1_000_001.5e3)
    assert event_counters.read_scaling_frequency((64,), file) is None


@pytest.mark.alone
@pytest.mark.skipif(
    os.geteuid() != 0 or not (event_counters.MSR_PMU / "events/tsc").exists(),
    reason="only root counts the TSC, on x86",
)
def test_the_kernels_pmu_counts_the_tsc_at_the_speed_that_the_kernel_prints():
    kind = int((event_counters.MSR_PMU / "type").read_text())
    wanted = {"tsc": {"events": [{"type": kind, "config": 0}]}}
    counted = counted_while_sleeping(wanted)["tsc"]["counts"]
    if (event_counters.MSR_PMU / "events/aperf").exists():
        pytest.skip("the kernel prints the present clock, not the TSC's, where it has APERF")
    printed = re.search(r"cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text())
    for one in counted:
        rate = one["count"] / one["time_enabled_ns"] * 1e9
        assert rate == pytest.approx(float(printed[1]) * 1e6, rel=0.01)
