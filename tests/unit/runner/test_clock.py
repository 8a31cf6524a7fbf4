"""The clock of a load: from the kernel's own counters, else from the driver, else a reason."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from test_event_counters import counted_while_sleeping

from chaosity.runner import event_counters

CODES = {"aperf": "event=0x01", "mperf": "event=0x02", "tsc": "event=0x00"}


def pmu(folder: Path, codes: dict[str, str]) -> Path:
    """The files by which the kernel names its events, type 10."""
    (folder / "events").mkdir(parents=True)
    (folder / "type").write_text("10\n")
    for name, text in codes.items():
        (folder / "events" / name).write_text(f"{text}\n")
    return folder


def counts(value: int, *times: tuple[int, int]) -> dict:
    """Counts of one event on some units: `value` on each, with enabled and running time."""
    return {
        "counts": [
            {"cpu": cpu, "count": value, "time_enabled_ns": on, "time_running_ns": ran}
            for cpu, (on, ran) in enumerate(times)
        ]
    }


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
    whole = (2_000_000_000, 2_000_000_000)
    counted = {
        "aperf": counts(3_000_000_000, whole, whole),
        "mperf": counts(2_000_000_000, whole, whole),
        "tsc": counts(4_000_000_000, whole, whole),
    }
    found = event_counters.clock_of_load(counted, 2, [1e9])
    assert found == {"hertz": pytest.approx(3e9), "source": "APERF and MPERF"}
    halted = {**counted, "mperf": counts(0, whole, whole)}
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
