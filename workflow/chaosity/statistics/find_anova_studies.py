"""Find tables for the analysis of variance in the tidy table, by the factors that were varied.

No experiment is named here. The candidates for factors are the design's own factors and a load's
levels, then initiator, target, kernel and benchmark. A candidate that never varies is not a factor.
A candidate that follows from other candidates is not a factor either: a target that is always the
initiator's own node adds nothing to the initiator, and a relation follows from initiator and
target.

An experiment often has several designs, such as a matrix of nodes with one kernel, and all kernels
on local memory. In one table with all factors crossed, most combinations would be empty. So if the
candidates do not fill their table, rows with one level of one column are separated, such that the
fullest table remains; this is repeated until all rows are covered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.statistics.anova import AnovaResult, analyse_variance
from chaosity.statistics.anova_effects import Contrast, compare_groups_of_cells
from chaosity.statistics.estimates import CONFIDENCE
from chaosity.store.measurements import POINT, Measurements, parse_levels_json

RESPONSE, BLOCK = "value", "replicate"
LOCAL, REMOTE = "local", "remote"
_SAME_NODE = "same_node"
_NOT_KNOWN = ("unknown", "none")
# Columns that every load has, in the order in which a column is kept if another column follows from
# it.
_OWN = ("initiator", "target", "kernel", "benchmark")
# Rows with different values in these columns are analysed apart: threads and nodes, drives and
# drive sets.
_KINDS = ("initiator_kind", "target_kind")
# Least share of a table's combinations that must have a value: empty ones cost degrees of freedom
# and make shares of variation overlap. A matrix without its diagonal (a core does not talk to
# itself) has 2/3 or more from three cores on.
LEAST_FILLED = 0.6
# Most tables into which the rows of an experiment are divided: further tables of a plan with many
# designs have hardly any new rows.
MOST_CUTS = 4


@dataclass(frozen=True)
class AnovaStudy:
    """A part of one experiment's results that is ready for an analysis of variance."""

    # experiment, load, metric: origin of the values.
    experiment: str
    load: str
    metric: str
    # Column -> its level, for columns that vary in the experiment but are constant in this part.
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
        sides = REMOTE, LOCAL
        return compare_groups_of_cells(analysis.analysed, list(groups), sides, "relation")

    def percent_explained_by_relation(self, analysis: AnovaResult) -> float | None:
        """Return the share of the variation that the relation alone explains, in per cent.

        The returned share is a part of the share of initiator, target and their interaction, since
        the relation follows from initiator and target. The result is None if fewer than two
        relations are known.
        """
        codes, names = pd.factorize(self.frame["relation"])
        if len(names) < 2 or codes.min() < 0 or set(names) & set(_NOT_KNOWN):
            return None
        departures = analysis.analysed.values - analysis.analysed.values.mean()
        means = np.bincount(codes, departures) / np.bincount(codes)
        return float(100.0 * (means[codes] ** 2).sum() / (departures**2).sum())


def find_anova_studies(measurements: Measurements) -> list[AnovaStudy]:
    """Find every table of one host in one configuration that can be analysed."""
    measured = measurements.valid_rows_with_value()
    if "reference" in measured.rows:  # a reference's ratio to itself is 1
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
                for cut, rows, factors, left_out in _designs(part, candidates)
            ]
    return found


def _comparable_parts(
    own: pd.DataFrame, everyone: pd.DataFrame
) -> Iterator[tuple[dict[str, str], pd.DataFrame, list[str]]]:
    """Yield constant columns, rows and candidates for factors, by kinds of initiator and target.

    In each part a replicate has each combination of levels once. If points differ only in their
    other loads, the columns of these loads are needed too. These columns are taken from `everyone`,
    the rows of all loads. Points without other loads lack these columns, so they are analysed
    separately.
    """
    kinds = [kind for kind in _KINDS if own[kind].nunique(dropna=False) > 1]
    groups = own.groupby(kinds, sort=False, dropna=False) if kinds else [((), own)]
    for names, part in groups:
        where = dict(zip(kinds, map(str, names), strict=True))
        columns = _expanded(part["factors"], "")
        part, candidates = part.assign(**columns), [*columns, *_OWN]
        if not part.duplicated([*candidates, BLOCK]).any():
            yield where, part, candidates
            continue
        for several, some in part.groupby(part["load_count"] > 1, sort=False):
            others = _other_loads(some, everyone) if several else {}
            wider = [*candidates, *others]
            some = some.assign(**others)
            if not some.duplicated([*wider, BLOCK]).any():
                yield {**where, "loads": "co-running" if several else "alone"}, some, wider


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
    """Return columns such as `role.kernel`: kernel, places and levels of a row's other loads."""
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


class _Cut(NamedTuple):
    """A table of crossed factors with few empty combinations, and the rows in it."""

    where: dict[str, str]  # the constant column and its level; empty for all rows
    rows: pd.DataFrame
    factors: tuple[str, ...]
    left_out: tuple[str, ...]  # columns that follow from the factors


def _designs(rows: pd.DataFrame, candidates: Sequence[str]) -> Iterator[_Cut]:
    """Yield tables with few empty combinations that together cover the rows, the largest first."""
    filled, whole = _crossed({}, rows, candidates)
    if filled >= LEAST_FILLED:
        yield whole
        return
    cuts = [
        _crossed({column: str(level)}, part, [name for name in candidates if name != column])
        for column in [*candidates, "relation"]
        for level, part in rows.groupby(column, sort=False)
    ]
    cuts = [cut for cut in cuts if cut[0] >= LEAST_FILLED]
    left = pd.Series(True, rows.index)
    for _ in range(MOST_CUTS if cuts else 0):
        best = max(
            cuts, key=lambda cut: (int(left[cut[1].rows.index].sum()), len(cut[1].factors), cut[0])
        )[1]
        if not left[best.rows.index].any():
            return
        left[best.rows.index] = False
        yield best


def _crossed(
    where: dict[str, str], rows: pd.DataFrame, candidates: Sequence[str]
) -> tuple[float, _Cut]:
    """Return the table of the candidates' factors, and the share of combinations with a value."""
    codes = pd.DataFrame(
        {name: pd.factorize(rows[name], use_na_sentinel=False)[0] for name in candidates}
    )
    kept = [name for name in candidates if codes[name].max() > 0]
    follow: list[str] = []
    for name in reversed(kept.copy()):  # of two that follow from each other, the first is a factor
        others = [other for other in kept if other != name]
        # Whether each combination of the other columns has a single level.
        if others and len(codes[others].drop_duplicates()) == len(codes[kept].drop_duplicates()):
            kept.remove(name)
            follow.insert(0, name)
    combinations = math.prod(codes[name].nunique() for name in kept)
    filled = len(codes[kept].drop_duplicates()) / combinations if kept else 0.0
    return filled, _Cut(where, rows, tuple(kept), tuple(follow))


def analyse_all_studies(
    measurements: Measurements, confidences: Mapping[str, float]
) -> Iterator[tuple[AnovaStudy, AnovaResult]]:
    """Yield every study with its analysis; studies that cannot be analysed are skipped.

    `confidences` is experiment -> confidence of its intervals. Default: 0.95.
    """
    for study in find_anova_studies(measurements):
        confidence = confidences.get(study.experiment, CONFIDENCE)
        with suppress(UserError):
            yield study, study.analyse_variance_of_table(confidence=confidence)
