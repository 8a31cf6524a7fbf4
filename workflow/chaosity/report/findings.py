"""Show the findings of the analysis, each with the figure that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, no_problems_text
from chaosity.figures.draw_and_write_figures import FigureFile
from chaosity.place_names import node_name, place_words
from chaosity.report.checks import OK, ResultCheck, check_results
from chaosity.report.run import Run, read_findings

# The report shows this many findings; findings.json has all.
MOST_FINDINGS = 8


@dataclass(frozen=True)
class ShownFinding:
    """A finding as the report shows it."""

    title: str  # the finding in one sentence
    text: str  # evidence: size of the loss, confidence, comparable cells
    advice: str | None = None  # what to look at, or None
    figure: str | None = None  # name of the figure that shows it, or None


@dataclass(frozen=True)
class ProblemsSection:
    """What is wrong: findings, suspicions and checks."""

    findings: tuple[ShownFinding, ...]
    omitted: int  # number of further findings in findings.json
    suspicions: tuple[ShownFinding, ...]
    problems: tuple[ResultCheck, ...]  # checks that did not pass, the worst first
    passed: tuple[ResultCheck, ...]
    # For usable results without findings or severe problems: what was tested, and what was not.
    no_problems: str


def problems_section(run: Run) -> ProblemsSection:
    """Return the findings of a run and its checks."""
    found, checks = run.found, check_results(run)
    text = no_problems_text(found.checked, found.untested, found.detectable_percent)
    return ProblemsSection(
        findings=tuple(_shown(found.anomalies, run)),
        omitted=max(0, len(merge_similar_contention(found.anomalies)) - MOST_FINDINGS),
        suspicions=tuple(_shown(found.suspicions, run)),
        problems=tuple(check for check in checks if check.severity != OK),
        passed=tuple(check for check in checks if check.severity == OK),
        no_problems="" if found.unusable or found.anomalies else text,
    )


def _shown(anomalies: Sequence[Anomaly], run: Run) -> Iterator[ShownFinding]:
    """Yield the first findings or suspicions, with the figures that show them."""
    for anomaly, similar in first_findings(anomalies):
        sentences = [anomaly.doubt] * bool(anomaly.doubt)
        sentences += [anomaly.evidence_sentence, *anomaly.also]
        if similar:
            nodes = (
                f"{place_words(each.components[0])} ({each.loss_percent:.0f} %)" for each in similar
            )
            sentences.append(f"The same contention occurs within {', '.join(nodes)}.")
        figure = _figure_of(anomaly, run)
        yield ShownFinding(anomaly.sentence, " ".join(sentences), anomaly.advice, figure)


def first_findings(anomalies: Sequence[Anomaly]) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Return the anomalies that the report shows, by their numbers, with similar ones."""
    return merge_similar_contention(anomalies)[:MOST_FINDINGS]


def numbered_findings(anomalies: Sequence[Anomaly]) -> list[Anomaly]:
    """Return the anomalies that have a number in the report, in the order of their numbers."""
    return [anomaly for anomaly, _ in first_findings(anomalies)]


def read_anomalies(folder: Path) -> tuple[Anomaly, ...]:
    """Return the anomalies in ``results/HOST/CONFIGURATION``; none without findings.json.

    Raises:
        UserError: the file is no output of ``chaosity anomalies --json``.
    """
    file = folder / "findings.json"
    if not file.exists():
        return ()
    return read_findings(file).anomalies


def merge_similar_contention(anomalies: Sequence[Anomaly]) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Return each anomaly, the worst first, with similar contention in other nodes.

    Contention in several nodes has one cause, the design of the processor, so all is one finding.
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


def _figure_of(anomaly: Anomaly, run: Run) -> str | None:
    """Return the experiment's figure that shows most of the anomaly's cells, None without one.

    If figures show none of its cells, that with most marks of its initiator and target is returned.
    """
    rows = anomaly.rows_of_cells(run.measurements)[["point", "initiator", "target"]]
    cells = set(rows.itertuples(index=False, name=None))
    places = [part for part in (anomaly.initiator, anomaly.target) if part is not None]
    names = {node_name(part) if isinstance(part, int) else part for part in places}

    def shown(figure: FigureFile) -> tuple[int, int]:
        marks = [names <= {*place} for _, *place in figure.shown] if names else []
        return len(cells.intersection(figure.shown)), sum(marks)

    own = [each for each in run.figures if each.experiment == anomaly.where.get("experiment")]
    best = max(own, key=shown, default=None)
    return best.name if best and any(shown(best)) else None
