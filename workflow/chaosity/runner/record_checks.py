"""Check a finished measurement; each check becomes a line of the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from signal import Signals
from typing import Any

from chaosity.cpusets import parse_cpu_list
from chaosity.records.record_format import (
    ENDED_WELL,
    VALUES,
    Check,
    Load,
    LoadRecord,
    UnfinishedRecord,
    make_check,
)
from chaosity.runner import event_counters, metric_values
from chaosity.runner.metric_values import (
    common_time_span,
    rate_precision,
    spans_without_pauses,
)
from chaosity.runner.observed_state import SHARE_TOLERANCE, page_share_deviations
from chaosity.runner.tool_output import ExtractionError, extract_values

# Share of a load's private pages that must be on the requested nodes. The remaining pages are
# stacks and library data of some MiB; working sets have hundreds of MiB.
LEAST_SHARE_ON_REQUESTED_NODES = 0.98
# If a load has less private memory than these bytes, a smaller share on the requested nodes is
# accepted.
SMALL_MEMORY_BYTES = 32 * 1024 * 1024
LEAST_SHARE_OF_SMALL_MEMORY = 0.9
# Largest accepted step of the wall clock in seconds. A larger step shifts the time stamps of fio
# against the time stamps of other loads.
MOST_CLOCK_STEP_SECONDS = 0.005
# Share of the time of the loads' units that other programs may take before the record gets a note.
# One per cent is far less than the effects that are measured.
MOST_TIME_SHARE_OF_OTHER_PROGRAMS = 0.01
# Share of one unit's time that other programs may take, in sum, on all units without a load. If the
# loads have more than five units, the limit is one per cent of the time of these units. Programs on
# other units share only memory and caches with the loads. One core uses at most about a fifth of a
# node's bandwidth, so 5 % of the core's time change a value by at most 1 %. The services of an idle
# server with hundreds of units need less than 5 % of the time of one unit.
MOST_UNITS_OF_OTHER_PROGRAMS_ELSEWHERE = 0.05

# Share of the common window in which tools that run repeatedly should measure at the same time. The
# value of a run is a mean that includes the pauses of the other tool. If the tools measure together
# in 80 % of the time, this mean may hide a fifth of a loss.
LEAST_TIME_SHARE_OF_COMMON_RUNS = 0.8

# Comparisons that a benchmark file may use below ``valid``. Each function gets the found and the
# wanted value, and returns whether the comparison is true.
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": lambda value, wanted: str(value) == str(wanted),
    "one_of": lambda value, wanted: str(value) in map(str, wanted),
    "at_least": lambda value, wanted: float(value) >= float(wanted),
    "at_most": lambda value, wanted: float(value) <= float(wanted),
}


def _check_exit_status(load: LoadRecord) -> Check:
    """Check that the tool ended with a status that its benchmark file allows."""
    status, signalled = load["exit_status"], load["signalled"]
    allowed = load["stop"]["exit"] if signalled else [0]
    passed = status in allowed and signalled != "KILL"
    detail = f"exit status {status}" + (f" after SIG{signalled}" if signalled else "")
    if signalled == "KILL":
        detail = "it ignored the stop signal and was killed"
    elif status is not None and status < 0:
        detail = f"it was ended by {Signals(-status).name}"
    errors = load["outputs"]["stderr"].strip().splitlines()
    if errors and not passed:
        detail += f": {errors[-1][:300]}"
    return make_check(f"{load['name']}{ENDED_WELL}", passed, detail)


def check_output_rules(load: LoadRecord) -> list[Check]:
    """Check each rule of the benchmark file (``valid``) against the tool's output."""
    checks = []
    for rule in load["valid"]:
        kind, wanted = next((key, value) for key, value in rule.items() if key in COMPARISONS)
        try:
            values = extract_values(rule, load["outputs"])
            passed = all(COMPARISONS[kind](value, wanted) for value in values)
            detail = ", ".join(dict.fromkeys(map(str, values)))[:200]
            detail += "" if passed else f", required: {kind.replace('_', ' ')} {wanted}"
        except (ExtractionError, TypeError, ValueError, OverflowError) as error:
            passed, detail = False, str(error)
        checks.append(make_check(f"{load['name']}: {rule['name']}", passed, detail))
    return checks


def _check_not_emulated(load: LoadRecord) -> list[Check]:
    """Return a failed check if the program was emulated, even if its results are right."""
    if (emulator := load["program"].get("emulator")) is None:
        return []
    detail = f"{emulator} emulated the program, so its figures are meaningless"
    return [make_check(f"{load['name']}: not emulated", False, detail)]


def _check_thread_cpus(load: LoadRecord) -> Check:
    """Check that threads run only on the initiator's units, and pinned threads on each unit."""
    name, placement = f"{load['name']}: threads", load["placement"]
    seen = load["placement_seen"]
    if not seen:
        return make_check(name, False, "the load ended before its threads were seen")
    wanted = set(parse_cpu_list(placement["cpus"]))
    allowed = [set(parse_cpu_list(thread["cpus_allowed"] or "")) for thread in seen["threads"]]
    pinned = set().union(*(cpus for cpus in allowed if len(cpus) == 1))
    if strayed := sum(not cpus <= wanted for cpus in allowed):
        detail = f"{strayed} of {len(allowed)} threads may leave {sorted(wanted)}"
    elif placement.get("pinned") and pinned != wanted:
        detail = f"threads are pinned to {sorted(pinned)}, not {sorted(wanted)}"
    else:
        return make_check(name, True, f"{len(allowed)} threads within {placement['cpus']}")
    return make_check(name, False, detail)


def least_bytes_for_check_of_pages(load: Load) -> float:
    """Return the least private memory in bytes that the check of a load's pages needs."""
    least = load["memory_bytes"] * LEAST_SHARE_ON_REQUESTED_NODES
    # A named mapping contains only the measured memory, without stacks and libraries.
    own_mapping = load["placement"].get("mapping") is not None
    return max(1.0, least if own_mapping else min(SMALL_MEMORY_BYTES, least))


def check_page_nodes(load: LoadRecord) -> Check:
    """Check that the pages are on the requested nodes, in the requested shares.

    If pages move while the load runs, the last observation counts and shares are not checked.
    """
    name, placement = f"{load['name']}: pages", load["placement"]
    seen = load["placement_seen"]
    by_node = seen["memory_bytes_by_node"] if seen else None
    if by_node is None:
        return make_check(name, None, "this kernel has no numa_maps", decisive=False)
    total = sum(by_node.values())
    own_mapping = placement.get("mapping") is not None
    if total < least_bytes_for_check_of_pages(load):
        return make_check(name, False, f"only {total} bytes of private memory were seen")
    shares = placement.get("shares")
    if shares and not placement.get("settles"):
        return check_page_shares(name, shares, by_node)
    nodes = placement["memory_nodes"]
    share = sum(by_node.get(str(node), 0) for node in nodes) / total
    detail = f"{100 * share:.2f} % of {total} bytes on node {','.join(map(str, nodes))}"
    strict = own_mapping or total >= SMALL_MEMORY_BYTES
    passed = share >= (LEAST_SHARE_ON_REQUESTED_NODES if strict else LEAST_SHARE_OF_SMALL_MEMORY)
    return make_check(name, passed, detail)


def check_page_shares(name: str, wanted: Mapping[str, float], by_node: Mapping[str, int]) -> Check:
    """Check that every node has its share of the pages, including nodes with a share of 0."""
    total = sum(by_node.values())
    seen = {node: size / total for node, size in by_node.items()}
    deviations = page_share_deviations(wanted, seen)
    worst = max(deviations, key=deviations.__getitem__)
    detail = (
        f"node {worst} has {100 * seen.get(worst, 0.0):.2f} % of {total} bytes,"
        f" requested: {100 * wanted.get(worst, 0.0):.2f} %; no other node deviates more"
    )
    return make_check(name, deviations[worst] <= SHARE_TOLERANCE, detail)


def check_metric_bounds(
    load: LoadRecord, readings: Mapping[str, metric_values.Reading]
) -> list[Check]:
    """Check that every value is positive, finite and not above the hardware's bound.

    Zero is allowed for counters, and for metrics whose benchmark file allows zero.
    """
    checks = []
    for metric, (reading, _) in readings.items():
        # The metric is optional; the tidy table has the reason for the missing value.
        if reading is None:
            continue
        source = load["metrics"][metric]
        bound = source.get("at_most")
        may_be_zero = source.get("may_be_zero") or "counter" in source
        for node, value in metric_values.values_by_node(reading).items():
            name = f"{load['name']}: {metric}" + (f" of node {node}" if node else "")
            passed = math.isfinite(value) and (value > 0 or (value == 0 and bool(may_be_zero)))
            detail = f"{value} is not a possible value"
            if passed and bound is not None:
                passed, above = value <= bound, f"{value:.4g} is above the bound {bound:.4g}"
                detail = f"at most {bound:.4g}" if passed else above
            elif passed:
                detail = "no upper bound is known"
            checks.append(make_check(name, passed, detail))
    return checks


def _check_counter_times(load: LoadRecord) -> list[Check]:
    """Return a note for each counter that counted only part of the time."""
    checks = []
    for name, counted in load.get("counted", {}).items():
        share = event_counters.smallest_counted_time_share(counted)
        if share is not None and share < 1.0:
            detail = f"counted for {100 * share:.1f} % of the time, and scaled up"
            label = f"{load['name']}: {name}"
            checks.append(make_check(label, False, detail, decisive=False))
    return checks


def checks_of_tool_remarks(load: LoadRecord) -> list[Check]:
    """Return a note for each remark that the tool wrote about its run; null means no remark."""
    checks = []
    for source in load.get("notes", []):
        try:
            values = extract_values(source, load["outputs"])
        except ExtractionError:
            continue  # the tool did not write this remark
        remark = "; ".join(str(value) for value in values if value is not None)
        name = f"{load['name']}: {source['name']}"
        checks.append(make_check(name, not remark, remark or "no remark", decisive=False))
    return checks


def _notes_on_progress(record: UnfinishedRecord) -> list[Check]:
    """Return notes on the precision of each rate, and on pauses of loads that run together."""
    checks = []
    wanted = record["stopping"].get("relative_precision")
    series = metric_values.series_by_load(record)
    window = metric_values.common_window_of_loads(record, series)
    for name, own in series.items() if wanted is not None else ():
        begin, end = window or common_time_span(own)
        reached = rate_precision(own, begin, end)
        width = reached and reached.relative_half_width
        limit = f"{end - begin:.2f} s of at most {record['stopping']['max_seconds']:g} s"
        detail = "too few samples" if width is None else f"±{100 * width:.2f} % in {limit}"
        passed = None if width is None or wanted is None else width <= wanted
        checks.append(make_check(f"{name}: precision", passed, detail, decisive=False))
    pausing = metric_values.series_of_pausing_loads(record, series)
    if pausing and window and len(record["loads"]) > 1:
        spans = spans_without_pauses(pausing, *window)
        share = sum(end - begin for begin, end in spans) / (window[1] - window[0])
        detail = f"{100 * share:.0f} % of the common window; repeated tools pause between runs"
        passed = share >= LEAST_TIME_SHARE_OF_COMMON_RUNS
        checks.append(make_check("measured together", passed, detail, decisive=False))
    return checks


def _check_foreign_processor_time(record: UnfinishedRecord) -> Check:
    """Return a note on the processor time that other programs and the hypervisor took."""
    # The loads run only on their own units. The runner may have run on any unit. So there are two
    # upper limits for the time of other programs on the loads' units: the busy time of these units
    # minus the time of the loads, and the busy time of the host minus the time of the loads and of
    # the runner.
    before, after = record["environment_before"], record["environment_after"]
    # Interrupts of drives are work of loads that read these drives, and take some per cent of the
    # time at full speed. So the time of interrupts does not count if a load reads drives.
    reads_drives = any(load["target"].get("drives") for load in record["loads"])
    interrupts = () if reads_drives else ("irq", "softirq")
    kinds = ("user", "nice", "system", "steal", *interrupts)
    host = before["processor_seconds"], after["processor_seconds"]
    # If the times of the loads' units are unknown, all time counts as taken on these units.
    on_units = (
        before.get("load_units_processor_seconds", host[0]),
        after.get("load_units_processor_seconds", host[1]),
    )
    loads = sum(load["processor_seconds"] for load in record["loads"])
    foreign = max(0.0, _seconds_between(*host, kinds) - loads - record["runner_seconds"])
    here = min(foreign, max(0.0, _seconds_between(*on_units, kinds) - loads))
    elapsed = max(after["taken_monotonic_seconds"] - before["taken_monotonic_seconds"], 1e-9)
    units = set().union(*(parse_cpu_list(load["placement"]["cpus"]) for load in record["loads"]))
    available = elapsed * max(len(units), 1)
    share, elsewhere = here / available, (foreign - here) / elapsed
    stolen = _seconds_between(*on_units, ["steal"]) / available
    allowed_elsewhere = max(
        MOST_UNITS_OF_OTHER_PROGRAMS_ELSEWHERE, MOST_TIME_SHARE_OF_OTHER_PROGRAMS * len(units)
    )
    passed = share <= MOST_TIME_SHARE_OF_OTHER_PROGRAMS and elsewhere <= allowed_elsewhere
    detail = f"other programs took {100 * share:.1f} % of the time of the load's processing units"
    if elsewhere > 0:
        detail += f", and on all others {100 * elsewhere:.1f} % of the time of one unit"
    detail += f"; the hypervisor took {100 * stolen:.1f} %" if stolen > 0 else ""
    return make_check("undisturbed", passed, detail, decisive=False)


def _seconds_between(
    before: Mapping[str, float], after: Mapping[str, float], kinds: Sequence[str]
) -> float:
    """Return the processor seconds of the given kinds between two host states."""
    return sum(after.get(kind, 0.0) - before.get(kind, 0.0) for kind in kinds)


def _check_clock_was_not_set(record: UnfinishedRecord) -> Check:
    """Check that nobody set the wall clock; decisive only if time stamps are from this clock."""
    step = abs(
        record["environment_after"]["realtime_minus_monotonic_seconds"]
        - record["environment_before"]["realtime_minus_monotonic_seconds"]
    )
    needed = len(record["loads"]) > 1 and any(
        load["progress"] and load["progress"].get("clock") == "realtime" for load in record["loads"]
    )
    detail = f"moved by {1000 * step:.2f} ms against the monotonic clock"
    return make_check("wall clock", step <= MOST_CLOCK_STEP_SECONDS, detail, decisive=needed)


def check_record(record: UnfinishedRecord) -> list[Check]:
    """Return all checks of a finished measurement."""
    checks: list[Check] = []
    for load in record["loads"]:
        checks += [_check_exit_status(load), *check_output_rules(load), *_check_not_emulated(load)]
        checks += [_check_thread_cpus(load), check_page_nodes(load), *checks_of_tool_remarks(load)]
    try:
        readings = metric_values.metric_values_or_reasons(record)
        for load in record["loads"]:
            checks += check_metric_bounds(load, readings[load["name"]])
            checks += _check_counter_times(load)
        checks += _notes_on_progress(record)
    except ExtractionError as error:
        checks.append(make_check(VALUES, False, str(error)))
    return [*checks, _check_clock_was_not_set(record), _check_foreign_processor_time(record)]
