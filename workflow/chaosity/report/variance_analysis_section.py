"""Explains the differences between an experiment's values: factors, levels and residuals.

Each analysis begins with a sentence for readers who do not know F tests. Behind it are the table of
variation, the levels and the residuals.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from chaosity.figures.residual_plots import MOST_MARKS, residuals_svg
from chaosity.statistics.anova import Analysis
from chaosity.statistics.anova_studies import REMOTE, Study, analyse_all_studies
from chaosity.statistics.anova_table import (
    IMPORTANT_FROM_PERCENT,
    SIGNIFICANT_BELOW,
    Term,
    p_text,
    percent_text,
)
from chaosity.statistics.effects_and_contrasts import MOST_LEVELS_IN_PAIRS, Interval
from chaosity.statistics.estimates_and_ratios import CONFIDENCE
from chaosity.store.measurements import Measurements
from chaosity.units import format_quantity, join_with_and, metric_words

# Largest width of the residuals on the page.
_WIDTH_PIXELS = 720
# A relation that explains less of the variation is not a summary of the pairs.
_RELATION_FROM_PERCENT = 50.0


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
    """A factor's levels; of many levels only their number and the two that differ most."""

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
        remote: remote compared with local, or None.
        terms: the table of variation.
        sentences: the conclusion for each term.
        levels: of each factor.
        remarks: number of values, scale, gaps, omitted columns.
        svg: drawing of the residuals; None without residuals.
        width_pixels: of the drawing.
    """

    title: str
    sentence: str
    remote: str | None
    terms: tuple[TermRow, ...]
    sentences: tuple[str, ...]
    levels: tuple[FactorLevels, ...]
    remarks: tuple[str, ...]
    svg: str | None
    width_pixels: int = _WIDTH_PIXELS


def analysis_sections(measurements: Measurements) -> dict[str, tuple[AnalysisSection, ...]]:
    """The analyses of each experiment, by its name.

    Args:
        measurements: of one host in one configuration.
    """
    sections: dict[str, list[AnalysisSection]] = defaultdict(list)
    for number, (study, analysis) in enumerate(analyse_all_studies(measurements), start=1):
        sections[study.experiment].append(_section(study, analysis, f"residuals-{number}"))
    return {name: tuple(own) for name, own in sections.items()}


def _section(study: Study, analysis: Analysis, name: str) -> AnalysisSection:
    svg = None
    if analysis.error.variance is not None:
        svg = residuals_svg(analysis, study.metric, name)
    return AnalysisSection(
        title=_analysis_title(study),
        sentence=_readable(analysis.conclusion),
        remote=_remote(study, analysis),
        terms=tuple(_term(term) for term in analysis.terms if term.kind != "total"),
        sentences=tuple(_readable(term.sentence) for term in analysis.terms if term.sentence),
        levels=tuple(_levels(study, analysis, factor) for factor in analysis.factors),
        remarks=tuple(_remarks(study, analysis)),
        svg=svg,
    )


def _analysis_title(study: Study) -> str:
    """A title such as "Bandwidth of memory by initiator and target (kernel triad)"."""
    metric = metric_words(study.metric).capitalize()
    factors = [_words(factor) for factor in study.factors]
    fixed = ", ".join(f"{_words(key)} {_words(level)}" for key, level in study.where.items())
    return f"{metric} of {study.load} by {join_with_and(factors)}" + (
        f" ({fixed})" if fixed else ""
    )


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _readable(sentence: str) -> str:
    """The sentence with a multiplication sign for the letter x, and spaces for underscores."""
    return sentence.replace(" x ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def _remote(study: Study, analysis: Analysis) -> str | None:
    """The share of variation that the relation explains, and remote compared with local."""
    contrast, share = study.local_against_remote(analysis), study.share_of_relation(analysis)
    if contrast is None:
        return None
    parts = []
    if share is not None and share >= _RELATION_FROM_PERCENT:
        parts.append(
            "The relation of initiator and target (same node, same package, other package) alone "
            f"explains {percent_text(share)} of the variation."
        )
    sentence = _difference_sentence(REMOTE.capitalize(), "local", contrast.difference, study.metric)
    return " ".join([*parts, sentence])


def _difference_sentence(level: str, other: str, interval: Interval, metric: str) -> str:
    """The difference of two levels, as a sentence."""
    bounds = _bounds(interval, metric)
    if interval.differs is False:
        return f"Between {level.lower()} and {other} no difference is detected{bounds}."
    if interval.ratio is not None:
        return f"{level} is {_ratio(interval.ratio)} times {other}{bounds}."
    side = "above" if interval.value > 0.0 else "below"
    return f"{level} is {format_quantity(metric, abs(interval.value))} {side} {other}{bounds}."


def _difference_text(interval: Interval, metric: str) -> str:
    """A ratio, or a difference with its sign and unit."""
    return _ratio(interval.ratio) if interval.ratio is not None else _signed(interval.value, metric)


def _ratio(ratio: float) -> str:
    """A ratio with three decimals, since most ratios are near 1."""
    return f"{ratio:.3f}" if ratio < 9.9995 else f"{ratio:.3g}"


def _signed(value: float, metric: str) -> str:
    return ("\N{MINUS SIGN}" if value < 0.0 else "+") + format_quantity(metric, abs(value))


def _bounds(interval: Interval, metric: str) -> str:
    """The interval in brackets, or an empty text without an interval."""
    if interval.low is None or interval.high is None:
        return ""
    percent = f"{CONFIDENCE:.0%}".replace("%", " %")
    if interval.ratio_low is not None and interval.ratio_high is not None:
        return f" ({percent}: {_ratio(interval.ratio_low)} to {_ratio(interval.ratio_high)})"
    low, high = _signed(interval.low, metric), _signed(interval.high, metric)
    return f" ({percent}: {low} to {high})"


def _term(term: Term) -> TermRow:
    verdict = ""
    if term.kind == "error":
        verdict = "noise"
    elif term.significant is not None:
        verdict = "significant" if term.significant else "no difference detected"
        verdict += ", important" if term.significant and term.important else ""
    return TermRow(
        name=_readable(term.name),
        percent=round(min(100.0, term.variation_percent), 2),
        share=percent_text(term.variation_percent),
        freedom=str(term.degrees_of_freedom),
        f="" if term.f is None else f"{term.f:.3g}" if term.f < 1000.0 else f"{term.f:,.0f}",
        p="" if term.p_value is None else p_text(term.p_value).removeprefix("p ").lstrip("= "),
        verdict=verdict,
    )


def _levels(study: Study, analysis: Analysis, factor: str) -> FactorLevels:
    """The levels if they fit on the page, and the two levels that differ most."""
    own = [effect for effect in analysis.effects if effect.factor == factor]
    few = len(own) <= MOST_LEVELS_IN_PAIRS
    rows = tuple(
        LevelRow(
            level=effect.level,
            n=effect.n,
            mean=format_quantity(study.metric, effect.mean),
            effect=_difference_text(effect.effect, study.metric),
            interval=_bounds(effect.effect, study.metric).strip(" ()"),
        )
        for effect in own
    )
    pairs = [pair for pair in analysis.contrasts if pair.factor == factor]
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    extremes = None
    if widest is not None:
        adjusted = "; the interval is adjusted for all pairs (Tukey)" if widest.adjusted else ""
        text = _difference_sentence(widest.level, widest.against, widest.difference, study.metric)
        text = text[0].lower() + text[1:] if widest.difference.differs is False else text
        extremes = f"Largest difference: {text[:-1]}{adjusted}."
    return FactorLevels(
        factor=_words(factor),
        rows=rows if few else (),
        omitted=0 if few else len(own),
        extremes=extremes,
    )


def _remarks(study: Study, analysis: Analysis) -> list[str]:
    """Number of values, scale, omitted columns, and the meaning of significant and important."""
    remarks = [f"{analysis.n} values.", analysis.transform_reason, *analysis.notes]
    if study.left_out:
        names = ", ".join(map(_words, study.left_out))
        remarks.append(f"Omitted, since they follow from the factors: {names}.")
    if analysis.n > MOST_MARKS and analysis.error.variance is not None:
        remarks.append(f"{MOST_MARKS} of {analysis.n} residuals are drawn, including the largest.")
    remarks.append(
        f"Significant: p below {SIGNIFICANT_BELOW:g}. "
        f"Important: {IMPORTANT_FROM_PERCENT:g} % of the variation or more."
    )
    return remarks
