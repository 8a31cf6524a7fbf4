"""What the analysis found, for the top of the report: the worst first, each with its figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from chaosity.anomalies import CONTENTION, Anomaly, Findings
from chaosity.figures import FigureFile
from chaosity.report.report_data import Finding
from chaosity.report.result_checks import OK, UNKNOWN, ResultCheck

# A reader acts on the first few; all are in findings.json.
MOST_FINDINGS = 8


def shown_findings(
    found: Findings, figures: Sequence[FigureFile], folder: Path
) -> Iterator[Finding]:
    """The worst findings.

    Args:
        found: of the analysis.
        figures: that were drawn.
        folder: where they are.
    """
    for one, alike in folded(found.anomalies)[:MOST_FINDINGS]:
        yield Finding(
            title=one.sentence,
            text=" ".join((one.evidence, *one.also, *_alike(alike))),
            advice=one.advice,
            figure=_figure_of(one, figures, folder),
        )


def folded(found: Sequence[Anomaly]) -> list[tuple[Anomaly, list[Anomaly]]]:
    """Anomalies with those of the same kind that differ in the node alone, the worst first.

    Contention in every node is how the processor is built, and one finding to a reader.
    """
    result: list[tuple[Anomaly, list[Anomaly]]] = []
    for one in found:
        same = [
            alike for first, alike in result
            if one.kind == CONTENTION == first.kind and one.where == first.where
        ]  # fmt: skip
        if same:
            same[0].append(one)
        else:
            result.append((one, []))
    return result


def _alike(others: Sequence[Anomaly]) -> Iterator[str]:
    if others:
        listed = ", ".join(f"{one.components[0]} ({one.loss_percent:.0f} %)" for one in others)
        yield f"So it is within {listed}."


def findings_check(found: Findings) -> ResultCheck:
    """What was looked at for anomalies, and how small a fault would have been found."""
    if not found.checked:
        return ResultCheck("Anomalies", UNKNOWN, found.verdict.rstrip("."))
    said = "compared" if found.anomalies else "no anomaly was detected in"
    sizes = " (the loss of a single one that would have been found in 19 of 20 cases)"
    return ResultCheck("Anomalies", OK, f"{said} {'; '.join(found.checked)}{sizes}")


def _figure_of(one: Anomaly, figures: Sequence[FigureFile], folder: Path) -> str | None:
    """The figure of its experiment that shows its places, else the first of the experiment."""
    own = [
        figure for figure in figures
        if figure.experiment == one.where.get("experiment") and figure.csv
    ]  # fmt: skip
    names = [_name(part) for part in (one.target, one.initiator) if part is not None]
    for figure in own:
        text = (folder / str(figure.csv)).read_text(encoding="utf-8").replace("\n", ",")
        if all(f"{name}," in text for name in names):
            return figure.name
    return own[0].name if own else None


def _name(part: int | str) -> str:
    """As the figures' tables have it."""
    return f"node{part}" if isinstance(part, int) else part
