"""Is anything wrong? What was looked at, what was found, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from chaosity.figures import FigureFile
from chaosity.report.record_summaries import Run
from chaosity.units import format_count, format_percent, group_thousands

PROBLEM, WARNING, NOTE, UNKNOWN, OK = "problem", "warning", "note", "unknown", "ok"
SEVERITIES = (PROBLEM, WARNING, NOTE, UNKNOWN, OK)
# A note on more than this share of the records is about the whole run.
_MANY = 0.2
Document = Mapping[str, Any]


@dataclass(frozen=True)
class ResultCheck:
    """One thing that was looked at.

    Attributes:
        name: what, in two or three words.
        severity: problem (a result is missing or wrong), warning (results hold, but not for what
            one might think), note, unknown (it could not be seen here), ok.
        text: what was found.
        advice: what to do about it, or None.
        link: the report's section that has the details, or None.
    """

    name: str
    severity: str
    text: str
    advice: str | None = None
    link: str | None = None


def check_results(
    tidy: pd.DataFrame,
    topology: Document,
    system: Document,
    runs: Sequence[Run],
    figures: Sequence[FigureFile],
) -> list[ResultCheck]:
    """Everything that was looked at, the worst first.

    Args:
        tidy: the tidy table, plain.
        topology: `Topology.to_json()`.
        system: the system component.
        runs: summaries of the records.
        figures: that were drawn, and those that were not.
    """
    checks = [
        _failed(tidy),
        _missing(tidy),
        _drawn(figures),
        _drives(tidy),
        _virtual(system),
        _restricted(topology),
        _governor(system),
        _huge_pages(system),
        _balancing(system),
        _replicates(tidy),
        *_notes_of_records(runs),
    ]
    found = [check for check in checks if check is not None]
    return sorted(found, key=lambda check: SEVERITIES.index(check.severity))


def _points(tidy: pd.DataFrame) -> int:
    return len(tidy[["experiment", "point"]].drop_duplicates())


def _failed(tidy: pd.DataFrame) -> ResultCheck:
    failed = tidy[tidy["status"] == "failed"]
    total = _points(tidy)
    if failed.empty:
        return ResultCheck("Failed points", OK, f"none of {format_count(total, 'point')} failed")
    reasons = Counter(str(reason).split(":")[0] for reason in failed["reason"].dropna())
    listed = ", ".join(reason for reason, _ in reasons.most_common(3))
    return ResultCheck(
        "Failed points",
        PROBLEM,
        f"{group_thousands(_points(failed))} of {format_count(total, 'point')} failed ({listed})",
        "The reasons stand below; the next run measures these points again.",
        "failed",
    )


def _missing(tidy: pd.DataFrame) -> ResultCheck:
    missing = tidy[tidy["status"] == "missing"]
    if missing.empty:
        return ResultCheck("Completeness", OK, "every planned point was measured")
    reasons = Counter(str(reason) for reason in missing["reason"].dropna())
    return ResultCheck(
        "Completeness",
        PROBLEM,
        f"{format_count(_points(missing), 'planned point')} "
        f"{'is' if _points(missing) == 1 else 'are'} without a measurement"
        + (f" ({reasons.most_common(1)[0][0]})" if reasons else ""),
        "Run again: only these are measured.",
    )


def _drawn(figures: Iterable[FigureFile]) -> ResultCheck | None:
    broken = [figure for figure in figures if figure.problem]
    if not broken:
        return None
    return ResultCheck(
        "Figures",
        PROBLEM,
        f"{format_count(len(broken), 'figure')} could not be drawn: {broken[0].problem}",
        "Mend the list `figures` of the experiment's file.",
    )


def _drives(tidy: pd.DataFrame) -> ResultCheck | None:
    storage = tidy[tidy["drives"].notna() & (tidy["drives"] > 0)]
    if storage.empty:
        return ResultCheck("Drives", NOTE, "no drive was measured")
    if not storage["file_backed"].any():
        return ResultCheck("Drives", OK, "storage values come from the drives themselves")
    return ResultCheck(
        "Drives",
        WARNING,
        "storage values are file-backed: a file on the local file system stood in for drives",
        "They say what this file system gives, not what a drive can do; every figure says so.",
    )


def _virtual(system: Document) -> ResultCheck:
    hypervisor = system.get("hypervisor")
    if hypervisor is None:
        return ResultCheck(
            "Virtual machine", UNKNOWN, "whether this is a virtual machine is not known"
        )
    if not hypervisor:
        return ResultCheck("Virtual machine", OK, "the operating system runs on the hardware")
    return ResultCheck(
        "Virtual machine",
        WARNING,
        "this is a virtual machine: topology and bandwidth are what the hypervisor shows and "
        "lends, and neighbours can take a share",
        "Trust differences between places only when they repeat; measure the hardware itself "
        "where you can.",
    )


def _restricted(topology: Document) -> ResultCheck:
    if not topology.get("restricted"):
        return ResultCheck("Processors and nodes", OK, "all that are online may be used")
    details = {
        name.replace("_", " "): value
        for name, value in (topology.get("restrictions") or {}).items()
        if value
    }
    listed = ", ".join(f"{name} {value}" for name, value in details.items())
    return ResultCheck(
        "Processors and nodes",
        WARNING,
        "only a part of the machine may be used" + (f": {listed}" if listed else ""),
        "Whole-machine values are those of the part; run outside the cgroup or cpuset for all.",
    )


def _governor(system: Document) -> ResultCheck:
    governors = (system.get("frequency") or {}).get("governors")
    if not governors:
        return ResultCheck(
            "Clock governor", UNKNOWN, "this machine does not show its clock governor"
        )
    if set(governors) == {"performance"}:
        return ResultCheck("Clock governor", OK, "performance on every processing unit")
    return ResultCheck(
        "Clock governor",
        WARNING,
        f"the clock governor is {' and '.join(map(str, governors))}, so clocks may lag behind load",
        "Set it to performance with `ansible-playbook configure.yml` and measure again.",
    )


def _huge_pages(system: Document) -> ResultCheck:
    mode = (system.get("memory_settings") or {}).get("transparent_huge_pages")
    if mode is None:
        return ResultCheck("Transparent huge pages", UNKNOWN, "their setting is not known")
    if mode != "never":
        return ResultCheck("Transparent huge pages", OK, f"set to {mode}")
    return ResultCheck(
        "Transparent huge pages",
        WARNING,
        "transparent huge pages are off, so address translation can limit memory bandwidth",
        "Set them to madvise or always with `ansible-playbook configure.yml`.",
    )


def _balancing(system: Document) -> ResultCheck:
    balancing = (system.get("memory_settings") or {}).get("numa_balancing")
    if balancing is None:
        return ResultCheck("NUMA balancing", UNKNOWN, "its setting is not known")
    if str(balancing) == "0":
        return ResultCheck("NUMA balancing", OK, "off")
    return ResultCheck(
        "NUMA balancing",
        WARNING,
        "the kernel may move pages between nodes while a point is measured",
        "Switch it off with `ansible-playbook configure.yml`; placement was verified at the end "
        "of each point.",
    )


def _replicates(tidy: pd.DataFrame) -> ResultCheck | None:
    most = tidy.groupby("experiment", sort=False)["replicate"].max()
    once = [name.replace("_", " ") for name in most.index[most == 1]]
    if not once:
        return None
    which = "every point" if len(once) == len(most) else f"every point of {', '.join(once)}"
    return ResultCheck(
        "Replicates",
        WARNING,
        f"{which} was measured once: no interval can be given and no difference be trusted",
        "Set `replicates` to 3 or more.",
    )


def _notes_of_records(runs: Sequence[Run]) -> list[ResultCheck]:
    """Checks of the records that do not decide but that a reader should know of."""
    found: dict[str, dict[bool | None, list[str]]] = {}
    for run in runs:
        for check in run.checks:
            if not check["decisive"]:
                name = str(check["name"]).split(": ")[-1]
                details = found.setdefault(name, {True: [], False: [], None: []})
                details[check["passed"]].append(str(check["detail"]))
    checks = []
    for name, details in found.items():
        total = sum(map(len, details.values()))
        for passed, verb in ((False, "not met"), (None, "not to be told")):
            number = len(details[passed])
            if not number:
                continue
            severity = WARNING if number > _MANY * total else NOTE
            text = f"{verb} in {format_percent(number / total)} of {format_count(total, 'record')}"
            checks.append(
                ResultCheck(
                    name[:1].upper() + name[1:],
                    UNKNOWN if passed is None else severity,
                    f"{text}, for example {details[passed][0]}",
                )
            )
    return checks
