"""Checks that a measurement means what it says: each gives one line of the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from chaosity.records import make_check
from chaosity.runner import event_counters, metric_values, progress
from chaosity.runner.observed_placement import SHARE_TOLERANCE, parse_cpus, share_deviations
from chaosity.runner.tool_output import ExtractionError, extract_values

# Share of a load's private pages that must lie on the nodes asked for. The rest is stacks and
# library data, some MiB beside working sets of hundreds.
MEMORY_SHARE = 0.98
# Below this much private memory a share says nothing.
MEMORY_FLOOR_BYTES = 32 * 1024 * 1024
# A wall clock that was stepped by more than this moves fio's time stamps against the others'.
CLOCK_STEP_SECONDS = 0.005
# Processor time of others, as a share of the time that the initiators' units had, above which a
# reader should know. One per cent is well below the effects that are looked for.
FOREIGN_SHARE = 0.01

Check = dict[str, Any]
# Comparisons that a benchmark file may use below ``valid``.
COMPARISONS = {
    "equals": lambda seen, wanted: str(seen) == str(wanted),
    "one_of": lambda seen, wanted: str(seen) in [str(one) for one in wanted],
    "at_least": lambda seen, wanted: float(seen) >= float(wanted),
    "at_most": lambda seen, wanted: float(seen) <= float(wanted),
}


def check_exit_status(load: Mapping[str, Any]) -> Check:
    """The tool ended as its benchmark file says that it ends when all is well."""
    status, signalled = load["exit_status"], load["signalled"]
    good = load["stop"]["exit"] if signalled else [0]
    said = load["outputs"]["stderr"].strip().splitlines()
    detail = f"exit status {status}" + (f" after SIG{signalled}" if signalled else "")
    passed = status in good and signalled != "KILL"
    return make_check(
        f"{load['name']}: ended well",
        passed,
        detail if passed or not said else f"{detail}: {said[-1][:300]}",
    )


def check_output_rules(load: Mapping[str, Any]) -> list[Check]:
    """The tool's own account agrees with what was asked of it."""
    checks = []
    for rule in load["valid"]:
        kind = next(name for name in COMPARISONS if name in rule)
        name = f"{load['name']}: {rule['name']}"
        try:
            seen = extract_values(rule, load["outputs"])
            passed = all(COMPARISONS[kind](one, rule[kind]) for one in seen)
            shown = ", ".join(dict.fromkeys(str(one) for one in seen))
            detail = f"{shown[:200]}" if passed else f"{shown[:200]}, wanted {kind} {rule[kind]}"
        except (ExtractionError, TypeError, ValueError) as error:
            passed, detail = False, str(error)
        checks.append(make_check(name, passed, detail))
    return checks


def check_threads(load: Mapping[str, Any]) -> Check:
    """Every thread may run only on the initiator's units; a pinning tool has one on each."""
    name = f"{load['name']}: threads"
    seen = load["placement_seen"]
    if not seen:
        return make_check(name, False, "the load ended before its placement could be seen")
    wanted = parse_cpus(load["placement"]["cpus"])
    allowed = [parse_cpus(thread["cpus_allowed"]) for thread in seen["threads"]]
    strayed = sum(1 for one in allowed if not one <= wanted)
    if strayed:
        return make_check(
            name, False, f"{strayed} of {len(allowed)} threads may leave {sorted(wanted)}"
        )
    pinned = {next(iter(one)) for one in allowed if len(one) == 1}
    if load["placement"].get("pinned") and pinned != wanted:
        return make_check(
            name, False, f"threads are pinned to {sorted(pinned)}, not {sorted(wanted)}"
        )
    return make_check(name, True, f"{len(allowed)} threads within {load['placement']['cpus']}")


def check_pages(load: Mapping[str, Any]) -> Check:
    """The pages are on the nodes that were asked for, in the shares that were asked for.

    Where pages are moved while the load runs, the last look counts and no shares are wanted.
    """
    name = f"{load['name']}: pages"
    nodes = load["placement"]["memory_nodes"]
    seen = load["placement_seen"] or {}
    by_node = seen.get("memory_bytes_by_node")
    if by_node is None:
        return make_check(name, None, "this kernel has no numa_maps", decisive=False)
    total = sum(by_node.values())
    alone = load["placement"].get("mapping") is not None
    floor = load["memory_bytes"] * MEMORY_SHARE
    if total < (floor if alone else min(MEMORY_FLOOR_BYTES, floor)) or not total:
        return make_check(name, False, f"only {total} bytes of private memory were seen")
    wanted = load["placement"].get("shares")
    if wanted and not load["placement"].get("settles"):
        return check_page_shares(name, wanted, by_node)
    share = sum(by_node.get(str(node), 0) for node in nodes) / total
    detail = f"{100 * share:.2f} % of {total} bytes on node {','.join(map(str, nodes))}"
    return make_check(name, share >= required_page_share(total, alone=alone), detail)


def check_page_shares(name: str, wanted: Mapping[str, float], by_node: Mapping[str, int]) -> Check:
    """Every node has its share of the pages, those that should have none too."""
    total = sum(by_node.values())
    seen = {node: size / total for node, size in by_node.items()}
    off = share_deviations(wanted, seen)
    worst = max(off, key=off.__getitem__)
    detail = (
        f"node {worst} has {100 * seen.get(worst, 0.0):.2f} % of {total} bytes,"
        f" {100 * wanted.get(worst, 0.0):.2f} % were wanted; no node is farther off"
    )
    return make_check(name, off[worst] <= SHARE_TOLERANCE, detail)


def required_page_share(total: int, *, alone: bool) -> float:
    """The share of pages that must be where they were asked for.

    Args:
        total: bytes that were seen.
        alone: whether they are those of the measured memory alone, without stacks and libraries.
    """
    return MEMORY_SHARE if alone or total >= MEMORY_FLOOR_BYTES else 0.9


def check_metric_bounds(
    load: Mapping[str, Any], found: Mapping[str, metric_values.Reading]
) -> list[Check]:
    """Every value is a positive number, and not more than the hardware can do.

    Counts and shares may be zero, where their benchmark file says so; a counter's always.
    """
    checks = []
    for metric, (given, _) in found.items():
        source = load["metrics"][metric]
        bound = source.get("at_most")
        may_be_zero = source.get("may_be_zero") or "counter" in source
        if given is None:  # an optional one; its row of the table says why
            continue
        for node, value in metric_values.values_by_node(given).items():
            name = f"{load['name']}: {metric}" + (f" of node {node}" if node else "")
            if not math.isfinite(value) or value < 0 or (value == 0 and not may_be_zero):
                checks.append(make_check(name, False, f"{value} is no measurement"))
            elif bound is not None and value > bound:
                checks.append(
                    make_check(name, False, f"{value:.4g} is above the bound {bound:.4g}")
                )
            else:
                limit = "no upper bound is known" if bound is None else f"at most {bound:.4g}"
                checks.append(make_check(name, True, limit))
    return checks


def check_counter_times(load: Mapping[str, Any]) -> list[Check]:
    """Whether each counter counted all the time or took turns with others (a note)."""
    checks = []
    for name, counted in load.get("counted", {}).items():
        share = event_counters.counted_time_share(counted)
        if share is not None and share < 1.0:
            detail = f"it counted {100 * share:.1f} % of the time, and is scaled up"
            checks.append(make_check(f"{load['name']}: {name}", False, detail, decisive=False))
    return checks


def check_notes(load: Mapping[str, Any]) -> list[Check]:
    """What the tool says in words of its own run (a note); null is nothing to say."""
    checks = []
    for source in load.get("notes", []):
        try:
            seen = extract_values(source, load["outputs"])
        except ExtractionError:
            continue  # the tool did nothing that could be noted
        said = "; ".join(str(one) for one in seen if one is not None)
        name = f"{load['name']}: {source['name']}"
        checks.append(make_check(name, not said, said or "nothing was noted", decisive=False))
    return checks


def check_precision(record: Mapping[str, Any]) -> list[Check]:
    """Whether each load's rate settled as closely as the stopping rule asks (a note)."""
    wanted = record["stopping"].get("relative_precision")
    if wanted is None:
        return []
    checks = []
    series = metric_values.progress_by_load(record)
    common = metric_values.common_window(record, series)
    for name, one in series.items():
        begin, end = common or progress.common_span(one)
        width = progress.relative_half_width(one, begin, end)
        detail = "too few samples to tell" if width is None else f"±{100 * width:.2f} % in the run"
        passed = None if width is None else width <= wanted
        checks.append(make_check(f"{name}: precision", passed, detail, decisive=False))
    return checks


def check_undisturbed(record: Mapping[str, Any]) -> Check:
    """How much processor time others took meanwhile, the hypervisor's included (a note)."""
    before, after = record["environment_before"], record["environment_after"]
    spent = {
        kind: after["processor_seconds"].get(kind, 0) - before["processor_seconds"].get(kind, 0)
        for kind in before["processor_seconds"]
    }
    busy = sum(spent.get(k, 0) for k in ("user", "nice", "system", "irq", "softirq", "steal"))
    own = sum(load["processor_seconds"] for load in record["loads"]) + record["runner_seconds"]
    elapsed = after["taken_monotonic_seconds"] - before["taken_monotonic_seconds"]
    units = set().union(*(parse_cpus(load["placement"]["cpus"]) for load in record["loads"]))
    share = max(0.0, busy - own) / max(elapsed * len(units), 1e-9)
    stolen = spent.get("steal", 0) / max(elapsed * len(units), 1e-9)
    detail = f"others took {100 * share:.1f} % of the units' time"
    detail += f", {100 * stolen:.1f} % was stolen by the hypervisor" if stolen > 0 else ""
    return make_check("undisturbed", share <= FOREIGN_SHARE, detail, decisive=False)


def check_clock(record: Mapping[str, Any]) -> Check:
    """The wall clock was not stepped meanwhile; decisive where time stamps hang on it."""
    step = abs(
        record["environment_after"]["realtime_minus_monotonic_seconds"]
        - record["environment_before"]["realtime_minus_monotonic_seconds"]
    )
    needed = len(record["loads"]) > 1 and any(
        (load["progress"] or {}).get("clock") == "realtime" for load in record["loads"]
    )
    detail = f"moved by {1000 * step:.2f} ms against the monotonic clock"
    return make_check("wall clock", step <= CLOCK_STEP_SECONDS, detail, decisive=needed)


def check_record(record: Mapping[str, Any]) -> list[Check]:
    """All checks of a finished measurement."""
    checks: list[Check] = []
    for load in record["loads"]:
        checks += [check_exit_status(load), *check_output_rules(load)]
        checks += [check_threads(load), check_pages(load), *check_notes(load)]
    try:
        found = metric_values.metric_readings(record)
        for load in record["loads"]:
            checks += check_metric_bounds(load, found[load["name"]])
            checks += check_counter_times(load)
        checks += check_precision(record)
    except ExtractionError as error:
        checks.append(make_check("values", False, str(error)))
    return [*checks, check_clock(record), check_undisturbed(record)]
