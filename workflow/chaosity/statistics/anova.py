"""Analyse variance: which factors explain the differences in a table, and how much of them.

The steps are those of document 004 and of Jain, "The Art of Computer Systems Performance Analysis"
(1991): effects, allocation of variation, F tests, contrasts, visual tests of the residuals, and a
log transform if the residuals need it. A factor is *significant* when its F test finds more than
noise, and *important* when it explains much of the variation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.errors import UserError
from chaosity.statistics.anova_design import (
    MOST_FACTORS_INTERACTING,
    Term,
    Values,
    fit_largest_model,
    read_anova_design_and_values,
)
from chaosity.statistics.anova_effects import (
    Contrast,
    InteractionEffect,
    LevelEffect,
    ValuesAndError,
    interaction_effects,
    level_effects_and_contrasts,
)
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.text_templates import sentences_of_macro, text_of_macro

_TEXTS = "variance_analysis"
TRANSFORMS = ("auto", "better", "none", "log")
# Relative rounding error of a value; a smaller residual is rounding.
_ROUNDING = 8.0 * float(np.finfo(float).eps)
# Logarithms are clearly better if their log likelihood is larger by more than this: then the 95 %
# interval of the power does not contain the values themselves (Box and Cox, "An Analysis of
# Transformations", Journal of the Royal Statistical Society B 26, 1964). The limit is half the 95 %
# point of chi square with one degree of freedom.
_CLEAR_LIKELIHOOD_GAIN = float(stats.chi2.ppf(0.95, 1)) / 2.0
# A trend is noted at this level, which chance reaches once in a hundred tables. At 5 % every
# twentieth healthy table would have a note.
_TREND_LEVEL = 0.01
# With thousands of values even a faint trend is significant; below Cohen's "medium" (Statistical
# Power Analysis, 1988) it does not harm the tests.
_TREND_LEAST = 0.3
# Document 004 calls a factor with 9 % of the variation, and one with 8 %, unimportant.
IMPORTANT_FROM_PERCENT = 10.0


@dataclass(frozen=True)
class VariationTerm:
    """A line of the table that divides the variation among the terms."""

    name: str  # names of the factors, "error" or "total"
    kind: str  # factor, interaction, block, error or total
    degrees_of_freedom: int  # degrees of freedom of its sum of squares
    sum_of_squares: float  # sum of squares, in the square of the analysed unit
    # Sum of squares per degree of freedom; None for the total, or without any.
    mean_square: float | None
    f: float | None  # mean square divided by the mean square of the error; None without an error
    p_value: float | None  # probability of an F of this size if there is no effect
    variation_percent: float  # share of the total sum of squares
    significant: bool | None = None  # whether the F test finds more than noise; None without a test
    important: bool | None = None  # whether the share reaches `IMPORTANT_FROM_PERCENT`
    sentence: str | None = None  # the conclusion, for factors, interactions and blocks


@dataclass(frozen=True)
class AnovaResult:
    """The result of an analysis of variance; the keys of its JSON are the names of the fields."""

    response: str  # column of the values
    factors: tuple[str, ...]  # columns that were varied
    block: str | None  # column of the blocks, or None
    n: int  # number of values
    levels: dict[str, tuple[str, ...]]  # levels of each factor and of the block
    balanced: bool  # whether every combination was measured equally often
    sums_of_squares: str  # "orthogonal" or "type II"
    transform: str  # "none" or "log"
    transform_reason: str  # why this scale was chosen, in one sentence
    # Lines of the table: factors, interactions, block, error, total.
    terms: tuple[VariationTerm, ...]
    effects: tuple[LevelEffect, ...]  # effect of each level of each factor
    # Effect of each pair of levels, for each interaction of two factors.
    interactions: tuple[InteractionEffect, ...]
    contrasts: tuple[Contrast, ...]  # differences of pairs of levels
    # fitted, residuals: fitted value and residual of each value, on the analysed scale.
    fitted: Values
    residuals: Values
    normal_quantiles: Values  # normal quantiles of the residuals, in standard deviations
    notes: tuple[str, ...]  # what a reader must know about the data, as sentences
    conclusion: str  # which terms explain the differences, in one sentence
    analysed: ValuesAndError  # data for further contrasts; not in the JSON

    def to_json(self) -> dict[str, Any]:
        """Return everything except `analysed`, in JSON's types.

        `confidence` is that of the intervals and of the tests.
        """
        plain = {**vars(self), "confidence": self.analysed.confidence}
        del plain["analysed"]
        for name in ("fitted", "residuals", "normal_quantiles"):
            plain[name] = plain[name].tolist()
        for name in ("terms", "effects", "interactions", "contrasts"):
            plain[name] = [_flat(asdict(part)) for part in plain.pop(name)]
        return plain


def _flat(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of an analysis as a dict, with the keys of its interval at the top level."""
    for name in {"difference", "effect"} & part.keys():
        interval = part.pop(name)
        part = {**part, name: interval.pop("value"), **interval}
    return part


def analyse_variance(
    frame: pd.DataFrame,
    response: str,
    factors: Sequence[str],
    block: str | None = None,
    transform: str = "auto",
    confidence: float = CONFIDENCE,
) -> AnovaResult:
    """Analyse which factors explain the differences in a table.

    Args:
        frame: table with one row for each value; error messages name rows by their index.
        response: column of the values.
        factors: columns of the factors; their levels are treated as categories.
        block: blocking column (such as replicate), whose effect is removed from the error; or None.
        transform: "log" analyses logarithms, "none" the values. "better" selects the scale with the
            larger likelihood of the residuals; "auto" selects logarithms only if their likelihood
            is clearly larger.
        confidence: confidence of the intervals and of the tests, 0 to 1.

    Raises:
        UserError: the table cannot be analysed; the error names row and column.
    """
    if transform not in TRANSFORMS:
        allowed = f"allowed: {', '.join(TRANSFORMS)}"
        raise UserError(f"unknown transform {transform!r}", None, allowed)
    design, values = read_anova_design_and_values(frame, response, factors, block)
    positive = bool((values > 0.0).all())
    if transform == "log" and not positive:
        where = f"row {frame.index[int(np.argmin(values))]}, column {response}"
        remedy = "logarithms need values above zero"
        raise UserError(f"{values.min():g} has no logarithm", where, remedy)
    scales = np.column_stack([values, np.log(values)] if positive else [values])
    fit = fit_largest_model(design, scales)
    squares = (fit.residuals**2).sum(axis=0)
    squares[squares <= len(scales) * (_ROUNDING * np.abs(scales).max(axis=0)) ** 2] = 0.0
    gain = _log_likelihood_gain_of_logarithms(scales, squares, fit.error_freedom)
    logs = _should_analyse_logarithms(transform, gain)
    scale = int(logs)
    is_exact = fit.error_freedom < 1 or squares[scale] == 0.0
    analysed = ValuesAndError(
        design=design,
        values=scales[:, scale],
        residuals=np.zeros(len(scales)) if is_exact else fit.residuals[:, scale],
        logs=logs,
        variance=None if is_exact else float(squares[scale]) / fit.error_freedom,
        freedom=fit.error_freedom,
        confidence=confidence,
    )
    fitted = scales[:, scale] - fit.residuals[:, scale]
    combinations = design.combination_count(design.cells)
    notes = sentences_of_macro(
        _TEXTS,
        "notes",
        factors=len(design.cells),
        most_interacting=MOST_FACTORS_INTERACTING,
        omitted=fit.omitted,
        lost=list(map(design.term_name, fit.lost)),
        missing=combinations - len(np.unique(design.combination_of_each_row(design.cells))),
        combinations=combinations,
        is_balanced=design.is_balanced,
        freedom=fit.error_freedom,
        is_exact=is_exact,
        trend=_trend_of_spread(fitted, analysed.residuals),
    )
    reason = text_of_macro(
        _TEXTS,
        "scale",
        requested=transform in ("log", "none"),
        chosen="log" if logs else "none",
        positive=positive,
        gain=gain,
        clear=_CLEAR_LIKELIHOOD_GAIN,
    )
    sums = (float(own[scale]) for own in fit.squares)
    lines = zip(fit.terms, sums, fit.freedom, strict=True)
    table = _variation_table(analysed, lines, float(squares[scale]))
    effects, contrasts = level_effects_and_contrasts(
        analysed, [term for term in fit.terms if len(term) == 1]
    )
    conclusion = text_of_macro(
        _TEXTS,
        "conclusion",
        terms=sorted(table[:-2], key=lambda term: -term.variation_percent),
        shares={term.name: variation_percent_text(term.variation_percent) for term in table},
        n=len(values),
    )
    return AnovaResult(
        response=response,
        factors=tuple(factors),
        block=block,
        n=len(values),
        levels=dict(zip(design.names, design.levels, strict=True)),
        balanced=design.is_balanced,
        sums_of_squares="orthogonal" if design.is_balanced else "type II",
        transform="log" if logs else "none",
        transform_reason=reason,
        terms=table,
        effects=tuple(effects),
        interactions=tuple(
            effect
            for term in fit.terms
            if len(term) == 2
            for effect in interaction_effects(analysed, term)
        ),
        contrasts=tuple(contrasts),
        fitted=fitted,
        residuals=analysed.residuals,
        normal_quantiles=_normal_quantiles(analysed.residuals),
        notes=tuple(notes),
        conclusion=conclusion,
        analysed=analysed,
    )


# Box and Cox compare the residual sums of squares of y and of G ln y, where G is the geometric
# mean, so both have the same unit. The likelihood uses the degrees of freedom of the error, since a
# model with a mean for each cell leaves far fewer degrees of freedom than there are rows.
def _log_likelihood_gain_of_logarithms(
    scales: Values, squares: Values, freedom: int
) -> float | None:
    """Return by how much the log likelihood is larger for logarithms; None if it is unknown."""
    if freedom < 1 or len(squares) < 2 or not squares.all():
        return None
    error, error_of_logs = map(math.log, squares)
    return freedom / 2.0 * (error - error_of_logs - 2.0 * float(np.mean(scales[:, 1])))


# A user's own table is analysed without logarithms unless these are clearly better. For measured
# rates and times it is known that disturbances multiply values. Many small tables cannot show
# clearly that logarithms are better, but without them the noise would be unequal and the intervals
# wrong.
def _should_analyse_logarithms(transform: str, gain: float | None) -> bool:
    if transform in ("log", "none") or gain is None:
        return transform == "log"
    return gain > (_CLEAR_LIKELIHOOD_GAIN if transform == "auto" else 0.0)


def _normal_quantiles(residuals: Values) -> Values:
    """Return the normal quantile of each residual's rank, in standard deviations."""
    quantiles = np.empty(len(residuals))
    order = np.argsort(_without_rounding(residuals), kind="stable")
    quantiles[order] = stats.probplot(residuals, fit=False)[0]
    return quantiles


def _trend_of_spread(fitted: Values, residuals: Values) -> float | None:
    """Return the rank correlation of fitted values and absolute residuals if it is a trend."""
    sides = [_without_rounding(side) for side in (fitted, np.abs(residuals))]
    if len(fitted) < 3 or not all(map(np.ptp, sides)):
        return None
    correlation, p = map(float, stats.spearmanr(sides[0], sides[1]))
    return correlation if p < _TREND_LEVEL and abs(correlation) >= _TREND_LEAST else None


def _without_rounding(values: Values) -> Values:
    """Return scaled values, rounded so that those that differ by rounding errors are equal."""
    return np.asarray(np.round(values / (np.abs(values).max() or 1.0), 9), dtype=float)


def _variation_table(
    analysed: ValuesAndError, terms: Iterable[tuple[Term, float, int]], error_squares: float
) -> tuple[VariationTerm, ...]:
    """Return the lines of the table: each term, then error and total.

    `terms` has each term with its sum of squares and its degrees of freedom.
    """
    design, error, n = analysed.design, analysed.variance, len(analysed.values)
    total = float(((analysed.values - analysed.values.mean()) ** 2).sum())
    lines = []
    for term, squares, freedom in terms:
        name, share = design.term_name(term), 100.0 * squares / total
        kind = "interaction" if len(term) > 1 else "block" if term == design.block else "factor"
        mean, f, p, significant = squares / freedom, None, None, None
        if error is not None:
            f = mean / error
            p = float(stats.f.sf(f, freedom, analysed.freedom))
            significant = p < analysed.significant_below
        important = share >= IMPORTANT_FROM_PERCENT
        sentence = text_of_macro(
            _TEXTS,
            "term",
            name=name,
            share=variation_percent_text(share),
            is_important=important,
            p=None if p is None else p_value_text(p),
            is_significant=significant,
            n=n,
        )
        line = (name, kind, freedom, squares, mean, f, p, share, significant, important, sentence)
        lines.append(VariationTerm(*line))
    share, freedom = 100.0 * error_squares / total, analysed.freedom
    return (
        *lines,
        VariationTerm("error", "error", freedom, error_squares, error, None, None, share),
        VariationTerm("total", "total", n - 1, total, None, None, None, 100.0),
    )


def variation_percent_text(share: float) -> str:
    """Return a share of the variation as text."""
    if 0.0 < share < 0.05:
        return "< 0.1 %"
    if 99.95 <= share < 100.0 - 1e-9:
        return "> 99.9 %"
    return f"{share:.1f} %" if share < 9.95 or 98.95 <= share < 99.95 else f"{share:.0f} %"


def p_value_text(p: float) -> str:
    """Return a p-value as text."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2f}"
