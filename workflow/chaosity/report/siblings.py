"""Drives that are slower than their siblings, as findings with figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity.figures import FigureFile
from chaosity.report.checks import OK, Check
from chaosity.report.model import Finding
from chaosity.statistics import DriveAmongSiblings, drives_among_siblings
from chaosity.units import count, quantity

# Drives of one model differ by some per cent between one another; a loss of a fifth is no such
# difference, and large enough to look at the drive.
SLOW = 0.8
# A host where more drives than this are slow has one fault, not many.
_MOST_FINDINGS = 3
Documents = Mapping[str, Mapping[str, Any]]


def slow_drives(
    tidy: pd.DataFrame, components: Documents, figures: Sequence[FigureFile], folder: Path
) -> tuple[list[Finding], Check | None]:
    """Findings, the slowest drive first, or a check that says that there is none.

    Args:
        tidy: the tidy table, plain.
        components: documents of the components by name.
        figures: that were drawn.
        folder: where they are.

    Returns:
        Neither where no drive has siblings that it could be compared with.
    """
    models = {name: str(document["model"]) for name, document in components.items()
              if document.get("component") == "drive" and document.get("model")}  # fmt: skip
    found = drives_among_siblings(tidy, models)
    if not found:
        return [], None
    slow = [one for one in found if one.ratio < SLOW and (one.high is None or one.high < 1.0)]
    if not slow:
        least = found[0]
        text = (
            f"none of {count(len(found), 'drive')} gives less than {SLOW:.2f} times what its "
            f"siblings give; the slowest, {least.drive}, gives {least.ratio:.2f} times"
        )
        return [], Check("Drives among siblings", OK, text)
    findings = [_finding(one, components, figures, folder) for one in slow[:_MOST_FINDINGS]]
    if more := slow[_MOST_FINDINGS:]:
        listed = ", ".join(f"{one.drive} ({one.ratio:.2f} times)" for one in more)
        findings.append(Finding(f"{count(len(more), 'more slow drive')}:", f"{listed}."))
    return findings, None


def _finding(
    one: DriveAmongSiblings, components: Documents, figures: Sequence[FigureFile], folder: Path
) -> Finding:
    document = components[one.drive]
    node = document.get("node")
    parts = [one.model, f"serial {document.get('serial') or 'unknown'}",
             "node unknown" if node is None else f"node {node}"]  # fmt: skip
    interval = "one replicate, no interval"
    if one.low is not None:
        interval = f"95 % interval {one.low:.2f} to {one.high:.2f}, n = {one.n}"
    own, others = (quantity(one.metric, value) for value in (one.median, one.median_of_siblings))
    return Finding(
        title=(
            f"{one.drive} is slow: {own}, {one.ratio:.2f} times the {others} of its siblings "
            f"({interval})."
        ),
        text=(
            f"Compared with the median of {count(one.siblings, 'other drive')} of its model, read "
            f"in the same way from {count(one.initiators, 'place')}. It is a {', '.join(parts)}."
        ),
        advice=(
            "Look at its link, temperature and wear (nvme smart-log), or replace it; the next run "
            "measures only the points that touch it."
        ),
        figure=_figure_of(one, figures, folder),
    )


def _figure_of(one: DriveAmongSiblings, figures: Sequence[FigureFile], folder: Path) -> str | None:
    """The first figure of the experiment that shows the drive."""
    for figure in figures:
        if figure.experiment == one.experiment and figure.csv:
            text = (folder / figure.csv).read_text(encoding="utf-8")
            if f"{one.drive}," in text or f"{one.drive}\n" in text:
                return figure.name
    return None
