"""What explains the differences between an experiment's values, for people who never heard of F.

A sentence each; the table of variation, the levels and the residuals stand behind it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pandas as pd

from chaosity.figures.residual_plots import MOST_MARKS, residuals_svg
from chaosity.statistics.anova import Analysis
from chaosity.statistics.anova_terms import (
    IMPORTANT_FROM_PERCENT,
    SIGNIFICANT_BELOW,
    Term,
    p_text,
    percent_text,
)
from chaosity.statistics.contrasts import MOST_LEVELS_IN_PAIRS, Interval
from chaosity.statistics.estimate import CONFIDENCE
from chaosity.statistics.factor_studies import REMOTE, Study, analyses
from chaosity.units import format_quantity, metric_words

# The widest that residuals are drawn on the page, in pixels.
_WIDTH_PIXELS = 720
# Where the relation alone goes with less, it is no summary of the pairs.
_RELATION_TELLS_PERCENT = 50.0


@dataclass(frozen=True)
class TermRow:
    """A line of the table of variation, as text; `percent` is as wide as its bar."""

    name: str
    percent: float
    share: str
    freedom: str
    f: str
    p: str
    said: str


@dataclass(frozen=True)
class LevelRow:
    """A level with its mean and its departure from the grand mean."""

    level: str
    n: int
    mean: str
    effect: str
    interval: str


@dataclass(frozen=True)
class FactorLevels:
    """A factor's levels, or of many levels only how far apart they are."""

    factor: str
    rows: tuple[LevelRow, ...]
    omitted: int
    extremes: str | None


@dataclass(frozen=True)
class AnalysisSection:
    """An analysis of variance as the report shows it.

    Attributes:
        title: what was analysed.
        sentence: what explains the differences.
        remote: local against remote, or None.
        terms: the table of variation.
        sentences: the conclusion by rule for each term.
        levels: of each factor.
        remarks: scale, noise, gaps, what follows from what.
        svg: residuals; None without any.
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


def analysis_sections(tidy: pd.DataFrame) -> dict[str, tuple[AnalysisSection, ...]]:
    """The analyses of each experiment by its name.

    Args:
        tidy: the tidy table of one host in one configuration.
    """
    found: dict[str, list[AnalysisSection]] = defaultdict(list)
    for number, (study, analysis) in enumerate(analyses(tidy), start=1):
        found[study.experiment].append(_section(study, analysis, f"residuals-{number}"))
    return {name: tuple(sections) for name, sections in found.items()}


def _section(study: Study, analysis: Analysis, name: str) -> AnalysisSection:
    svg = None
    if analysis.error.variance is not None:
        svg = residuals_svg(analysis, study.metric, name)
    return AnalysisSection(
        title=title_of(study),
        sentence=_spoken(analysis.conclusion),
        remote=_remote(study, analysis),
        terms=tuple(_term(term) for term in analysis.terms if term.kind != "total"),
        sentences=tuple(_spoken(term.sentence) for term in analysis.terms if term.sentence),
        levels=tuple(_levels(study, analysis, factor) for factor in analysis.factors),
        remarks=tuple(_remarks(study, analysis)),
        svg=svg,
    )


def title_of(study: Study) -> str:
    """What was analysed: "Bandwidth of memory by initiator and target (kernel triad)"."""
    words = metric_words(study.metric).capitalize()
    factors = [_words(factor) for factor in study.factors]
    listed = " and ".join(filter(None, [", ".join(factors[:-1]), factors[-1]]))
    held = ", ".join(f"{_words(key)} {_words(level)}" for key, level in study.where.items())
    return f"{words} of {study.load} by {listed}" + (f" ({held})" if held else "")


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")


def _spoken(sentence: str) -> str:
    """The letter x between factors becomes the sign that people write."""
    return sentence.replace(" x ", " \N{MULTIPLICATION SIGN} ").replace("_", " ")


def _remote(study: Study, analysis: Analysis) -> str | None:
    """How much the relation explains, and other places against one's own."""
    contrast, share = study.local_against_remote(analysis), study.share_of_relation(analysis)
    if contrast is None:
        return None
    parts = []
    if share is not None and share >= _RELATION_TELLS_PERCENT:
        parts.append(
            "The relation of the two (same node, same package, other package) alone goes with "
            f"{percent_text(share)} of the variation."
        )
    sentence = _apart(REMOTE.capitalize(), "local", contrast.difference, study.metric)
    return " ".join([*parts, sentence])


def _apart(one: str, other: str, interval: Interval, metric: str) -> str:
    """How far apart two things are, as a sentence."""
    bounds = _bounds(interval, metric)
    if interval.differs is False:
        return f"Between {one.lower()} and {other} no difference is detected{bounds}."
    if interval.ratio is not None:
        return f"{one} is {_ratio(interval.ratio)} times {other}{bounds}."
    side = "above" if interval.value > 0.0 else "below"
    return f"{one} is {format_quantity(metric, abs(interval.value))} {side} {other}{bounds}."


def _difference(interval: Interval, metric: str) -> str:
    """A ratio, or a difference with its sign and unit."""
    return _ratio(interval.ratio) if interval.ratio is not None else _signed(interval.value, metric)


def _ratio(ratio: float) -> str:
    """Near one the third decimal tells on which side of it."""
    return f"{ratio:.3f}" if ratio < 9.9995 else f"{ratio:.3g}"


def _signed(value: float, metric: str) -> str:
    return ("\N{MINUS SIGN}" if value < 0.0 else "+") + format_quantity(metric, abs(value))


def _bounds(interval: Interval, metric: str) -> str:
    """The interval in brackets; empty without one."""
    if interval.low is None or interval.high is None:
        return ""
    percent = f"{CONFIDENCE:.0%}".replace("%", " %")
    if interval.ratio_low is not None and interval.ratio_high is not None:
        return f" ({percent}: {_ratio(interval.ratio_low)} to {_ratio(interval.ratio_high)})"
    low, high = _signed(interval.low, metric), _signed(interval.high, metric)
    return f" ({percent}: {low} to {high})"


def _term(term: Term) -> TermRow:
    said = ""
    if term.kind == "error":
        said = "noise"
    elif term.significant is not None:
        said = "significant" if term.significant else "no difference detected"
        said += ", important" if term.significant and term.important else ""
    return TermRow(
        name=_spoken(term.name),
        percent=round(min(100.0, term.variation_percent), 2),
        share=percent_text(term.variation_percent),
        freedom=str(term.degrees_of_freedom),
        f="" if term.f is None else f"{term.f:.3g}" if term.f < 1000.0 else f"{term.f:,.0f}",
        p="" if term.p_value is None else p_text(term.p_value).removeprefix("p ").lstrip("= "),
        said=said,
    )


def _levels(study: Study, analysis: Analysis, factor: str) -> FactorLevels:
    """Levels that fit on the page; of more only the extremes."""
    own = [effect for effect in analysis.effects if effect.factor == factor]
    few = len(own) <= MOST_LEVELS_IN_PAIRS
    rows = tuple(
        LevelRow(
            level=effect.level,
            n=effect.n,
            mean=format_quantity(study.metric, effect.mean),
            effect=_difference(effect.effect, study.metric),
            interval=_bounds(effect.effect, study.metric).strip(" ()"),
        )
        for effect in own
    )
    pairs = [pair for pair in analysis.contrasts if pair.factor == factor]
    widest = max(pairs, key=lambda pair: abs(pair.difference.value), default=None)
    extremes = None
    if widest is not None:
        adjusted = "; the interval allows for all pairs (Tukey)" if widest.adjusted else ""
        said = _apart(widest.level, widest.against, widest.difference, study.metric)
        said = said[0].lower() + said[1:] if widest.difference.differs is False else said
        extremes = f"Farthest apart: {said[:-1]}{adjusted}."
    return FactorLevels(
        factor=_words(factor),
        rows=rows if few else (),
        omitted=0 if few else len(own),
        extremes=extremes,
    )


def _remarks(study: Study, analysis: Analysis) -> list[str]:
    """What to know before believing it."""
    remarks = [f"{analysis.n} values.", analysis.transform_reason, *analysis.notes]
    if study.left_out:
        names = ", ".join(map(_words, study.left_out))
        remarks.append(f"Left out, since it follows from the factors: {names}.")
    if analysis.n > MOST_MARKS and analysis.error.variance is not None:
        remarks.append(f"{MOST_MARKS} of {analysis.n} residuals are drawn, the largest among them.")
    remarks.append(
        f"Significant: p below {SIGNIFICANT_BELOW:g}. "
        f"Important: {IMPORTANT_FROM_PERCENT:g} % of the variation or more."
    )
    return remarks
