"""Allocate variation to terms: the lines of the table, and their meaning in sentences.

A term is *significant* when its F test finds more than noise, and *important* when it explains much
of the variation. Both matter: with enough values everything is significant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from chaosity.statistics.anova_design import AnovaDesign, Values
from chaosity.statistics.effects_and_contrasts import ResidualError
from chaosity.statistics.sums_of_squares import FittedModel
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
    design: AnovaDesign,
    model: FittedModel,
    place: int,
    values: Values,
    error: ResidualError,
    error_squares: float,
) -> list[VariationTerm]:
    """Return the table of variation: its terms, then the error and the total.

    `place` is the number of the response in the model, `values` are its values.
    """
    total = float(((values - values.mean()) ** 2).sum())
    terms = []
    for members, found, freedom in zip(model.terms, model.squares, model.freedom, strict=True):
        name, own = design.term_name(members), float(found[place])
        kind = "interaction" if len(members) > 1 else "factor"
        f = p = None
        if error.variance is not None:
            f = own / freedom / error.variance
            p = float(stats.f.sf(f, freedom, error.freedom))
        share = 100.0 * own / total
        terms.append(
            VariationTerm(
                name=name,
                kind="block" if members == design.block_term else kind,
                degrees_of_freedom=freedom,
                sum_of_squares=own,
                mean_square=own / freedom,
                f=f,
                p_value=p,
                variation_percent=share,
                significant=None if p is None else p < error.significant_below,
                important=share >= IMPORTANT_FROM_PERCENT,
                sentence=_sentence(name, share, p, error.significant_below, design.value_count),
            )
        )
    share = 100.0 * error_squares / total
    rest = VariationTerm(
        "error", "error", error.freedom, error_squares, error.variance, None, None, share
    )
    whole = VariationTerm("total", "total", design.value_count - 1, total, None, None, None, 100.0)
    return [*terms, rest, whole]


def _sentence(name: str, share: float, p: float | None, below: float, n: int) -> str:
    """Return the conclusion on a term: significant or not, important or not."""
    return write_text(
        "variance_analysis",
        "term",
        name=name,
        share=variation_percent_text(share),
        is_important=share >= IMPORTANT_FROM_PERCENT,
        p=None if p is None else p_value_text(p),
        is_significant=p is not None and p < below,
        n=n,
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
