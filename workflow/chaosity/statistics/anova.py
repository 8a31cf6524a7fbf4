"""Analyse variance: which factors explain the differences in a table, and to which share.

The steps are those of document 004 and of Jain, "The Art of Computer Systems Performance Analysis"
(1991): effects, allocation of variation, F tests, contrasts, visual tests of the residuals, and a
log transform if the residuals need it. A factor is *significant* when its F test finds more than
noise, and *important* when it explains much of the variation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.statistics import residual_checks, sums_of_squares
from chaosity.statistics.anova_design import (
    AnovaDesign,
    Members,
    Values,
    read_anova_design_and_values,
)
from chaosity.statistics.anova_table import VariationTerm, conclusion_sentence, variation_table
from chaosity.statistics.effects_and_contrasts import (
    Contrast,
    InteractionEffect,
    LevelEffect,
    ResidualError,
    compare_groups_of_cells,
    compare_level_pairs_with_tukey_intervals,
    estimate_level_effects_and_covariance,
    interaction_effects,
    level_effects,
)
from chaosity.statistics.estimates_and_ratios import CONFIDENCE

TRANSFORMS = ("auto", "better", "none", "log")
# An interaction of four factors has hundreds of effects, which nobody can interpret.
MOST_FACTORS_INTERACTING = 3
# Relative rounding error of a value; a smaller residual is rounding.
_ROUNDING = 8.0 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class AnovaResult:
    """The result of an analysis of variance; the keys of its JSON are the names of the attributes.

    Attributes:
        response: column of the values.
        factors: columns that were varied.
        block: column of the blocks, or None.
        n: number of values.
        levels: levels of each factor and of the block.
        balanced: whether every combination was measured equally often.
        sums_of_squares: "orthogonal" or "type II".
        transform: "none" or "log".
        transform_reason: why this scale was chosen, in one sentence.
        terms: lines of the table: factors, interactions, block, error, total.
        effects: effect of each level of each factor.
        interactions: effect of each pair of levels, for each interaction of two factors.
        contrasts: differences of pairs of levels.
        fitted, residuals: fitted value and residual of each value, on the analysed scale.
        normal_quantiles: normal quantiles of the residuals, in standard deviations.
        notes: what a reader must know about the data, as sentences.
        conclusion: which terms explain the differences, in one sentence.
        design, values, error: data for further contrasts; not in the JSON.
    """

    response: str
    factors: tuple[str, ...]
    block: str | None
    n: int
    levels: dict[str, tuple[str, ...]]
    balanced: bool
    sums_of_squares: str
    transform: str
    transform_reason: str
    terms: tuple[VariationTerm, ...]
    effects: tuple[LevelEffect, ...]
    interactions: tuple[InteractionEffect, ...]
    contrasts: tuple[Contrast, ...]
    fitted: Values
    residuals: Values
    normal_quantiles: Values
    notes: tuple[str, ...]
    conclusion: str
    design: AnovaDesign
    values: Values
    error: ResidualError

    def contrast_two_groups(
        self, groups: Sequence[str], chosen: tuple[str, str], name: str
    ) -> Contrast | None:
        """Compare two groups of cells, see `effects_and_contrasts.compare_groups_of_cells`."""
        return compare_groups_of_cells(
            self.design, self.values, self.residuals, groups, chosen, self.error, name
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything except `design`, `values` and `error`, in JSON's types."""
        hidden = ("design", "values", "error")
        plain = {name: value for name, value in vars(self).items() if name not in hidden}
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
            larger likelihood of the residuals; "auto" logarithms only if clearly better.
        confidence: confidence of the intervals, 0 to 1.

    Raises:
        UserError: the table cannot be analysed; the error names row and column.
    """
    if transform not in TRANSFORMS:
        raise UserError(
            f"unknown transform {transform!r}", None, f"allowed: {', '.join(TRANSFORMS)}"
        )
    design, values = read_anova_design_and_values(frame, response, factors, block)
    positive = bool((values > 0.0).all())
    if transform == "log" and not positive:
        row = frame.index[int(np.argmin(values))]
        raise UserError(
            f"{values.min():g} has no logarithm",
            f"row {row}, column {response}",
            "logarithms need values above zero",
        )
    responses = np.column_stack([values, np.log(values)] if positive else [values])
    terms, notes = _choose_terms(design)
    model, lost = _fit_separable(design, terms, responses)
    rounding = len(responses) * (_ROUNDING * np.abs(responses).max(axis=0)) ** 2
    errors = np.where(model.error <= rounding, 0.0, model.error)
    chosen, reason = _choose_transform(
        transform, values, positive, errors, model.error_degrees_of_freedom
    )
    place = 1 if chosen == "log" else 0
    notes += _notes(design, model, lost)
    values, fitted = responses[:, place], model.fitted[:, place]
    residuals = np.zeros(design.value_count)
    error = ResidualError(None, model.error_degrees_of_freedom, chosen == "log", confidence)
    if error.freedom > 0 and errors[place] > 0.0:
        error = replace(error, variance=float(errors[place]) / error.freedom)
        residuals = values - fitted
        notes += _trend(fitted, residuals)
    elif error.freedom > 0:
        notes.append("The model fits every value exactly: there is no noise to test against.")
    table = variation_table(design, model, place, values, error, float(errors[place]))
    alone = [term for term in model.terms if len(term) == 1]
    estimates = {
        factor: estimate_level_effects_and_covariance(design, values, factor, alone)
        for (factor,) in alone
        if factor < design.factor_count
    }
    known = {factor: found for factor, found in estimates.items() if found is not None}
    effects = [level_effects(design, values, *found, error) for found in known.items()]
    contrasts = [
        compare_level_pairs_with_tukey_intervals(design, *found, error) for found in known.items()
    ]
    interactions = [
        interaction_effects(design, values, (term[0], term[1]), error)
        for term in model.terms
        if len(term) == 2
    ]
    return AnovaResult(
        response=response,
        factors=design.names[: design.factor_count],
        block=block,
        n=design.value_count,
        levels=dict(zip(design.names, design.levels, strict=True)),
        balanced=design.is_balanced,
        sums_of_squares="orthogonal" if design.is_balanced else "type II",
        transform=chosen,
        transform_reason=reason,
        terms=tuple(table),
        effects=tuple(chain.from_iterable(effects)),
        interactions=tuple(chain.from_iterable(interactions)),
        contrasts=tuple(chain.from_iterable(contrasts)),
        fitted=fitted,
        residuals=residuals,
        normal_quantiles=residual_checks.normal_quantiles(residuals),
        notes=tuple(notes),
        conclusion=conclusion_sentence(table),
        design=design,
        values=values,
        error=error,
    )


def _choose_terms(design: AnovaDesign) -> tuple[list[Members], list[str]]:
    """Return the terms of the largest model that leaves an error, and notes on omitted terms."""
    order = min(design.factor_count, MOST_FACTORS_INTERACTING)
    notes = []
    if order < design.factor_count:
        notes.append(f"Interactions of more than {order} factors count as error.")
    while order > 1:
        terms = design.terms_up_to_order(order)
        if (
            not design.is_balanced
            and sums_of_squares.count_model_columns(design, terms) > sums_of_squares.MOST_COLUMNS
        ):
            notes.append(
                f"The data are unbalanced and have too many levels for interactions of {order} "
                "factors: these count as error."
            )
        elif sums_of_squares.error_degrees_of_freedom(design, terms) < 1:
            notes.append(
                f"There are no replicates, so the interaction of {order} factors serves as "
                "error. If it is not zero, p values are too large and intervals too wide."
            )
        else:
            break
        order -= 1
    return design.terms_up_to_order(order), notes


def _fit_separable(
    design: AnovaDesign, terms: Sequence[Members], responses: Values
) -> tuple[sums_of_squares.FittedModel, list[Members]]:
    """Return the model of the terms that the data can separate, and the other terms.

    Of two terms that cannot be separated, the last is left out, and interactions before factors.
    """
    lost: list[Members] = []
    while True:
        model = sums_of_squares.fit_model(
            design, [term for term in terms if term not in lost], responses
        )
        nothing = [t for t, df in zip(model.terms, model.freedom, strict=True) if df < 1]
        if not nothing:
            return model, lost
        lost.append(max(nothing, key=lambda term: (len(term), term)))


def _choose_transform(
    transform: str, values: Values, positive: bool, errors: Values, freedom: int
) -> tuple[str, str]:
    """Return the scale to analyse, and the reason in a sentence.

    A user's own table is analysed without logarithms unless these are clearly better. For measured
    rates and times it is known that disturbances multiply values. Many small tables cannot show
    clearly that logarithms are better, but without them the noise would be unequal and the
    intervals wrong.
    """
    if transform in ("log", "none"):
        scale = "logarithms" if transform == "log" else "values"
        return transform, f"The {scale} are analysed, as requested."
    if not positive:
        return "none", "The values are analysed, since some have no logarithm."
    gain = residual_checks.log_likelihood_gain_of_logarithms(
        values, float(errors[0]), float(errors[1]), freedom
    )
    if gain is None:
        return "none", "The values are analysed, since neither scale has better residuals."
    clear = residual_checks.CLEAR_LIKELIHOOD_GAIN
    if gain > (clear if transform == "auto" else 0.0):
        return "log", (
            "The logarithms are analysed, since their residuals are "
            f"{'clearly' if gain > clear else 'somewhat'} better than those of the values (Box-Cox "
            f"log likelihood larger by {gain:.1f})."
        )
    if gain > 0.0:
        return "none", (
            "The values are analysed. The residuals of the logarithms are better, but not clearly "
            f"(Box-Cox log likelihood larger by {gain:.1f})."
        )
    return "none", (
        "The values are analysed, since their residuals are "
        f"{'clearly better' if -gain > clear else 'no worse'} than those of the logarithms "
        f"(Box-Cox log likelihood larger by {-gain:.1f})."
    )


def _notes(
    design: AnovaDesign, model: sums_of_squares.FittedModel, lost: Sequence[Members]
) -> list[str]:
    """Return notes on incomplete and unbalanced data."""
    notes = []
    if lost:
        names = ", ".join(map(design.term_name, lost))
        notes.append(f"These data cannot separate some terms from others. Left out: {names}.")
    cells = design.rows_per_combination(design.all_factors_term)
    missing = int((cells == 0).sum())
    if missing:
        notes.append(
            f"{missing} of {len(cells)} combinations of levels have no value: interactions are "
            f"computed from the other {len(cells) - missing} only, with fewer degrees of freedom."
        )
    if not design.is_balanced:
        notes.append(
            "The data are unbalanced, so sums of squares are of type II (each term after all "
            "terms that do not contain it). The shares need not add up to 100 %. Effects of "
            "levels are those of the model without interactions."
        )
    if model.error_degrees_of_freedom < 1:
        notes.append(
            "There are no replicates, so there are no tests and no intervals. Measure at least "
            "twice."
        )
    return notes


def _trend(fitted: Values, left: Values) -> list[str]:
    """Return a note when the noise depends on the value, even on the chosen scale."""
    trend = residual_checks.correlate_spread_with_fit(fitted, left)
    if trend is None:
        return []
    correlation, p = trend
    if p >= residual_checks.TREND_LEVEL or abs(correlation) < residual_checks.TREND_LEAST:
        return []
    return [
        f"The residuals {'grow' if correlation > 0.0 else 'shrink'} with the value (rank "
        f"correlation {correlation:.2f}), so p values and intervals are approximate."
    ]
