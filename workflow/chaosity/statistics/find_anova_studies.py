"""Find tables for the analysis of variance in the tidy table, by the factors that were varied.

No experiment is named here. The candidates for factors are the design's own factors and a load's
levels, then initiator, target, kernel and benchmark. A candidate that never varies is not a factor.
A candidate that follows from others is no factor either: a target that is always the initiator's
own node adds nothing to the initiator, and a relation follows from initiator and target.

An experiment often has several designs, such as a matrix of nodes with one kernel, and all kernels
on local memory. In one table with all factors crossed, most combinations would be empty. So if the
candidates do not fill their table, rows with one level of one column are separated, such that the
fullest table remains; this is repeated until all rows are covered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.statistics.anova import AnovaResult, analyse_variance
from chaosity.statistics.anova_effects import Contrast
from chaosity.statistics.estimates_and_ratios import CONFIDENCE
from chaosity.store.measurements import POINT, Measurements, parse_levels_json

RESPONSE, BLOCK = "value", "replicate"
LOCAL, REMOTE = "local", "remote"
_SAME_NODE = "same_node"
_NOT_KNOWN = ("unknown", "none")
# Columns that every load has, in the order in which they are kept when one follows from others.
_OWN = ("initiator", "target", "kernel", "benchmark")
# Rows with different values here are analysed apart: threads and nodes, drives and drive sets.
_KINDS = ("initiator_kind", "target_kind")
# Cells without a value cost degrees of freedom and make shares of variation overlap. A matrix
# without its diagonal (a core does not talk to itself) fills 2/3 from three cores on.
LEAST_FILLED = 0.6
# After a few cuts, further tables of a plan with many designs have hardly any new rows.
MOST_CUTS = 4


@dataclass(frozen=True)
class AnovaStudy:
    """A part of one experiment's results that is ready for an analysis of variance."""

    # experiment, load, metric: origin of the values.
    experiment: str
    load: str
    metric: str
    # Columns that vary in the experiment and are constant here, with their levels.
    where: Mapping[str, str]
    factors: tuple[str, ...]  # columns of the frame that vary
    frame: pd.DataFrame  # columns of the factors, `value`, `replicate`, and `relation`
    left_out: tuple[str, ...]  # columns that follow from the factors
    block: str | None  # `replicate`, or None for a single replicate

    def analyse_variance_of_table(
        self, transform: str = "better", confidence: float = CONFIDENCE
    ) -> AnovaResult:
        """Return the analysis of variance; `confidence` is that of its intervals, 0 to 1.

        Raises:
            UserError: no analysis is possible, for example because all values are equal.
        """
        return analyse_variance(
            self.frame, RESPONSE, self.factors, self.block, transform, confidence
        )

    def local_against_remote(self, analysis: AnovaResult) -> Contrast | None:
        """Compare remote with local memory or drives; return None when either is missing."""
        relation = self.frame["relation"]
        known = relation.notna() & ~relation.isin(_NOT_KNOWN)
        groups = np.where(relation == _SAME_NODE, LOCAL, np.where(known, REMOTE, "unknown"))
        return analysis.contrast_two_groups(list(groups), (REMOTE, LOCAL), "relation")

    def percent_of_relation(self, analysis: AnovaResult) -> float | None:
        """Return the share of the variation that the relation alone explains, in per cent.

        It is a part of the share of initiator, target and their interaction, since the relation
        follows from them. The result is None if fewer than two relations are known.
        """
        relation = self.frame["relation"]
        codes, names = pd.factorize(relation)
        if len(names) < 2 or relation.isna().any() or set(names) & set(_NOT_KNOWN):
            return None
        departures = analysis.analysed.values - analysis.analysed.values.mean()
        means = np.bincount(codes, departures) / np.bincount(codes)
        return float(100.0 * (means[codes] ** 2).sum() / (departures**2).sum())


def find_anova_studies(measurements: Measurements) -> list[AnovaStudy]:
    """Find every table of one host in one configuration that can be analysed."""
    measured = measurements.valid_rows_with_value()
    if "reference" in measured.rows:  # its ratio to itself is always 1
        measured = measured.where(reference=False)
    found: list[AnovaStudy] = []
    others = (BLOCK, "relation", RESPONSE)
    for (experiment, load, metric), own in measured.groups_by_columns(
        ["experiment", "load", "metric"]
    ):
        everyone = measured.where(experiment=experiment).rows
        for where, part, candidates in _comparable_parts(own.rows, everyone):
            found += [
                AnovaStudy(
                    experiment=str(experiment),
                    load=str(load),
                    metric=str(metric),
                    where={**where, **cut.where},
                    factors=cut.factors,
                    frame=cut.rows[[*cut.factors, *others]].reset_index(drop=True),
                    left_out=cut.left_out,
                    block=BLOCK if cut.rows[BLOCK].nunique() > 1 else None,
                )
                for cut in _designs(part, candidates)
            ]
    return found


_Part = tuple[dict[str, str], pd.DataFrame, list[str]]


def _comparable_parts(own: pd.DataFrame, everyone: pd.DataFrame) -> Iterator[_Part]:
    """Yield parts by kinds of initiator and target: constant columns, rows, candidates for factors.

    In each part a replicate has each combination of levels once. If points differ only in their
    other loads, the columns of these loads are needed too; they are taken from `everyone`. Points
    without other loads lack these columns, so they are analysed separately.
    """
    kinds = [kind for kind in _KINDS if own[kind].nunique(dropna=False) > 1]
    groups = own.groupby(kinds, sort=False, dropna=False) if kinds else [((), own)]
    for names, part in groups:
        where = dict(zip(kinds, map(str, names), strict=True))
        columns = _expanded(part["factors"], "")
        part = part.assign(**columns)
        candidates = [*columns, *_OWN]
        if not part.duplicated([*candidates, BLOCK]).any():
            yield where, part, candidates
            continue
        for several, some in part.groupby(part["load_count"] > 1, sort=False):
            others = _other_loads(some, everyone) if several else {}
            wider = [*candidates, *others]
            some = some.assign(**others)
            apart = {"loads": "co-running" if several else "alone"}
            if not some.duplicated([*wider, BLOCK]).any():
                yield {**where, **apart}, some, wider


def _expanded(texts: pd.Series, prefix: str) -> dict[str, pd.Series]:
    """Return a column for each key in JSON texts; rows without the key get the level "none"."""
    levels = texts.map(parse_levels_json)
    keys = dict.fromkeys(chain.from_iterable(levels))
    return {
        f"{prefix}{key}": levels.map(lambda held, key=key: _level(held.get(key))) for key in keys
    }


def _level(value: object) -> str:
    """Return a level as text; whole numbers have no decimals."""
    if value is None or value != value:
        return "none"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _other_loads(rows: pd.DataFrame, everyone: pd.DataFrame) -> dict[str, pd.Series]:
    """Return columns such as `role.kernel`: kernel, target, levels of a row's other loads."""
    columns: dict[str, pd.Series] = {}
    points = pd.MultiIndex.from_frame(rows[list(POINT)])
    others = everyone[everyone["load"] != rows["load"].iloc[0]]
    for role, found in others.groupby("load", sort=False):
        first = found.drop_duplicates(list(POINT)).set_index(list(POINT))
        own = {f"{role}.{name}": first[name] for name in ("kernel", "initiator", "target")}
        own |= _expanded(first["load_parameters"], f"{role}.")
        columns |= {
            name: pd.Series(column.reindex(points).to_numpy(), rows.index).map(_level)
            for name, column in own.items()
        }
    return columns


@dataclass(frozen=True)
class _Cut:
    """A table of crossed factors with few empty combinations, and the rows in it."""

    where: dict[str, str]  # the constant column and its level; empty for all rows
    rows: pd.DataFrame
    factors: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that follow from the factors
    filled: float  # share of the combinations of levels that have a value


def _designs(rows: pd.DataFrame, candidates: Sequence[str]) -> Iterator[_Cut]:
    """Yield tables with few empty combinations that together cover the rows, the largest first."""
    whole = list(_well_filled({}, rows, candidates))
    if whole:
        yield from whole
        return
    columns = [*candidates, "relation"]
    cuts = [
        cut
        for column in columns
        for level, part in rows.groupby(column, sort=False)
        for cut in _well_filled(
            {column: str(level)}, part, [name for name in candidates if name != column]
        )
    ]
    left = pd.Series(True, rows.index)

    def _worth_of_design(cut: _Cut) -> tuple[int, int, float]:
        return int(left[cut.rows.index].sum()), len(cut.factors), cut.filled

    for _ in range(MOST_CUTS):
        best = max(cuts, key=_worth_of_design, default=None)
        if best is None or not left[best.rows.index].any():
            return
        left[best.rows.index] = False
        yield best


def _well_filled(
    where: dict[str, str], rows: pd.DataFrame, candidates: Sequence[str]
) -> Iterator[_Cut]:
    """Yield the table of the candidates' factors if most combinations of levels have a value."""
    factors, left_out = _independent(rows, candidates)
    if factors:
        combinations = float(np.prod([rows[name].nunique(dropna=False) for name in factors]))
        filled = len(rows[list(factors)].drop_duplicates()) / combinations
        if filled >= LEAST_FILLED:
            yield _Cut(where, rows, factors, left_out, filled)


def _independent(
    rows: pd.DataFrame, candidates: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the candidates that are factors, and the candidates that follow from the factors.

    If two candidates follow from each other, the first is a factor.
    """
    codes = {name: pd.factorize(rows[name], use_na_sentinel=False)[0] for name in candidates}
    kept = [name for name in candidates if codes[name].max(initial=0) > 0]
    follow = []
    for name in reversed(kept.copy()):
        others = [other for other in kept if other != name]
        if not others:
            break
        table = pd.DataFrame({other: codes[other] for other in others})
        combinations = table.groupby(others, sort=False).ngroup()
        pairs = pd.DataFrame({"level": codes[name], "combination": combinations}).drop_duplicates()
        if not pairs["combination"].duplicated().any():  # each combination has a single level
            kept.remove(name)
            follow.append(name)
    return tuple(kept), tuple(reversed(follow))


def analyse_all_studies(
    measurements: Measurements, confidences: Mapping[str, float]
) -> Iterator[tuple[AnovaStudy, AnovaResult]]:
    """Yield every study with its analysis; studies that cannot be analysed are skipped.

    `confidences` is experiment -> confidence of its intervals. Default: 0.95.
    """
    for study in find_anova_studies(measurements):
        confidence = confidences.get(study.experiment, CONFIDENCE)
        try:
            yield study, study.analyse_variance_of_table(confidence=confidence)
        except UserError:
            continue
