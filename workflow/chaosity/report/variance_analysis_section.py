"""Explain the differences between an experiment's values: factors, levels and residuals.

Each analysis begins with a sentence for readers who do not know F tests. The table of variation,
the levels and the residuals follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from chaosity.figures.residual_plots import MOST_MARKS, residual_plots_svg
from chaosity.report.resource_table import DRIVES
from chaosity.statistics.anova import AnovaResult
from chaosity.statistics.anova_table import (
    IMPORTANT_FROM_PERCENT,
    SIGNIFICANT_BELOW,
    VariationTerm,
    variation_percent_text,
)
from chaosity.statistics.effects_and_contrasts import MOST_LEVELS_IN_PAIRS, LevelEffect
from chaosity.statistics.estimates_and_ratios import confidence_text
from chaosity.statistics.find_anova_studies import LOCAL, REMOTE, AnovaStudy, analyse_all_studies
from chaosity.store.measurements import Measurements
from chaosity.text_templates import write_text
from chaosity.units import join_with_and, metric_words

_TEXTS = "variance_analysis"
# If the relation explains less of the variation, local against remote does not sum up the pairs.
_RELATION_FROM_PERCENT = 50.0


@dataclass(frozen=True)
class FactorLevels:
    """The levels of a factor, or of many levels only the number and the two that differ most."""

    factor: str
    rows: tuple[LevelEffect, ...]
    omitted: int
    extremes: str | None


@dataclass(frozen=True)
class AnalysisSection:
    """An analysis of variance as the report shows it."""

    metric: str  # name of the analysed metric
    title: str  # metric, load and factors
    sentence: str  # the conclusion
    remote: str | None  # text on remote compared with local, or None
    terms: tuple[VariationTerm, ...]  # the table of variation, without the total
    levels: tuple[FactorLevels, ...]  # levels of each factor
    remarks: str  # remarks on number of values, scale, missing values and omitted columns
    svg: str | None  # drawing of the residuals; None without residuals
    confidence: str  # confidence of the intervals, in per cent


def analysis_sections(
    measurements: Measurements, confidences: Mapping[str, float] | None = None
) -> defaultdict[str, tuple[AnalysisSection, ...]]:
    """Return experiment -> analyses, of one host in one configuration.

    `confidences`: experiment -> confidence of its intervals, if this confidence is not 95 %.
    """
    sections: defaultdict[str, tuple[AnalysisSection, ...]] = defaultdict(tuple)
    found = analyse_all_studies(measurements, confidences or {})
    for number, (study, analysis) in enumerate(found, start=1):
        sections[study.experiment] += (_section(study, analysis, f"residuals-{number}"),)
    return sections


def _section(study: AnovaStudy, analysis: AnovaResult, name: str) -> AnalysisSection:
    has_residuals = analysis.error.variance is not None
    factors = join_with_and(study.factors)
    return AnalysisSection(
        metric=study.metric,
        title=write_text(_TEXTS, "title", study=study, factors=factors, drive_sets=DRIVES),
        sentence=_readable(analysis.conclusion),
        remote=_remote(study, analysis),
        terms=tuple(
            replace(term, name=_readable(term.name), sentence=_readable(term.sentence or ""))
            for term in analysis.terms
            if term.kind != "total"
        ),
        levels=tuple(_levels(study, analysis, factor) for factor in analysis.factors),
        remarks=write_text(
            _TEXTS,
            "remarks",
            analysis=analysis,
            left_out=study.left_out,
            most_marks=MOST_MARKS if has_residuals else analysis.n,
            significant=SIGNIFICANT_BELOW,
            important=IMPORTANT_FROM_PERCENT,
        ),
        svg=residual_plots_svg(analysis, study.metric, name) if has_residuals else None,
        confidence=confidence_text(analysis.error.confidence),
    )


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _readable(sentence: str) -> str:
    """Return the sentence with multiplication signs instead of " x " and spaces for underscores."""
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
        confidence=confidence_text(analysis.error.confidence),
    )


def _levels(study: AnovaStudy, analysis: AnovaResult, factor: str) -> FactorLevels:
    """Return a factor's levels if they fit on the page, and the two levels that differ most."""
    own = tuple(each for each in analysis.effects if each.factor == factor)
    few = len(own) <= MOST_LEVELS_IN_PAIRS
    confidence = confidence_text(analysis.error.confidence)
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
