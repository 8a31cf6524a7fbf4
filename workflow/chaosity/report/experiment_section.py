"""What the page shows of an experiment: its figures, what was not measured, and its analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from chaosity.figures.mark_texts import reasons_with_counts
from chaosity.report.html import figure_section
from chaosity.report.run import Run, tool_note_sentences
from chaosity.report.variance_analysis import analysis_sections
from chaosity.units import join_with_and, metric_words


def experiment_section(run: Run, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of one of the run's experiments, whose YAML is `document`.

    `without_points` has titles of figures for which this machine has no points, `broken` those of
    figures that could not be drawn, with the errors. `remarks` are metrics without a value, with
    the reason, and messages of tools in valid runs.
    """
    name = document["experiment"]
    rows = run.measurements.where(experiment=name).rows
    figures = [figure for figure in run.figures if figure.experiment == name]
    summaries = [summary for summary in run.summaries if summary.experiment == name]
    return {
        "title": document.get("title", name.replace("_", " ").capitalize()),
        "document": document,
        "figures": [figure_section(each, run.figures_folder) for each in figures if each.csv],
        "without_points": [each.title for each in figures if not each.csv and not each.problem],
        "broken": {each.title: each.problem for each in figures if each.problem},
        "analysis": list(analysis_sections(run, name)),
        "remarks": [*_unmeasured(rows), *tool_note_sentences(summaries)],
    }


def _unmeasured(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each reason why a metric of a load has no value in valid rows."""
    without = rows[(rows["status"] == "valid") & rows["value"].isna()]
    metrics: dict[tuple[str, str], list[str]] = {}  # load and reason -> metrics
    for key, group in without.groupby(["load", "metric"], sort=False):
        load, metric = map(str, key)
        total = ((rows["load"] == load) & (rows["metric"] == metric)).sum()
        for reason in reasons_with_counts(group["reason"], int(total), "value"):
            metrics.setdefault((load, reason), []).append(metric_words(metric))
    for (load, reason), names in metrics.items():
        yield f"{join_with_and([*dict.fromkeys(names)])} of {load}: not measured: {reason}"
