"""Read the clock that a load's processing units really reached while it ran.

Turbo, power limits and heat change the clock, so it explains differences between nodes, replicates
and hosts. There are two sources:

- APERF and MPERF count only while a unit is not halted, APERF at its real clock and MPERF at the
  rate of the time stamp counter (TSC). The mean clock is APERF / MPERF times the rate of the TSC
  (Intel SDM volume 3, section 15.2; AMD APM volume 2, section 17.3). The kernel's PMU `msr` counts
  APERF and MPERF. The PMU takes no counter from other events, but needs the rights of
  `event_counters`.
- `scaling_cur_freq` of the frequency driver, read while the load runs. Some drivers report the
  clock that they requested, so the mean of these values is an estimate.

Most virtual machines lack both sources. Without a source, the record has a reason and no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from chaosity.records.point_types import CounterRequest
from chaosity.records.record_types_and_verdict import CounterResult, LoadClock
from chaosity.runner.event_counters import counter_value
from chaosity.runner.host_state import read_file_if_present
from chaosity.runner.parse_tool_output import ExtractionError

MSR_PMU = Path("/sys/bus/event_source/devices/msr")
FREQUENCY_FILE = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
_EVENTS = ("aperf", "mperf", "tsc")
# Each file takes some microseconds to read, so the files of only so many units are read.
_MOST_UNITS = 16
COUNTED, ESTIMATED = "APERF and MPERF", "mean of scaling_cur_freq"


def clock_counter_requests(pmu: Path = MSR_PMU) -> dict[str, CounterRequest]:
    """Return name -> request of the counters for the clock; empty if the kernel lacks a counter."""
    kind = read_file_if_present(pmu / "type")
    codes = {name: read_file_if_present(pmu / "events" / name) for name in _EVENTS}
    return {
        name: {"events": [{"type": int(kind), "config": int(code.removeprefix("event="), 16)}]}
        for name, code in codes.items()
        if kind and code and all(codes.values())
    }


def read_scaling_frequency(cpus: Sequence[int], file: str = FREQUENCY_FILE) -> float | None:
    """Return the mean frequency in hertz of at most 16 evenly spread units; None without files."""
    chosen = cpus[:: -(-len(cpus) // _MOST_UNITS)] if cpus else cpus
    texts = (read_file_if_present(file.format(cpu)) for cpu in chosen)
    kilohertz = [int(text) for text in texts if text and text.isdigit()]
    return fmean(kilohertz) * 1e3 if kilohertz else None


def clock_of_load(
    counted: Mapping[str, CounterResult], units: int, frequencies: Sequence[float]
) -> LoadClock:
    """Return the mean clock of a load in hertz with its source, or the reason why it is unknown.

    Args:
        counted: results of `clock_counter_requests`, summed over the units by `counter_value`.
        units: number of the load's processing units.
        frequencies: values of `read_scaling_frequency` while the load ran, in hertz.
    """
    try:
        if not counted:
            raise ExtractionError("the kernel has no APERF and MPERF events")
        aperf, mperf, tsc = (counter_value(counted, name) for name in _EVENTS)
        if not mperf:
            raise ExtractionError("all processing units were halted")
    except ExtractionError as error:
        if frequencies:
            return {"hertz": fmean(frequencies), "source": ESTIMATED}
        return {"hertz": None, "reason": f"{error}, and there is no scaling_cur_freq"}
    # `counter_value` scales the counts of all units to the longest time.
    longest_ns = max(count["time_enabled_ns"] for count in counted["tsc"]["counts"])
    return {"hertz": aperf / mperf * tsc / units / longest_ns * 1e9, "source": COUNTED}
