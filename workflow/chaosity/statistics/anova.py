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
from chaosity.text_templates import write_sentences, write_text

TRANSFORMS = ("auto", "better", "none", "log")
# An interaction of four factors has hundreds of effects, which nobody can interpret.
MOST_FACTORS_INTERACTING = 3
# Relative rounding error of a value; a smaller residual is rounding.
_ROUNDING = 8.0 * float(np.finfo(float).eps)


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
    # design, values, error: data for further contrasts; not in the JSON.
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
        """Return everything except `design`, `values` and `error`, in JSON's types.

        `confidence` is that of the intervals and of the tests.
        """
        hidden = ("design", "values", "error")
        plain = {name: value for name, value in vars(self).items() if name not in hidden}
        plain["confidence"] = self.error.confidence
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
        confidence: confidence of the intervals and of the tests, 0 to 1.

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
    terms, omitted = _choose_terms(design)
    model, lost = _fit_separable(design, terms, responses)
    rounding = len(responses) * (_ROUNDING * np.abs(responses).max(axis=0)) ** 2
    errors = np.where(model.error <= rounding, 0.0, model.error)
    freedom = model.error_degrees_of_freedom
    chosen, reason = _choose_transform(transform, values, positive, errors, freedom)
    place = 1 if chosen == "log" else 0
    values, fitted = responses[:, place], model.fitted[:, place]
    residuals = np.zeros(design.value_count)
    error = ResidualError(None, freedom, chosen == "log", confidence)
    if freedom > 0 and errors[place] > 0.0:
        error = replace(error, variance=float(errors[place]) / freedom)
        residuals = values - fitted
    cells = design.rows_per_combination(design.all_factors_term)
    notes = write_sentences(
        "variance_analysis",
        "notes",
        factors=design.factor_count,
        most_interacting=MOST_FACTORS_INTERACTING,
        omitted=omitted,
        lost=list(map(design.term_name, lost)),
        missing=int((cells == 0).sum()),
        combinations=len(cells),
        is_balanced=design.is_balanced,
        freedom=freedom,
        is_exact=error.variance is None,
        trend=residual_checks.trend_of_spread(fitted, residuals),
    )
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


def _choose_terms(design: AnovaDesign) -> tuple[list[Members], list[tuple[int, bool]]]:
    """Return the terms of the largest model that leaves an error, and the omitted interactions.

    The latter are numbers of factors, and whether the model is too large; else it leaves no error.
    """
    omitted = []
    order = min(design.factor_count, MOST_FACTORS_INTERACTING)
    while order > 1:
        terms = design.terms_up_to_order(order)
        columns = sums_of_squares.count_model_columns(design, terms)
        too_large = not design.is_balanced and columns > sums_of_squares.MOST_COLUMNS
        if not too_large and sums_of_squares.error_degrees_of_freedom(design, terms) > 0:
            break
        omitted.append((order, too_large))
        order -= 1
    return design.terms_up_to_order(order), omitted


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
    clear, gain, chosen = residual_checks.CLEAR_LIKELIHOOD_GAIN, None, "none"
    requested = transform in ("log", "none")
    if requested:
        chosen = transform
    elif positive:
        both = float(errors[0]), float(errors[1])
        gain = residual_checks.log_likelihood_gain_of_logarithms(values, *both, freedom)
        if gain is not None and gain > (clear if transform == "auto" else 0.0):
            chosen = "log"
    given = {"requested": requested, "chosen": chosen, "positive": positive}
    return chosen, write_text("variance_analysis", "scale", **given, gain=gain, clear=clear)
