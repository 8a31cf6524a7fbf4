"""Checks the results for problems that a reader must know: each with its text and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from chaosity.figures.draw_and_write_figures import FigureFile
from chaosity.report.record_summaries import RecordSummary
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_json import part_to_json
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count, format_percent, group_thousands

PROBLEM, WARNING, NOTE, UNKNOWN, OK = "problem", "warning", "note", "unknown", "ok"
SEVERITIES = (PROBLEM, WARNING, NOTE, UNKNOWN, OK)
# A check that fails in a larger share of the records is a warning, otherwise a note.
_WARNING_SHARE = 0.2
_RECORD_ADVICE = {
    "precision": "The intervals in this report show the precision that was reached. For narrower "
    "intervals, raise `max_seconds` in `stopping`, or `replicates`.",
    "undisturbed": "Stop other programs on the host and measure again.",
}


@dataclass(frozen=True)
class ResultCheck:
    """The result of one check.

    Attributes:
        name: of the check, in two or three words.
        severity: problem (a result is missing or wrong), warning (results are valid, but with a
            limit), note, unknown (this machine does not show it), ok.
        text: the result, as a clause without a full stop.
        advice: what to do, or None.
        link: id of the report's section with details, or None.
    """

    name: str
    severity: str
    text: str
    advice: str | None = None
    link: str | None = None


def check_results(
    rows: pd.DataFrame,
    topology: Topology,
    system: HostFacts,
    summaries: Sequence[RecordSummary],
    figures: Sequence[FigureFile],
) -> list[ResultCheck]:
    """All checks, the worst first.

    Args:
        rows: of the tidy table, in numpy types.
        topology: of the host.
        system: document of its system component.
        summaries: of the records.
        figures: drawn or failed to draw.
    """
    checks = [
        _failed_points(rows),
        _missing_points(rows),
        _broken_figures(figures),
        _drives(rows),
        _virtual_machine(system),
        _restrictions(topology),
        _governor(system),
        _huge_pages(system),
        _numa_balancing(system),
        _replicates(rows),
        *_record_checks(summaries),
    ]
    present = [check for check in checks if check is not None]
    return sorted(present, key=lambda check: SEVERITIES.index(check.severity))


def _number_of_points(rows: pd.DataFrame) -> int:
    return len(rows[["experiment", "point"]].drop_duplicates())


def _failed_points(rows: pd.DataFrame) -> ResultCheck:
    failed = rows[rows["status"] == "failed"]
    total = format_count(_number_of_points(rows), "point")
    if failed.empty:
        return ResultCheck("Failed points", OK, f"none of {total} failed")
    reasons = Counter(str(reason).split(":")[0] for reason in failed["reason"].dropna())
    most_common = ", ".join(reason for reason, _ in reasons.most_common(3))
    return ResultCheck(
        "Failed points",
        PROBLEM,
        f"{group_thousands(_number_of_points(failed))} of {total} failed ({most_common})",
        "The next run measures these points again. All reasons are below.",
        "failed",
    )


def _missing_points(rows: pd.DataFrame) -> ResultCheck:
    missing = rows[rows["status"] == "missing"]
    if missing.empty:
        return ResultCheck("Completeness", OK, "all planned points were measured")
    number = _number_of_points(missing)
    reasons = Counter(str(reason) for reason in missing["reason"].dropna())
    return ResultCheck(
        "Completeness",
        PROBLEM,
        f"{format_count(number, 'planned point')} {'is' if number == 1 else 'are'} "
        "without a measurement" + (f" ({reasons.most_common(1)[0][0]})" if reasons else ""),
        "Run again: only these points are measured.",
    )


def _broken_figures(figures: Iterable[FigureFile]) -> ResultCheck | None:
    broken = [figure for figure in figures if figure.problem]
    if not broken:
        return None
    return ResultCheck(
        "Figures",
        PROBLEM,
        f"{format_count(len(broken), 'figure')} could not be drawn: {broken[0].problem}",
        "Correct the key `figures` in the file of the experiment.",
    )


def _drives(rows: pd.DataFrame) -> ResultCheck | None:
    storage = rows[rows["drives"].notna() & (rows["drives"] > 0)]
    if storage.empty:
        return ResultCheck("Drives", NOTE, "no drive was measured")
    if not storage["file_backed"].any():
        return ResultCheck("Drives", OK, "all storage values come from drives")
    return ResultCheck(
        "Drives",
        WARNING,
        "storage values are file-backed: a file on the local file system was read, since there "
        "is no NVMe drive",
        "The values describe this file system, not a drive. Each figure says so.",
    )


def _virtual_machine(system: HostFacts) -> ResultCheck:
    name, hypervisor = "Virtual machine", system.get("hypervisor")
    if hypervisor is None:
        return ResultCheck(name, UNKNOWN, "it is unknown whether this is a virtual machine")
    if not hypervisor:
        return ResultCheck(name, OK, "the operating system runs on the hardware")
    return ResultCheck(
        name,
        WARNING,
        "this is a virtual machine: the hypervisor decides which topology it shows and how much "
        "bandwidth it gives, and other virtual machines can take a share",
        "Trust a difference only if it occurs again in a second run. Measure the hardware itself "
        "if you can.",
    )


def _restrictions(topology: Topology) -> ResultCheck:
    name = "Processors and nodes"
    if not topology.is_restricted:
        return ResultCheck(name, OK, "all that are online can be used")
    listed = ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in part_to_json(topology.restrictions).items()
        if value
    )
    return ResultCheck(
        name,
        WARNING,
        f"only a part of the machine can be used: {listed}",
        "Values of the whole machine are values of this part. Run outside the cgroup or cpuset to "
        "measure all of it.",
    )


def _governor(system: HostFacts) -> ResultCheck:
    name, frequency = "Clock governor", system.get("frequency")
    governors = frequency["governors"] if frequency else []
    if not governors:
        return ResultCheck(name, UNKNOWN, "this machine does not show its clock governor")
    if set(governors) == {"performance"}:
        return ResultCheck(name, OK, "performance on all processing units")
    return ResultCheck(
        name,
        WARNING,
        f"the clock governor is {' and '.join(map(str, governors))}, so the clock can rise too "
        "late under load",
        "Set it to performance with `ansible-playbook configure.yml` and measure again.",
    )


def _huge_pages(system: HostFacts) -> ResultCheck:
    name = "Transparent huge pages"
    mode = (system.get("memory_settings") or {}).get("transparent_huge_pages")
    if mode is None:
        return ResultCheck(name, UNKNOWN, "the setting is unknown")
    if mode != "never":
        return ResultCheck(name, OK, f"set to {mode}")
    return ResultCheck(
        name,
        WARNING,
        "transparent huge pages are off, so address translation can limit memory bandwidth",
        "Set them to madvise or always with `ansible-playbook configure.yml`.",
    )


def _numa_balancing(system: HostFacts) -> ResultCheck:
    name, setting = "NUMA balancing", (system.get("memory_settings") or {}).get("numa_balancing")
    if setting is None:
        return ResultCheck(name, UNKNOWN, "the setting is unknown")
    if str(setting) == "0":
        return ResultCheck(name, OK, "off")
    return ResultCheck(
        name,
        WARNING,
        "the kernel can move pages between nodes during a measurement",
        "Switch it off with `ansible-playbook configure.yml`. The placement of the pages was "
        "verified at the end of each measurement.",
    )


def _replicates(rows: pd.DataFrame) -> ResultCheck | None:
    most = rows.groupby("experiment", sort=False)["replicate"].max()
    single = [str(name).replace("_", " ") for name in most.index[most == 1]]
    if not single:
        return None
    points = "every point" if len(single) == len(most) else f"every point of {', '.join(single)}"
    return ResultCheck(
        "Replicates",
        WARNING,
        f"{points} was measured once, so there are no intervals, and differences cannot be trusted",
        "Set `replicates` to 3 or more.",
    )


def _record_checks(summaries: Sequence[RecordSummary]) -> list[ResultCheck]:
    """Checks of the records that do not decide on validity: how many records did not pass them."""
    details: dict[str, dict[bool | None, list[str]]] = {}
    for summary in summaries:
        for check in summary.checks:
            if not check["decisive"]:
                name = check["name"].split(": ")[-1]
                by_result = details.setdefault(name, {True: [], False: [], None: []})
                by_result[check["passed"]].append(check["detail"])
    checks = []
    for name, by_result in details.items():
        total = sum(map(len, by_result.values()))
        for passed, verb in ((False, "not met"), (None, "could not be determined")):
            if not (examples := by_result[passed]):
                continue
            share = len(examples) / total
            severity = WARNING if share > _WARNING_SHARE else NOTE
            checks.append(
                ResultCheck(
                    name[:1].upper() + name[1:],
                    UNKNOWN if passed is None else severity,
                    f"{verb} in {format_percent(share)} of {format_count(total, 'record')}, "
                    f"for example {examples[0]}",
                    None if passed is None else _RECORD_ADVICE.get(name),
                )
            )
    return checks
