"""Analyse variance: find which factors explain the differences in a table, and to which share.

An analysis has the steps of document 004 and of Jain, "The Art of Computer Systems Performance
Analysis" (1991). The steps are effects, allocation of variation, F tests, contrasts, visual tests
of the residuals, and a log transform if the residuals need it. A factor is *significant* when its F
test finds more than noise. A factor is *important* when it explains at least 10 % of the variation.

This code names no experiment. The candidates for factors are the factors of the experiment and the
levels of a load, then initiator, target, kernel and benchmark. A candidate that never varies is not
a factor. A candidate that follows from other candidates is not a factor either. For example, a
relation follows from initiator and target, and a target that is always local memory follows from
the initiator.

An experiment often has several designs, such as a matrix of nodes with one kernel, and all kernels
on local memory. In one table with all factors crossed, most combinations would be empty. So if too
few combinations have a value, rows that share one level of a column become a smaller table. Of all
smaller tables, the one with most rows is taken first, and then repeatedly the one with most rows
that no earlier table has. The analysis has at most `MOST_TABLES_OF_EXPERIMENT` tables.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from chaosity.errors import UserError
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.statistics.linear_models import (
    MOST_FACTORS_INTERACTING,
    Contrast,
    InteractionEffect,
    LevelEffect,
    Term,
    Values,
    ValuesAndError,
    compare_groups_of_cells,
    fit_largest_model,
    interaction_effects,
    level_effects_and_contrasts,
    read_anova_design_and_values,
)
from chaosity.store.measurements import POINT_COLUMNS, Measurements, parse_levels_json
from chaosity.text_templates import sentences_of_macro, text_of_macro

_TEXTS_TEMPLATE = "variance_analysis"
TRANSFORMS = ("auto", "better", "none", "log")
# Relative rounding error of a measured value. A residual counts as zero if its share of the value
# is below the rounding error.
_RELATIVE_ROUNDING_ERROR = 8.0 * float(np.finfo(float).eps)
# Gain of log likelihood above which logarithms are clearly better than plain values. With a larger
# gain, the 95 % interval of the power transform does not contain the plain values (Box and Cox, "An
# Analysis of Transformations", Journal of the Royal Statistical Society B 26, 1964). The limit is
# half the 95 % point of chi square with one degree of freedom.
_CLEAR_LIKELIHOOD_GAIN = float(stats.chi2.ppf(0.95, 1)) / 2.0
# A note reports a trend of the residuals if the p-value of the trend is below 0.01. With the level
# of 1 %, one of a hundred tables without a trend has a note. With a level of 5 %, one of twenty
# would.
_TREND_SIGNIFICANCE_LEVEL = 0.01
# The smallest correlation of residuals that counts as a trend. With thousands of values even a
# faint trend is significant. But a correlation below Cohen's "medium" (Statistical Power Analysis,
# 1988) does not harm the F tests.
_LEAST_TREND_CORRELATION = 0.3
# A term with a smaller share of the variation is unimportant. Document 004 calls two factors with 8
# % and 9 % of the variation unimportant.
IMPORTANT_FROM_PERCENT = 10.0


@dataclass(frozen=True)
class VariationTerm:
    """A line of the table that says how much of the variation each term explains."""

    name: str  # names of the factors, "error" or "total"
    kind: str  # factor, interaction, block, error or total
    degrees_of_freedom: int  # degrees of freedom of the sum of squares
    sum_of_squares: float  # sum of squares, in the square of the unit of the analysed values
    # The sum of squares per degree of freedom; None for the total, or if there are no degrees of
    # freedom.
    mean_square: float | None
    f: float | None  # mean square divided by that of the error; None if there is no error
    p_value: float | None  # probability of this F or a larger F if the term has no effect
    variation_percent: float  # share of the total sum of squares
    significant: bool | None = None  # whether the F test finds an effect; None without a test
    important: bool | None = None  # whether the share reaches `IMPORTANT_FROM_PERCENT`
    sentence: str | None = None  # conclusion about a factor, interaction or block, in words


@dataclass(frozen=True)
class AnovaResult:
    """The result of an analysis of variance; its JSON has the field names as keys."""

    response: str  # column of the values
    factors: tuple[str, ...]  # columns that were varied
    block: str | None  # column of the blocks, or None
    n: int  # number of values
    levels: dict[str, tuple[str, ...]]  # factor or block -> its levels
    balanced: bool  # whether every combination was measured equally often
    sums_of_squares: str  # "orthogonal" or "type II"
    transform: str  # "none" or "log"
    transform_reason: str  # why values or logarithms were analysed, in one sentence
    # Lines of the table of variation: factors, interactions, block, error, total.
    terms: tuple[VariationTerm, ...]
    effects: tuple[LevelEffect, ...]  # effect of each level of each factor
    # For each interaction of two factors, the effect of each pair of their levels.
    interactions: tuple[InteractionEffect, ...]
    contrasts: tuple[Contrast, ...]  # differences between two levels of a factor
    # fitted, residuals: for each row, the value of the model, and the value minus that of the
    # model. If `transform` is "log", the values are logarithms.
    fitted: Values
    residuals: Values
    normal_quantiles: Values  # normal quantiles of the residuals, in standard deviations
    notes: tuple[str, ...]  # sentences about properties of the data that limit the analysis
    conclusion: str  # which terms explain the differences, in one sentence
    analysed: ValuesAndError  # data for further contrasts; not in the JSON

    def to_json(self) -> dict[str, Any]:
        """Return everything except `analysed`, as JSON values.

        The additional key `confidence` has the confidence of the intervals and of the tests.
        """
        plain = {**vars(self), "confidence": self.analysed.confidence}
        del plain["analysed"]
        for name in ("fitted", "residuals", "normal_quantiles"):
            plain[name] = plain[name].tolist()
        for name in ("terms", "effects", "interactions", "contrasts"):
            plain[name] = [_flat_dict(asdict(part)) for part in plain.pop(name)]
        return plain


def _flat_dict(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of an analysis as a dict, in which the interval's keys are keys of the part."""
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
        block: column of the blocks, such as replicate; differences between blocks are removed from
        the error. None means that there are no blocks.
        transform: "log" analyses logarithms, and "none" analyses the values themselves. "better"
        selects the scale with the larger likelihood of the residuals. "auto" selects logarithms
        only if their likelihood is clearly larger.
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
    squares[
        squares <= len(scales) * (_RELATIVE_ROUNDING_ERROR * np.abs(scales).max(axis=0)) ** 2
    ] = 0.0
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
        _TEXTS_TEMPLATE,
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
        _TEXTS_TEMPLATE,
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
        _TEXTS_TEMPLATE,
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


# Box and Cox compare the residual sums of squares of y and of G ln y, where G is the geometric mean
# of y, so that both sums have the same unit. The likelihood here is computed with the degrees of
# freedom of the error and not with the number of rows, since a model with a mean for each cell
# leaves far fewer degrees of freedom than rows.
def _log_likelihood_gain_of_logarithms(
    scales: Values, squares: Values, freedom: int
) -> float | None:
    """Return the log likelihood of logarithms minus that of plain values; None if it is unknown."""
    if freedom < 1 or len(squares) < 2 or not squares.all():
        return None
    error, error_of_logs = map(math.log, squares)
    return freedom / 2.0 * (error - error_of_logs - 2.0 * float(np.mean(scales[:, 1])))


# For a user's table ("auto"), logarithms are analysed only if they are clearly better. For measured
# rates and times ("better"), any gain is enough, because disturbances multiply rates and times.
# Many tables are too small to show clearly that logarithms are better. Without logarithms the noise
# of small and large values would be unequal, and the intervals would be wrong.
def _should_analyse_logarithms(transform: str, gain: float | None) -> bool:
    if transform in ("log", "none") or gain is None:
        return transform == "log"
    return gain > (_CLEAR_LIKELIHOOD_GAIN if transform == "auto" else 0.0)


def _normal_quantiles(residuals: Values) -> Values:
    """Return for each residual the normal quantile that its rank has, in standard deviations."""
    quantiles = np.empty(len(residuals))
    order = np.argsort(_without_rounding_errors(residuals), kind="stable")
    quantiles[order] = stats.probplot(residuals, fit=False)[0]
    return quantiles


def _trend_of_spread(fitted: Values, residuals: Values) -> float | None:
    """Return the rank correlation of fitted values and absolute residuals, or None if too small."""
    sides = [_without_rounding_errors(side) for side in (fitted, np.abs(residuals))]
    if len(fitted) < 3 or not all(map(np.ptp, sides)):
        return None
    correlation, p = map(float, stats.spearmanr(sides[0], sides[1]))
    return (
        correlation
        if p < _TREND_SIGNIFICANCE_LEVEL and abs(correlation) >= _LEAST_TREND_CORRELATION
        else None
    )


def _without_rounding_errors(values: Values) -> Values:
    """Return scaled and rounded values, so that rounding errors do not make values unequal."""
    return np.asarray(np.round(values / (np.abs(values).max() or 1.0), 9), dtype=float)


def _variation_table(
    analysed: ValuesAndError, terms: Iterable[tuple[Term, float, int]], error_squares: float
) -> tuple[VariationTerm, ...]:
    """Return the lines of the table of variation: one for each term, then the error and the total.

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
            _TEXTS_TEMPLATE,
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
    """Return a share of the variation, given in per cent, as text."""
    if 0.0 < share < 0.05:
        return "< 0.1 %"
    if 99.95 <= share < 100.0 - 1e-9:
        return "> 99.9 %"
    return f"{share:.1f} %" if share < 9.95 or 98.95 <= share < 99.95 else f"{share:.0f} %"


def p_value_text(p: float) -> str:
    """Return a p-value as text."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.0995 else f"p = {p:.2f}"


RESPONSE, BLOCK = "value", "replicate"
LOCAL, REMOTE = "local", "remote"
_SAME_NODE = "same_node"
_RELATIONS_WITHOUT_MEANING = ("unknown", "none")
# Columns that every load has. If one of two columns follows from the other and vice versa, only the
# column that is listed first is a factor.
_COLUMNS_OF_EVERY_LOAD = ("initiator", "target", "kernel", "benchmark")
# Rows with different values in these columns are analysed separately, for example rows of single
# drives and rows of drive sets.
_COLUMNS_ANALYSED_SEPARATELY = ("initiator_kind", "target_kind")
# Least share of a table's combinations of levels that must have a value. Empty combinations cost
# degrees of freedom, and the shares of variation of several factors then overlap. A core-to-core
# matrix has no values on its diagonal, but with three or more cores at least 2/3 of its
# combinations have a value.
LEAST_SHARE_OF_FILLED_COMBINATIONS = 0.6
# The largest number of tables into which the rows of an experiment are divided. For experiments
# with many designs, a fifth table has hardly any new rows.
MOST_TABLES_OF_EXPERIMENT = 4


@dataclass(frozen=True)
class AnovaStudy:
    """A part of one experiment's results that is ready for an analysis of variance."""

    # experiment, load, metric: which values are analysed.
    experiment: str
    load: str
    metric: str
    # Column -> its only level in this part; only columns that vary in the experiment.
    where: Mapping[str, str]
    factors: tuple[str, ...]  # columns of `frame` that are the factors
    frame: pd.DataFrame  # columns of the factors, `value`, `replicate`, and `relation`
    left_out: tuple[str, ...]  # columns whose values follow from the factors
    block: str | None  # `replicate`, or None for a single replicate

    def analyse_variance_of_table(
        self, transform: str = "better", confidence: float = CONFIDENCE
    ) -> AnovaResult:
        """Return the analysis of variance; `confidence` is the confidence of its intervals, 0 to 1.

        Raises:
            UserError: no analysis is possible, for example because all values are equal.
        """
        return analyse_variance(
            self.frame, RESPONSE, self.factors, self.block, transform, confidence
        )

    def contrast_of_remote_against_local(self, analysis: AnovaResult) -> Contrast | None:
        """Compare remote with local memory or drives; return None if one of both is missing."""
        relation = self.frame["relation"]
        known = relation.notna() & ~relation.isin(_RELATIONS_WITHOUT_MEANING)
        groups = np.where(relation == _SAME_NODE, LOCAL, np.where(known, REMOTE, "unknown"))
        sides = REMOTE, LOCAL
        return compare_groups_of_cells(analysis.analysed, list(groups), sides, "relation")

    def percent_explained_by_relation(self, analysis: AnovaResult) -> float | None:
        """Return the share of the variation that the relation alone explains, in per cent.

        The returned share is a part of the share that initiator, target and their interaction
        explain, since the relation follows from initiator and target. The result is None if all
        rows have one relation, or if the relation of a row is unknown.
        """
        codes, names = pd.factorize(self.frame["relation"])
        if len(names) < 2 or codes.min() < 0 or set(names) & set(_RELATIONS_WITHOUT_MEANING):
            return None
        departures = analysis.analysed.values - analysis.analysed.values.mean()
        means = np.bincount(codes, departures) / np.bincount(codes)
        return float(100.0 * (means[codes] ** 2).sum() / (departures**2).sum())


def find_anova_studies(measurements: Measurements) -> list[AnovaStudy]:
    """Find all tables in the measurements of one host in one configuration that can be analysed."""
    measured = measurements.valid_rows_with_value()
    if "reference" in measured.rows:  # the ratio of a reference to itself is always 1
        measured = measured.where(reference=False)
    keys = ["experiment", "load", "metric"]
    found: list[AnovaStudy] = []
    for key, own in measured.groups_by_columns(keys):
        everyone = measured.where(experiment=key[0]).rows
        for where, part, candidates in _comparable_parts(own.rows, everyone):
            found += [
                AnovaStudy(
                    **dict(zip(keys, map(str, key), strict=True)),
                    where={**where, **cut},
                    factors=factors,
                    frame=rows[[*factors, BLOCK, "relation", RESPONSE]].reset_index(drop=True),
                    left_out=left_out,
                    block=BLOCK if rows[BLOCK].nunique() > 1 else None,
                )
                for cut, rows, factors, left_out in _find_crossed_tables(part, candidates)
            ]
    return found


def _comparable_parts(
    own: pd.DataFrame, everyone: pd.DataFrame
) -> Iterator[tuple[dict[str, str], pd.DataFrame, list[str]]]:
    """Yield each part with comparable rows: its constant columns, its rows, its candidate factors.

    All rows of a part have the same kinds of initiator and target, and a replicate has each
    combination of levels once. If points differ only in their co-running loads, the columns of the
    co-running loads become candidates too. The columns of co-running loads come from `everyone`,
    the rows of all loads. Points with a single load lack the columns of co-running loads, so these
    points are analysed separately.
    """
    kinds = [kind for kind in _COLUMNS_ANALYSED_SEPARATELY if own[kind].nunique(dropna=False) > 1]
    groups = own.groupby(kinds, sort=False, dropna=False) if kinds else [((), own)]
    for names, part in groups:
        where = dict(zip(kinds, map(str, names), strict=True))
        columns = _columns_of_json_texts(part["factors"], "")
        part, candidates = part.assign(**columns), [*columns, *_COLUMNS_OF_EVERY_LOAD]
        if not part.duplicated([*candidates, BLOCK]).any():
            yield where, part, candidates
            continue
        for several, some in part.groupby(part["load_count"] > 1, sort=False):
            others = _columns_of_other_loads(some, everyone) if several else {}
            wider = [*candidates, *others]
            some = some.assign(**others)
            if not some.duplicated([*wider, BLOCK]).any():
                yield {**where, "loads": "co-running" if several else "alone"}, some, wider


def _columns_of_json_texts(texts: pd.Series, prefix: str) -> dict[str, pd.Series]:
    """Return a column for each key in JSON texts; a row without a key gets the level "none"."""
    levels = texts.map(parse_levels_json)
    keys = dict.fromkeys(chain.from_iterable(levels))
    return {
        f"{prefix}{key}": levels.map(lambda held, key=key: _level_as_text(held.get(key)))
        for key in keys
    }


def _level_as_text(value: object) -> str:
    """Return a level as text; a whole number has no decimals."""
    if value is None or value != value:
        return "none"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _columns_of_other_loads(rows: pd.DataFrame, everyone: pd.DataFrame) -> dict[str, pd.Series]:
    """Return columns such as `role.kernel`: kernel, places and levels of the co-running loads."""
    columns: dict[str, pd.Series] = {}
    points = pd.MultiIndex.from_frame(rows[list(POINT_COLUMNS)])
    others = everyone[everyone["load"] != rows["load"].iloc[0]]
    for role, found in others.groupby("load", sort=False):
        first = found.drop_duplicates(list(POINT_COLUMNS)).set_index(list(POINT_COLUMNS))
        own = {f"{role}.{name}": first[name] for name in ("kernel", "initiator", "target")}
        own |= _columns_of_json_texts(first["load_parameters"], f"{role}.")
        columns |= {
            name: pd.Series(column.reindex(points).to_numpy(), rows.index).map(_level_as_text)
            for name, column in own.items()
        }
    return columns


class _CrossedTable(NamedTuple):
    """A table of crossed factors with few empty combinations, and the rows in it."""

    where: dict[str, str]  # constant column -> its level; empty if the table has all rows
    rows: pd.DataFrame
    factors: tuple[str, ...]
    left_out: tuple[str, ...]  # columns whose values follow from the factors


def _find_crossed_tables(rows: pd.DataFrame, candidates: Sequence[str]) -> Iterator[_CrossedTable]:
    """Yield tables with few empty combinations, the largest first, that have most of the rows."""
    filled, whole = _cross_factors({}, rows, candidates)
    if filled >= LEAST_SHARE_OF_FILLED_COMBINATIONS:
        yield whole
        return
    cuts = [
        _cross_factors({column: str(level)}, part, [name for name in candidates if name != column])
        for column in [*candidates, "relation"]
        for level, part in rows.groupby(column, sort=False)
    ]
    cuts = [cut for cut in cuts if cut[0] >= LEAST_SHARE_OF_FILLED_COMBINATIONS]
    left = pd.Series(True, rows.index)
    for _ in range(MOST_TABLES_OF_EXPERIMENT if cuts else 0):
        best = max(
            cuts, key=lambda cut: (int(left[cut[1].rows.index].sum()), len(cut[1].factors), cut[0])
        )[1]
        if not left[best.rows.index].any():
            return
        left[best.rows.index] = False
        yield best


def _cross_factors(
    where: dict[str, str], rows: pd.DataFrame, candidates: Sequence[str]
) -> tuple[float, _CrossedTable]:
    """Return the share of combinations that have a value, and the table with the chosen factors."""
    codes = pd.DataFrame(
        {name: pd.factorize(rows[name], use_na_sentinel=False)[0] for name in candidates}
    )
    kept = [name for name in candidates if codes[name].max() > 0]
    follow: list[str] = []
    for name in reversed(kept.copy()):  # of two that follow from each other, the first is kept
        others = [other for other in kept if other != name]
        # A column follows from other columns if the column has a single level in each combination
        # of the other columns.
        if others and len(codes[others].drop_duplicates()) == len(codes[kept].drop_duplicates()):
            kept.remove(name)
            follow.insert(0, name)
    combinations = math.prod(codes[name].nunique() for name in kept)
    filled = len(codes[kept].drop_duplicates()) / combinations if kept else 0.0
    return filled, _CrossedTable(where, rows, tuple(kept), tuple(follow))


def analyse_all_studies(
    measurements: Measurements, confidences: Mapping[str, float]
) -> Iterator[tuple[AnovaStudy, AnovaResult]]:
    """Yield every study with its analysis; studies that cannot be analysed are skipped.

    `confidences` maps an experiment to the confidence of its intervals, 0 to 1. For other
    experiments the confidence is 0.95.
    """
    for study in find_anova_studies(measurements):
        confidence = confidences.get(study.experiment, CONFIDENCE)
        with suppress(UserError):
            yield study, study.analyse_variance_of_table(confidence=confidence)
