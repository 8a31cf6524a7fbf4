"""Explain the differences between an experiment's values: factors, levels and residuals.

Each analysis begins with a sentence for readers who do not know F tests. The table of variation,
the levels and the residuals follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from chaosity.figures.residual_plots import MOST_MARKS, residual_plots_svg
from chaosity.report.resource_table import DRIVES
from chaosity.statistics.anova import AnovaResult
from chaosity.statistics.anova_table import (
    IMPORTANT_FROM_PERCENT,
    SIGNIFICANT_BELOW,
    VariationTerm,
    p_value_text,
    variation_percent_text,
)
from chaosity.statistics.effects_and_contrasts import (
    MOST_LEVELS_IN_PAIRS,
    Contrast,
    DifferenceWithInterval,
)
from chaosity.statistics.estimates_and_ratios import confidence_text
from chaosity.statistics.find_anova_studies import LOCAL, REMOTE, AnovaStudy, analyse_all_studies
from chaosity.store.measurements import Measurements
from chaosity.units import format_quantity, join_with_and, metric_words

# If the relation explains less of the variation, local against remote does not sum up the pairs.
_RELATION_FROM_PERCENT = 50.0
_KINDS = {"pu": "PUs", "l3": "L3 domains", "nodes": "sets of nodes", "machine": "the machine"}


@dataclass(frozen=True)
class TermRow:
    """A row of the table of variation, as text; `percent` is the width of its bar."""

    name: str
    percent: float
    share: str
    freedom: str
    f: str
    p: str
    verdict: str


@dataclass(frozen=True)
class LevelRow:
    """A level with its mean and its difference from the mean of all levels."""

    level: str
    n: int
    mean: str
    effect: str
    interval: str


@dataclass(frozen=True)
class FactorLevels:
    """The levels of a factor, or of many levels only the number and the two that differ most."""

    factor: str
    rows: tuple[LevelRow, ...]
    omitted: int
    extremes: str | None


@dataclass(frozen=True)
class AnalysisSection:
    """An analysis of variance as the report shows it.

    Attributes:
        title: metric, load and factors.
        sentence: the conclusion.
        remote: text on remote compared with local, or None.
        terms: the table of variation.
        sentences: the conclusion for each term.
        levels: levels of each factor.
        remarks: remarks on number of values, scale, missing values and omitted columns.
        svg: drawing of the residuals; None without residuals.
        confidence: confidence of the intervals, in per cent.
    """

    title: str
    sentence: str
    remote: str | None
    terms: tuple[TermRow, ...]
    sentences: tuple[str, ...]
    levels: tuple[FactorLevels, ...]
    remarks: tuple[str, ...]
    svg: str | None
    confidence: str


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
    return AnalysisSection(
        title=_analysis_title(study),
        sentence=_readable(analysis.conclusion),
        remote=_remote(study, analysis),
        terms=tuple(_term(term) for term in analysis.terms if term.kind != "total"),
        sentences=tuple(_readable(term.sentence) for term in analysis.terms if term.sentence),
        levels=tuple(_levels(study, analysis, factor) for factor in analysis.factors),
        remarks=tuple(_remarks(study, analysis, has_residuals)),
        svg=residual_plots_svg(analysis, study.metric, name) if has_residuals else None,
        confidence=confidence_text(analysis.error.confidence),
    )


def _analysis_title(study: AnovaStudy) -> str:
    """Return a title: "Bandwidth of memory: effect of kernel (initiators: nodes only)"."""
    metric = metric_words(study.metric).capitalize()
    factors = join_with_and([_words(factor) for factor in study.factors])
    fixed = "; ".join(_only(key, level) for key, level in study.where.items())
    title = f"{metric} of {study.load}: effect of {factors}"
    return f"{title} ({fixed})" if fixed else title


def _only(column: str, level: str) -> str:
    """Return the level that a column has in all rows: "initiators: nodes only"."""
    role = column.removesuffix("_kind")
    if role == column:
        return f"{_words(column)}: {level} only"
    kinds = DRIVES.get(level) or _KINDS.get(level) or f"{_words(level).removesuffix('s')}s"
    return f"{role}s: {kinds} only"


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
    metric = metric_words(study.metric)
    names = (f"{REMOTE} {metric}", f"{LOCAL} {metric}")
    confidence = confidence_text(analysis.error.confidence)
    clause = _difference_clause(*names, contrast.difference, study.metric, confidence)
    sentence = f"{clause[:1].upper()}{clause[1:]}."
    if share is None or share < _RELATION_FROM_PERCENT:
        return sentence
    return (
        "The relation of initiator and target (same node, same package, other package) alone "
        f"explains {variation_percent_text(share)} of the variation. {sentence}"
    )


def _difference_clause(
    level: str, other: str, interval: DifferenceWithInterval, metric: str, confidence: str
) -> str:
    """Return the difference of two levels: "A is 1.57 times B (95 % interval 1.55 to 1.59)"."""
    bounds = _bounds(interval, metric)
    if interval.excludes_zero is False:
        bounds = _range(interval, metric, confidence)
        return f"no difference between {level} and {other} is detected: {bounds}"
    if interval.ratio is not None:
        end = f" ({confidence} interval {bounds})" if bounds else ""
        return f"{level} is {_ratio(interval.ratio)} times {other}{end}"
    side = "above" if interval.value > 0.0 else "below"
    end = f" ({confidence} interval of the difference: {bounds})" if bounds else ""
    return f"{level} is {format_quantity(metric, abs(interval.value))} {side} {other}{end}"


def _range(interval: DifferenceWithInterval, metric: str, confidence: str) -> str:
    """Return what the bounds are, and the bounds: "ratio of the means 0.99 to 1.01 (...)"."""
    name = "difference" if interval.ratio is None else "ratio"
    return f"{name} of the means {_bounds(interval, metric)} ({confidence} interval)"


def _ratio(ratio: float) -> str:
    """Return a ratio with three decimals, since most ratios are near 1."""
    return f"{ratio:.3f}" if ratio < 9.9995 else f"{ratio:.3g}"


def _signed(value: float, metric: str) -> str:
    return ("\N{MINUS SIGN}" if value < 0.0 else "+") + format_quantity(metric, abs(value))


def _bounds(interval: DifferenceWithInterval, metric: str) -> str:
    """Return the bounds of the interval, or an empty text without an interval."""
    if interval.low is None or interval.high is None:
        return ""
    texts = [_signed(interval.low, metric), _signed(interval.high, metric)]
    if interval.ratio_low is not None and interval.ratio_high is not None:
        texts = [_ratio(interval.ratio_low), _ratio(interval.ratio_high)]
    return " to ".join(texts)


def _term(term: VariationTerm) -> TermRow:
    verdict = ""
    if term.kind == "error":
        verdict = "noise"
    elif term.significant is not None:
        verdict = "significant" if term.significant else "no difference detected"
        verdict += ", important" if term.significant and term.important else ""
    return TermRow(
        name=_readable(term.name),
        percent=round(min(100.0, term.variation_percent), 2),
        share=variation_percent_text(term.variation_percent),
        freedom=str(term.degrees_of_freedom),
        f="" if term.f is None else f"{term.f:.3g}" if term.f < 1000.0 else f"{term.f:,.0f}",
        p=""
        if term.p_value is None
        else p_value_text(term.p_value).removeprefix("p ").lstrip("= "),
        verdict=verdict,
    )


def _levels(study: AnovaStudy, analysis: AnovaResult, factor: str) -> FactorLevels:
    """Return a factor's levels if they fit on the page, and the two levels that differ most."""
    metric, own = study.metric, [each for each in analysis.effects if each.factor == factor]
    few = len(own) <= MOST_LEVELS_IN_PAIRS
    rows = (
        LevelRow(
            level=each.level,
            n=each.n,
            mean=format_quantity(metric, each.mean),
            effect=_signed(each.effect.value, metric)
            if each.effect.ratio is None
            else f"{_ratio(each.effect.ratio)} times",
            interval=_bounds(each.effect, metric),
        )
        for each in (own if few else ())
    )
    confidence = confidence_text(analysis.error.confidence)
    pairs = (pair for pair in analysis.contrasts if pair.factor == factor)
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    return FactorLevels(
        factor=_words(factor),
        rows=tuple(rows),
        omitted=0 if few else len(own),
        extremes=None if widest is None else _extremes_text(widest, metric, confidence),
    )


def _extremes_text(widest: Contrast, metric: str, confidence: str) -> str:
    """Return a text with the difference of the two levels that differ most."""
    factor, difference = _words(widest.factor), widest.difference
    level, other = f"{factor} {widest.level}", f"{factor} {widest.against}"
    if difference.excludes_zero is False:
        text = (
            "No difference between any two levels is detected. The largest difference is between "
            f"{level} and {other}: {_range(difference, metric, confidence)}."
        )
    else:
        names = (f"the mean of {level}", f"the mean of {other}")
        clause = _difference_clause(*names, difference, metric, confidence)
        text = f"Largest difference: {clause}."
    adjusted = " The interval is adjusted for all pairs (Tukey)." if widest.adjusted else ""
    return f"{text}{adjusted}"


def _remarks(study: AnovaStudy, analysis: AnovaResult, has_residuals: bool) -> list[str]:
    """Return remarks: number of values, scale, omitted columns, meaning of the words used."""
    remarks = [f"Analysed: {analysis.n} values.", analysis.transform_reason, *analysis.notes]
    if study.left_out:
        names = ", ".join(map(_words, study.left_out))
        remarks.append(f"Not analysed, since the factors determine these columns: {names}.")
    if analysis.n > MOST_MARKS and has_residuals:
        remarks.append(
            f"The plots show {MOST_MARKS} of {analysis.n} residuals, including the largest."
        )
    remarks.append(
        f"Significant means p below {SIGNIFICANT_BELOW:g}. "
        f"Important means {IMPORTANT_FROM_PERCENT:g} % of the variation or more."
    )
    return remarks
