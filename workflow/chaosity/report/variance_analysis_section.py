"""Explain the differences between an experiment's values: factors, levels and residuals.

Each analysis begins with a sentence for readers who do not know F tests. The table of variation,
and the levels follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from chaosity.report.resource_table import DRIVES
from chaosity.report.run import Run
from chaosity.statistics.anova import (
    IMPORTANT_FROM_PERCENT,
    AnovaResult,
    VariationTerm,
    variation_percent_text,
)
from chaosity.statistics.anova_effects import (
    MOST_LEVELS_IN_PAIRS,
    InteractionEffect,
    LevelEffect,
)
from chaosity.statistics.estimates_and_ratios import confidence_text
from chaosity.statistics.find_anova_studies import LOCAL, REMOTE, AnovaStudy
from chaosity.text_templates import fixed_texts, write_text
from chaosity.units import join_with_and, metric_words

_TEXTS = "variance_analysis"
# If the relation explains less of the variation, local against remote does not sum up the pairs.
_RELATION_FROM_PERCENT = 50.0
# Of more combinations of levels, the page has only the number.
_MOST_COMBINATIONS = 24


@dataclass(frozen=True)
class FactorLevels:
    """The levels of a factor, or of many levels only the number and the two that differ most."""

    factor: str
    rows: tuple[LevelEffect, ...]
    omitted: int
    extremes: str | None


@dataclass(frozen=True)
class InteractionLevels:
    """The combinations of levels of an interaction, or of many only the number."""

    name: str
    rows: tuple[InteractionEffect, ...]
    omitted: int


@dataclass(frozen=True)
class AnalysisSection:
    """An analysis of variance as the report shows it."""

    metric: str  # name of the analysed metric
    title: str  # metric, load and factors
    sentence: str  # the conclusion
    remote: str | None  # text on remote compared with local, or None
    terms: tuple[VariationTerm, ...]  # the table of variation, without the total
    levels: tuple[FactorLevels, ...]  # levels of each factor
    # Combinations of each interaction that is significant or important.
    interactions: tuple[InteractionLevels, ...]
    remarks: str  # remarks on number of values, scale, missing values and omitted columns
    confidence: str  # confidence of the intervals, in per cent


def analysis_sections(run: Run, experiment: str) -> Iterator[AnalysisSection]:
    """Yield the analyses of an experiment of the run."""
    for study, analysis in run.analyses:
        if study.experiment == experiment:
            yield _section(study, analysis)


def _section(study: AnovaStudy, analysis: AnovaResult) -> AnalysisSection:
    factors = join_with_and(list(map(_words, study.factors)))
    return AnalysisSection(
        metric=study.metric,
        title=write_text(_TEXTS, "title", study=study, factors=factors, drive_sets=DRIVES),
        sentence=_readable(analysis.conclusion, study),
        remote=_remote(study, analysis),
        terms=tuple(
            replace(
                term,
                name=_readable(term.name, study),
                sentence=_readable(term.sentence or "", study),
            )
            for term in analysis.terms
            if term.kind != "total"
        ),
        levels=tuple(_levels(study, analysis, factor) for factor in analysis.factors),
        interactions=tuple(_interactions(study, analysis)),
        remarks=write_text(
            _TEXTS,
            "remarks",
            analysis=analysis,
            left_out=study.left_out,
            significant=analysis.analysed.significant_below,
            important=IMPORTANT_FROM_PERCENT,
        ),
        confidence=confidence_text(analysis.analysed.confidence),
    )


def _words(name: str) -> str:
    """Return the words for a column: those of a figure's axis, or its name with spaces."""
    title = str(fixed_texts("axes")["titles"].get(name, name.replace("_", " ").replace(".", " ")))
    return title[:1].lower() + title[1:]


def _readable(sentence: str, study: AnovaStudy) -> str:
    """Return the sentence with words for the names of factors, and multiplication signs."""
    for name in study.factors:
        sentence = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w])", _words(name), sentence)
    return sentence.replace(" x ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def _remote(study: AnovaStudy, analysis: AnovaResult) -> str | None:
    """Return a text with the variation that the relation explains, and remote against local."""
    contrast, share = study.local_against_remote(analysis), study.percent_of_relation(analysis)
    if contrast is None:
        return None
    large = share is not None and share >= _RELATION_FROM_PERCENT
    metric = metric_words(study.metric)
    return write_text(
        _TEXTS,
        "remote",
        share=variation_percent_text(share) if share is not None and large else None,
        names=(f"{REMOTE} {metric}", f"{LOCAL} {metric}"),
        interval=contrast.difference,
        metric=study.metric,
        confidence=confidence_text(analysis.analysed.confidence),
    )


def _interactions(study: AnovaStudy, analysis: AnovaResult) -> Iterator[InteractionLevels]:
    """Yield the interactions of two factors that are significant or important."""
    shown = [term.name for term in analysis.terms if term.significant or term.important]
    for name in shown:
        own = tuple(each for each in analysis.interactions if each.term == name)
        if own:
            few = len(own) <= _MOST_COMBINATIONS
            words = _readable(name, study)
            yield InteractionLevels(words, own if few else (), 0 if few else len(own))


def _levels(study: AnovaStudy, analysis: AnovaResult, factor: str) -> FactorLevels:
    """Return a factor's levels if they fit on the page, and the two levels that differ most."""
    own = tuple(each for each in analysis.effects if each.factor == factor)
    few = len(own) <= MOST_LEVELS_IN_PAIRS
    confidence = confidence_text(analysis.analysed.confidence)
    pairs = (pair for pair in analysis.contrasts if pair.factor == factor)
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    return FactorLevels(
        factor=_words(factor),
        rows=own if few else (),
        omitted=0 if few else len(own),
        extremes=None
        if widest is None
        else write_text(
            _TEXTS, "extremes", pair=widest, metric=study.metric, confidence=confidence
        ),
    )
