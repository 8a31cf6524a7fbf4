"""Make the section on problems: findings, checks of results and host, and failed points."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, Findings, no_problems_text
from chaosity.figures.figure_files import FigureEntry
from chaosity.place_names import access_in_words, node_name, place_in_words
from chaosity.records.record_files import current_record_path
from chaosity.report.measured_run import RecordSummary, Run, read_findings
from chaosity.result_folders import explain_command_line
from chaosity.store.measurements import LOAD_COLUMNS, POINT_COLUMNS
from chaosity.store.values_normal_for_processor import compare_with_published_values
from chaosity.text_templates import fill_text_template, text_of_macro, texts_of_yaml_file
from chaosity.topology.topology_model import Topology, topology_to_json
from chaosity.topology.topology_parts import HostFacts
from chaosity.units import format_count, format_percent, join_with_and

PROBLEM, WARNING, NOTE, UNKNOWN, OK = "problem", "warning", "note", "unknown", "ok"
SEVERITIES = (PROBLEM, WARNING, NOTE, UNKNOWN, OK)
# Share of the records above which failures of a check are a warning; fewer failures are a note.
_LEAST_FAILED_SHARE_OF_WARNING = 0.2
# Largest difference between clocks of nodes, as a share, without a warning in the report. Clocks of
# equal nodes differ by 1 or 2 %, and a limit of power or temperature costs more.
_LARGEST_CLOCK_DIFFERENCE_SHARE = 0.03
# Largest number of nodes whose clocks the report shows; of more nodes, it shows only the lowest and
# the highest clock.
_MOST_NODES_WITH_CLOCK = 8
# Largest number of findings that the report shows; findings.json has all findings.
MOST_FINDINGS = 8
# Largest number of failed points that the report shows; measurements.parquet has all failed points.
_MOST_SHOWN_FAILED_POINTS = 200


@dataclass(frozen=True)
class ResultCheck:
    """The result of one check of the values, the records or the host of a run."""

    name: str  # name of the check, in two or three words
    # One of SEVERITIES: problem (a result is missing or wrong), warning (results are valid within
    # limits), note, unknown (this machine does not report the value), ok.
    severity: str
    text: str  # the result, as a clause without a full stop
    advice: str | None = None  # what a user can do, or None
    link: str | None = None  # id of the report's section with details, or None


def check_results(run: Run) -> list[ResultCheck]:
    """Return the results of all checks of a run's values, records and host, the worst first."""
    rows, found = run.measurements.rows, run.findings
    broken = [figure.problem for figure in run.figures if figure.problem]
    usable = not found.unusable
    checks = [
        *([] if usable else [ResultCheck("Usability", PROBLEM, found.unusable)]),
        _check_failed_points(rows),
        _check_missing_points(rows),
        *([_make_result_check("Figures", PROBLEM, problems=broken)] if broken else []),
        _check_drives_are_no_files(rows),
        *(() if run.is_simulated else _setting_checks(run.system_facts, run.topology)),
        *(() if run.is_simulated else _check_clocks(rows, run.record_summaries)),
        *_check_replicates(rows),
        *_record_checks(run.record_summaries),
        *([_check_anomaly_search(found)] if usable else []),
        *_check_normal_values(run),
    ]
    return sorted(checks, key=lambda check: SEVERITIES.index(check.severity))


def _check_normal_values(run: Run) -> list[ResultCheck]:
    """Return a check result for each comparable published value of the host's processor."""
    model = run.system_facts.get("cpu_model") or run.topology.cpu_model
    return [
        _make_result_check(
            "Normal values",
            WARNING if each.is_clearly_worse else OK,
            text=text_of_macro("overview", "normal", each=each, hosts=0),
        )
        for each in compare_with_published_values([run.measurements], model, run.topology)
    ]


def _make_result_check(name: str, severity: str, **values: object) -> ResultCheck:
    """Return a check result; its texts are in ``templates/texts/report.yaml``."""
    texts = texts_of_yaml_file("report")["checks"][name]
    wrong = severity in (PROBLEM, WARNING)
    advice, link = (texts.get(key) if wrong else None for key in ("advice", "link"))
    return ResultCheck(name, severity, fill_text_template(texts[severity], **values), advice, link)


def _number_of_points(rows: pd.DataFrame) -> int:
    return len(rows[["experiment", "point"]].drop_duplicates())


def _check_failed_points(rows: pd.DataFrame) -> ResultCheck:
    failed = rows[rows["status"] == "failed"]
    reasons = [str(reason) for reason in failed["reason"].dropna()]
    kinds = Counter(reason.split(":")[0] for reason in reasons)
    return _make_result_check(
        "Failed points",
        OK if failed.empty else PROBLEM,
        points=_number_of_points(rows),
        failed=_number_of_points(failed),
        examples=[
            next(reason for reason in reasons if reason.split(":")[0] == kind)
            for kind, _ in kinds.most_common(3)
        ],
    )


def _check_missing_points(rows: pd.DataFrame) -> ResultCheck:
    missing = rows[rows["status"] == "missing"]
    reasons = Counter(str(reason) for reason in missing["reason"].dropna())
    return _make_result_check(
        "Completeness",
        OK if missing.empty else PROBLEM,
        missing=_number_of_points(missing),
        reasons=reasons.most_common(1),
    )


def _check_drives_are_no_files(rows: pd.DataFrame) -> ResultCheck:
    storage = rows[rows["drives"].notna() & (rows["drives"] > 0)]
    file_backed = storage["file_backed"].any()
    return _make_result_check("Drives", NOTE if storage.empty else WARNING if file_backed else OK)


def _setting_checks(system: HostFacts, topology: Topology) -> Iterator[ResultCheck]:
    """Yield a check result for each setting of the host that affects measured values."""
    hypervisor = system.get("hypervisor")
    limits = topology_to_json(topology)["restrictions"].items()
    listed = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in limits if value)
    frequency, settings = system.get("frequency"), system.get("memory_settings") or {}
    governors = frequency["governors"] if frequency else []
    governor = " and ".join(map(str, governors)) or None
    mode, balancing = (settings.get(key) for key in ("transparent_huge_pages", "numa_balancing"))
    # Setting -> (value, or None if the host does not report it; whether the value is good)
    states: dict[str, tuple[object, bool]] = {
        "Virtual machine": (hypervisor, not hypervisor),
        "Processors and nodes": (listed, not topology.is_restricted),
        "Clock governor": (governor, set(governors) == {"performance"}),
        "Transparent huge pages": (mode, mode != "never"),
        "NUMA balancing": (balancing, str(balancing) == "0"),
    }
    for name, (value, good) in states.items():
        if value is None:
            yield ResultCheck(name, UNKNOWN, "this machine does not report this setting")
        else:
            yield _make_result_check(name, OK if good else WARNING, value=value)


def _check_replicates(rows: pd.DataFrame) -> Iterator[ResultCheck]:
    most = rows.groupby("experiment", sort=False)["replicate"].max()
    # A cell with one replicate has an interval if the scatter of similar cells is known.
    known = set(rows.loc[rows.get("prior_cells", pd.Series(0, rows.index)) > 0, "experiment"])
    if single := [name for name in most.index[most == 1] if name not in known]:
        yield _make_result_check("Replicates", WARNING, single=single, experiments=len(most))


def _check_clocks(rows: pd.DataFrame, summaries: Sequence[RecordSummary]) -> Iterator[ResultCheck]:
    """Yield a result that compares the median clocks of nodes while all their cores run loads."""
    clocks = [clock for summary in summaries for clock in summary.clocks]
    of_node = rows["clock_hertz"].notna() & (rows["initiator_kind"] == "node")
    known = rows[of_node].drop_duplicates([*POINT_COLUMNS, *LOAD_COLUMNS, "replicate"])
    if known.empty:
        reasons = [clock["reason"] for clock in clocks if "reason" in clock]
        if reasons:
            yield _make_result_check("Clock under load", UNKNOWN, reason=reasons[0])
        return
    found = known.groupby(known["initiator_nodes"].astype(int))["clock_hertz"]
    nodes = found.agg(["median", "size"]).sort_values("median", kind="stable")
    ends = nodes.iloc[[0, -1]]
    lower = 1 - ends["median"].iloc[0] / ends["median"].iloc[1]
    yield _make_result_check(
        "Clock under load",
        WARNING if lower > _LARGEST_CLOCK_DIFFERENCE_SHARE else OK,
        too_low=lower > _LARGEST_CLOCK_DIFFERENCE_SHARE,
        lower=lower,
        ends=list(ends.index),
        nodes=list(
            (ends if len(nodes) > _MOST_NODES_WITH_CLOCK else nodes.sort_index()).itertuples()
        ),
        sources=sorted({clock["source"] for clock in clocks if "source" in clock}),
    )


def _record_checks(summaries: Sequence[RecordSummary]) -> Iterator[ResultCheck]:
    """Yield a result for each check that some records failed, if it does not decide validity."""
    details: dict[str, dict[bool | None, list[str]]] = {}
    for summary in summaries:
        for check in summary.checks:
            if not check["decisive"]:
                name = check["name"].split(": ")[-1]
                by_result = details.setdefault(name, {True: [], False: [], None: []})
                by_result[check["passed"]].append(check["detail"])
    for name, by_result in details.items():
        total = sum(map(len, by_result.values()))
        records = format_count(total, "record")
        failed, unknown = by_result[False], by_result[None]
        clauses = [
            f"{verb} in {format_percent(len(examples) / total)} of {records}, "
            f"for example {examples[0]}"
            for verb, examples in (("not met", failed), ("could not be determined", unknown))
            if examples
        ]
        if clauses:
            severity = WARNING if len(failed) / total > _LEAST_FAILED_SHARE_OF_WARNING else NOTE
            yield ResultCheck(
                name[:1].upper() + name[1:],
                severity if failed else UNKNOWN,
                "; ".join(clauses),
                texts_of_yaml_file("report")["record_advice"].get(name) if failed else None,
            )


def _check_anomaly_search(findings: Findings) -> ResultCheck:
    """Return a result that says what was tested for anomalies, and what was not tested."""
    if not findings.checked:
        text = ". ".join((findings.verdict.rstrip("."), *findings.notes))
        return ResultCheck("Anomalies", UNKNOWN, text)
    notes = list(findings.notes)
    if findings.untested:
        notes.append(f"Not tested: {join_with_and(findings.untested)}")
    result = "tested" if findings.anomalies else "no problem found in"
    return ResultCheck(
        "Anomalies",
        OK,
        f"{result} {'; '.join(findings.checked)}. A loss of the smallest detectable size is found "
        f"in 95 of 100 cases{''.join(f'. {note}' for note in notes)}",
    )


@dataclass(frozen=True)
class ShownFinding:
    """The texts of a finding in the report."""

    title: str  # the finding in one sentence
    text: str  # evidence: size of the loss, confidence, comparable cells
    advice: str | None = None  # what a user should examine, or None
    figure: str | None = None  # name of the figure that shows the finding best, or None
    command: str | None = None  # command line that explains the worst value, or None


@dataclass(frozen=True)
class ProblemsSection:
    """The content of the section on problems: findings, suspicions and checks."""

    findings: tuple[ShownFinding, ...]
    omitted: int  # number of findings that are only in findings.json
    suspicions: tuple[ShownFinding, ...]
    problems: tuple[ResultCheck, ...]  # checks that are not ok, the worst first
    passed: tuple[ResultCheck, ...]
    # What was tested for anomalies and what was not, if usable results have no findings; else "".
    no_problems: str


def problems_section(run: Run) -> ProblemsSection:
    """Return the content of the section on the problems of a run."""
    found, checks = run.findings, check_results(run)
    text = no_problems_text(found.checked, found.untested, found.detectable_loss_percent)
    return ProblemsSection(
        findings=tuple(_shown_findings(found.anomalies, run)),
        omitted=max(0, len(merge_similar_contention(found.anomalies)) - MOST_FINDINGS),
        suspicions=tuple(_shown_findings(found.suspicions, run)),
        problems=tuple(check for check in checks if check.severity != OK),
        passed=tuple(check for check in checks if check.severity == OK),
        no_problems="" if found.unusable or found.anomalies else text,
    )


def _shown_findings(anomalies: Sequence[Anomaly], run: Run) -> Iterator[ShownFinding]:
    """Yield the first `MOST_FINDINGS` findings or suspicions, with the figures that show them."""
    for anomaly, similar in _first_findings_with_similar(anomalies):
        sentences = [anomaly.doubt] * bool(anomaly.doubt)
        sentences += [anomaly.evidence_sentence, *anomaly.also]
        if similar:
            nodes = (
                f"{place_in_words(each.components[0])} ({each.loss_percent:.0f} %)"
                for each in similar
            )
            sentences.append(f"The same contention occurs within {', '.join(nodes)}.")
        figure = _figure_with_most_cells(anomaly, run)
        arguments = anomaly.explain_arguments(run.measurements)
        command = explain_command_line(run.folder, *arguments) if arguments else None
        yield ShownFinding(anomaly.sentence, " ".join(sentences), anomaly.advice, figure, command)


def numbered_findings(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """Return the anomalies that have a number in the report, in order, at most `MOST_FINDINGS`."""
    return [anomaly for anomaly, _ in _first_findings_with_similar(anomalies)]


def _first_findings_with_similar(
    anomalies: Sequence[Anomaly],
) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Return the shown findings, each with the similar findings that were merged into it."""
    return merge_similar_contention(anomalies)[:MOST_FINDINGS]


def read_anomalies(folder: Path) -> tuple[Anomaly, ...]:
    """Return the anomalies in a folder's findings.json; none if the file is missing.

    Raises:
        UserError: the file is not an output of ``chaosity anomalies --json``.
    """
    file = folder / "findings.json"
    if not file.exists():
        return ()
    return read_findings(file).anomalies


def merge_similar_contention(anomalies: Sequence[Anomaly]) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Return all anomalies, the worst first, each with similar contention in other nodes.

    Similar contention in several nodes becomes one finding, since the design of the processor is
    its only cause.
    """
    merged: list[tuple[Anomaly, list[Anomaly]]] = []
    for anomaly in anomalies:
        for first, similar in merged:
            same_slice = anomaly.where == first.where
            if anomaly.kind == AnomalyKind.CONTENTION == first.kind and same_slice:
                similar.append(anomaly)
                break
        else:
            merged.append((anomaly, []))
    return merged


def _figure_with_most_cells(anomaly: Anomaly, run: Run) -> str | None:
    """Return the name of the figure with most cells of an anomaly; None if no figure has any."""
    rows = anomaly.rows_of_cells(run.measurements)[["point", "initiator", "target"]]
    cells = set(rows.itertuples(index=False, name=None))
    places = [part for part in (anomaly.initiator, anomaly.target) if part is not None]
    names = {node_name(part) if isinstance(part, int) else part for part in places}

    def shown_counts(figure: FigureEntry) -> tuple[int, int]:
        marks = [names <= {*place} for _, *place in figure.shown] if names else []
        return len(cells.intersection(figure.shown)), sum(marks)

    own = [each for each in run.figures if each.experiment == anomaly.where.get("experiment")]
    best = max(own, key=shown_counts, default=None)
    return best.name if best and any(shown_counts(best)) else None


def load_in_words(row: Mapping[Hashable, Any]) -> str:
    """Return a load with its places in words: "memory (triad), node 0 to the memory of node 1"."""
    kernel = f" ({row['kernel']})" if isinstance(row.get("kernel"), str) else ""
    return f"{row['load']}{kernel}, {access_in_words(row['initiator'], row['target'])}"


def failed_points_section(run: Run) -> dict[str, Any] | None:
    """Return the first failed points and the number of further ones; None if no point failed.

    Each point comes with the command lines of its loads in the first failed replicate, and with the
    command that measures this replicate again.
    """
    rows = run.measurements.rows
    by_replicate = {
        (each.experiment, each.point, each.replicate): each for each in run.record_summaries
    }
    results = str(run.config_with_plan_and_notes.get("results", "results"))
    titles = {each["experiment"]: each.get("title", "") for each in run.experiments}
    points = []
    for key, group in rows[rows["status"] == "failed"].groupby(list(POINT_COLUMNS), sort=False):
        host, configuration, experiment, point = map(str, key)
        replicates = sorted({int(number) for number in group["replicate"]})
        summary = by_replicate.get((experiment, point, replicates[0]))
        reasons = dict.fromkeys(str(reason) for reason in group["reason"] if reason is not None)
        file = current_record_path(experiment, point, replicates[0])
        points.append(
            {
                "experiment": titles.get(experiment) or experiment,
                "loads": list(dict.fromkeys(map(load_in_words, group.to_dict("records")))),
                "replicates": ", ".join(map(str, replicates)),
                "reason": "; ".join(reasons) or "no reason recorded",
                "commands": summary.commands if summary else {},
                "repeat": shlex.join(["snakemake", f"{results}/{host}/{configuration}/{file}"]),
            }
        )
    omitted = max(0, len(points) - _MOST_SHOWN_FAILED_POINTS)
    return {"points": points[:_MOST_SHOWN_FAILED_POINTS], "omitted": omitted} if points else None
