"""What the page shows of an experiment: its figures, what was not measured, and its analyses.

Each analysis of variance begins with a sentence for readers who do not know F tests. The table of
the variation and the levels of each factor follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from chaosity.figures.marks import reasons_with_counts
from chaosity.report.best_places_of_resources import DRIVES
from chaosity.report.html import figure_section
from chaosity.report.run import Run, unmet_note_sentences
from chaosity.statistics.anova import IMPORTANT_FROM_PERCENT, AnovaResult, variation_percent_text
from chaosity.statistics.anova_effects import MOST_LEVELS_IN_PAIRS
from chaosity.statistics.estimates import confidence_text
from chaosity.statistics.find_anova_studies import LOCAL, REMOTE, AnovaStudy
from chaosity.text_templates import text_of_macro, texts_of_yaml_file
from chaosity.units import join_with_and, metric_in_words

_TEXTS = "variance_analysis"
# If the relation explains less than this share of the variation, the text does not name the share.
_RELATION_FROM_PERCENT = 50.0
# If there are more combinations of levels than this, the page shows only their number.
_MOST_COMBINATIONS = 24


def analysis_sections(run: Run, experiment: str) -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each analysis of variance of an experiment.

    `sentence` is the conclusion. `remote` is a text that compares remote with local values, or
    None. `terms` has the rows of the table of variation, except the row of the total. `levels` and
    `interactions` have the rows of each factor and of each significant or important interaction; if
    these rows are too many, `omitted` has their number instead.
    """
    for study, analysis in run.variance_analyses:
        if study.experiment == experiment:
            yield _section(study, analysis)


def _section(study: AnovaStudy, analysis: AnovaResult) -> dict[str, Any]:
    factors = join_with_and(list(map(_words, study.factors)))
    significant = analysis.analysed.significant_below
    limits = {"significant": significant, "important": IMPORTANT_FROM_PERCENT}
    sentences = {"analysis": analysis, "left_out": study.left_out, **limits}
    return {
        "metric": study.metric,
        "title": text_of_macro(_TEXTS, "title", study=study, factors=factors, drive_sets=DRIVES),
        "sentence": _readable(analysis.conclusion, study),
        "remote": _remote(study, analysis),
        "terms": [
            replace(
                term,
                name=_readable(term.name, study),
                sentence=_readable(term.sentence or "", study),
            )
            for term in analysis.terms
            if term.kind != "total"
        ],
        "levels": [_levels(study, analysis, factor) for factor in analysis.factors],
        "interactions": list(_interactions(study, analysis)),
        "remarks": text_of_macro(_TEXTS, "remarks", **sentences),
        "confidence": confidence_text(analysis.analysed.confidence),
    }


def _words(name: str) -> str:
    """Return the words for a column: the title that it has on an axis, or its name with spaces."""
    title = str(
        texts_of_yaml_file("axes")["titles"].get(name, name.replace("_", " ").replace(".", " "))
    )
    return title[:1].lower() + title[1:]


def _readable(sentence: str, study: AnovaStudy) -> str:
    """Return a sentence with words for the names of factors, and with multiplication signs."""
    for name in study.factors:
        sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w])", _words(name), sentence)
    return sentence.replace(" x ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def _remote(study: AnovaStudy, analysis: AnovaResult) -> str | None:
    """Return a text that compares remote with local values; None if the study has no relation."""
    contrast, share = (
        study.local_against_remote(analysis),
        study.percent_explained_by_relation(analysis),
    )
    if contrast is None:
        return None
    large = share is not None and share >= _RELATION_FROM_PERCENT
    metric = metric_in_words(study.metric)
    return text_of_macro(
        _TEXTS,
        "remote",
        share=variation_percent_text(share) if share is not None and large else None,
        names=(f"{REMOTE} {metric}", f"{LOCAL} {metric}"),
        interval=contrast.difference,
        metric=study.metric,
        confidence=confidence_text(analysis.analysed.confidence),
    )


def _interactions(study: AnovaStudy, analysis: AnovaResult) -> Iterator[dict[str, Any]]:
    """Yield the significant or important interactions of two factors, with the rows to show."""
    for name in [term.name for term in analysis.terms if term.significant or term.important]:
        if own := [each for each in analysis.interactions if each.term == name]:
            yield {"name": _readable(name, study), **_few(own, _MOST_COMBINATIONS)}


def _levels(study: AnovaStudy, analysis: AnovaResult, factor: str) -> dict[str, Any]:
    """Return the rows of a factor's levels if they are few, and a text on its widest difference."""
    own = [each for each in analysis.effects if each.factor == factor]
    pairs = (pair for pair in analysis.contrasts if pair.factor == factor)
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    confidence = confidence_text(analysis.analysed.confidence)
    texts = {"pair": widest, "metric": study.metric, "confidence": confidence}
    extremes = None if widest is None else text_of_macro(_TEXTS, "extremes", **texts)
    return {"factor": _words(factor), "extremes": extremes, **_few(own, MOST_LEVELS_IN_PAIRS)}


def _few(rows: list[Any], most: int) -> dict[str, Any]:
    """Return at most `most` rows as `rows`; if there are more, only their number as `omitted`."""
    few = len(rows) <= most
    return {"rows": rows if few else [], "omitted": 0 if few else len(rows)}


def experiment_section(run: Run, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of an experiment; `document` is the YAML of the experiment.

    `without_points` has the titles of figures for which this machine has no points. `broken` is
    title -> error, for figures that could not be drawn. `remarks` has the metrics without a value,
    with the reason, and the messages of tools in valid runs.
    """
    name = document["experiment"]
    rows = run.measurements.where(experiment=name).rows
    figures = [figure for figure in run.figures if figure.experiment == name]
    summaries = [summary for summary in run.record_summaries if summary.experiment == name]
    return {
        "title": document.get("title", name.replace("_", " ").capitalize()),
        "document": document,
        "figures": [figure_section(each, run.figures_folder) for each in figures if each.csv],
        "without_points": [each.title for each in figures if not each.csv and not each.problem],
        "broken": {each.title: each.problem for each in figures if each.problem},
        "analysis": list(analysis_sections(run, name)),
        "remarks": [*_unmeasured(rows), *unmet_note_sentences(summaries)],
    }


def _unmeasured(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line for each load and each reason why metrics have no value in valid rows."""
    without = rows[(rows["status"] == "valid") & rows["value"].isna()]
    metrics: dict[tuple[str, str], list[str]] = {}  # load and reason -> metrics
    for key, group in without.groupby(["load", "metric"], sort=False):
        load, metric = map(str, key)
        total = ((rows["load"] == load) & (rows["metric"] == metric)).sum()
        for reason in reasons_with_counts(group["reason"], int(total), "value"):
            metrics.setdefault((load, reason), []).append(metric_in_words(metric))
    for (load, reason), names in metrics.items():
        yield f"{join_with_and([*dict.fromkeys(names)])} of {load}: not measured: {reason}"
