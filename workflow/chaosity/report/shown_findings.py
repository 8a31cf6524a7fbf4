"""Prepares findings for the top of the report: the worst first, each with its figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaosity.anomalies import CONTENTION, Anomaly, Findings
from chaosity.figures.draw_and_write_figures import FigureFile
from chaosity.place_names import node_name
from chaosity.report.result_checks import OK, UNKNOWN, ResultCheck

# The report shows this many findings; findings.json has all.
MOST_FINDINGS = 8


@dataclass(frozen=True)
class ShownFinding:
    """A finding as the report shows it.

    Attributes:
        title: the finding in one sentence.
        text: evidence: how large, how certain, compared with what.
        advice: what to look at, or None.
        figure: name of the figure that shows it, or None.
    """

    title: str
    text: str
    advice: str | None = None
    figure: str | None = None


def shown_findings(
    findings: Findings, figures: Sequence[FigureFile], folder: Path
) -> Iterator[ShownFinding]:
    """The worst findings.

    Args:
        findings: of the analysis.
        figures: all drawn figures.
        folder: of the figures.
    """
    for anomaly, similar in merge_similar_contention(findings.anomalies)[:MOST_FINDINGS]:
        yield ShownFinding(
            title=anomaly.sentence,
            text=" ".join((anomaly.evidence_sentence, *anomaly.also, *_similar_text(similar))),
            advice=anomaly.advice,
            figure=_figure_of(anomaly, figures, folder),
        )


def merge_similar_contention(anomalies: Sequence[Anomaly]) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Each anomaly with the contention of the same experiment in other nodes, the worst first.

    Contention in several nodes has one cause, the design of the processor, so it is one finding.
    """
    merged: list[tuple[Anomaly, list[Anomaly]]] = []
    for anomaly in anomalies:
        for first, similar in merged:
            if anomaly.kind == CONTENTION == first.kind and anomaly.where == first.where:
                similar.append(anomaly)
                break
        else:
            merged.append((anomaly, []))
    return merged


def _similar_text(similar: Sequence[Anomaly]) -> Iterator[str]:
    if similar:
        listed = ", ".join(f"{each.components[0]} ({each.loss_percent:.0f} %)" for each in similar)
        yield f"The same holds within {listed}."


def anomaly_check(findings: Findings) -> ResultCheck:
    """What was tested for anomalies, and the smallest loss that would have been found."""
    if not findings.checked:
        return ResultCheck("Anomalies", UNKNOWN, findings.verdict.rstrip("."))
    result = "tested" if findings.anomalies else "no anomaly detected in"
    return ResultCheck(
        "Anomalies",
        OK,
        f"{result} {'; '.join(findings.checked)}; the percentages are the smallest losses that "
        "would have been found with 95 % power",
    )


def _figure_of(anomaly: Anomaly, figures: Sequence[FigureFile], folder: Path) -> str | None:
    """The figure of the experiment whose CSV has the anomaly's places, else its first figure."""
    candidates = [
        figure
        for figure in figures
        if figure.experiment == anomaly.where.get("experiment") and figure.csv
    ]
    places = [part for part in (anomaly.target, anomaly.initiator) if part is not None]
    names = [node_name(part) if isinstance(part, int) else part for part in places]
    for figure in candidates:
        text = (folder / str(figure.csv)).read_text(encoding="utf-8").replace("\n", ",")
        if all(f"{name}," in text for name in names):
            return figure.name
    return candidates[0].name if candidates else None
