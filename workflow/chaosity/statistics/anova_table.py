"""Allocate variation to terms: the lines of the table, and their meaning in sentences.

A term is *significant* when its F test finds more than noise, and *important* when it explains much
of the variation. Both matter: with enough values everything is significant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import stats

from chaosity.statistics.anova_design import Term
from chaosity.statistics.anova_effects import AnalysedValues
from chaosity.text_templates import write_text

# Document 004 calls a factor with 9 % of the variation, and one with 8 %, unimportant.
IMPORTANT_FROM_PERCENT = 10.0


@dataclass(frozen=True)
class VariationTerm:
    """A line of the table of variation."""

    name: str  # names of the factors, "error" or "total"
    kind: str  # factor, interaction, block, error or total
    degrees_of_freedom: int  # degrees of freedom of its sum of squares
    sum_of_squares: float  # sum of squares, in the square of the analysed unit
    # Sum of squares per degree of freedom; None for the total, or without any.
    mean_square: float | None
    f: float | None  # mean square divided by the mean square of the error; None without an error
    p_value: float | None  # probability of such an F if there is no effect
    variation_percent: float  # share of the total sum of squares
    significant: bool | None = None  # whether the F test finds more than noise; None without a test
    important: bool | None = None  # whether the share reaches `IMPORTANT_FROM_PERCENT`
    sentence: str | None = None  # the conclusion, for factors, interactions and blocks


def variation_table(
    analysed: AnalysedValues,
    terms: Iterable[tuple[Term, float, int]],
    error_squares: float,
) -> tuple[VariationTerm, ...]:
    """Return the table of variation: its terms, then the error and the total.

    `terms` have factors, sum of squares and degrees of freedom.
    """
    design, error, n = analysed.design, analysed.variance, analysed.design.value_count
    total = float(((analysed.values - analysed.values.mean()) ** 2).sum())
    lines = []
    for term, squares, freedom in terms:
        name, share = design.term_name(term), 100.0 * squares / total
        kind = "interaction" if len(term) > 1 else "block" if term == design.block else "factor"
        f = p = significant = None
        if error is not None:
            f = squares / freedom / error
            p = float(stats.f.sf(f, freedom, analysed.freedom))
            significant = p < analysed.significant_below
        important = share >= IMPORTANT_FROM_PERCENT
        sentence = write_text(
            "variance_analysis",
            "term",
            name=name,
            share=variation_percent_text(share),
            is_important=important,
            p=None if p is None else p_value_text(p),
            is_significant=significant,
            n=n,
        )
        lines.append(
            VariationTerm(
                name=name,
                kind=kind,
                degrees_of_freedom=freedom,
                sum_of_squares=squares,
                mean_square=squares / freedom,
                f=f,
                p_value=p,
                variation_percent=share,
                significant=significant,
                important=important,
                sentence=sentence,
            )
        )
    share, freedom = 100.0 * error_squares / total, analysed.freedom
    return (
        *lines,
        VariationTerm("error", "error", freedom, error_squares, error, None, None, share),
        VariationTerm("total", "total", n - 1, total, None, None, None, 100.0),
    )


def conclusion_sentence(terms: Sequence[VariationTerm]) -> str:
    """Return the terms that explain the differences, in one sentence."""
    *own, _, total = terms
    return write_text(
        "variance_analysis",
        "conclusion",
        terms=sorted(own, key=lambda term: -term.variation_percent),
        shares={term.name: variation_percent_text(term.variation_percent) for term in terms},
        n=total.degrees_of_freedom + 1,
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
