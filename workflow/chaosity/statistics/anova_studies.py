"""Tables for the analysis of variance, found in the tidy table by the factors that were varied.

Nothing here knows an experiment. The candidates for factors are the design's own factors and a
load's levels, then initiator, target, kernel and benchmark. A candidate that never varies is not a
factor. Neither is a candidate that follows from the others: a target that is always the initiator's
own node adds nothing to the initiator, and a relation follows from initiator and target.

An experiment often holds several designs, such as a matrix of nodes by one kernel, and all kernels
on local memory. Crossed in one table, most of its combinations would be empty. So where the
candidates do not fill their table, the rows are cut by the column and level that leave the fullest
crossing, until the rest is covered too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.statistics.anova import Analysis, analyse
from chaosity.statistics.effects_and_contrasts import Contrast
from chaosity.store.measurements import POINT, Measurements, Table, parse_levels_json

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
# A plan with many designs repeats itself after the first few cuts.
MOST_CUTS = 4


@dataclass(frozen=True)
class Study:
    """A table to analyse, a part of one experiment.

    Attributes:
        experiment, load, metric: of the values.
        where: columns that vary in the experiment and are constant here, with their levels.
        factors: columns of the frame that vary.
        frame: columns of the factors, `value`, `replicate`, and `relation`.
        left_out: columns that follow from the factors.
        block: `replicate`, or None for a single replicate.
    """

    experiment: str
    load: str
    metric: str
    where: Mapping[str, str]
    factors: tuple[str, ...]
    frame: pd.DataFrame
    left_out: tuple[str, ...]
    block: str | None

    def analyse(self, transform: str = "better") -> Analysis:
        """The analysis of variance.

        Raises:
            UserError: it is impossible, for example because all values are equal.
        """
        return analyse(self.frame, RESPONSE, self.factors, self.block, transform)

    def local_against_remote(self, analysis: Analysis) -> Contrast | None:
        """Remote against local memory or drives; None when either is missing."""
        relation = self.frame["relation"]
        known = relation.notna() & ~relation.isin(_NOT_KNOWN)
        groups = np.where(relation == _SAME_NODE, LOCAL, np.where(known, REMOTE, "unknown"))
        return analysis.compare_groups(list(groups), (REMOTE, LOCAL), "relation")

    def share_of_relation(self, analysis: Analysis) -> float | None:
        """Per cent of the variation that the relation of initiator and target explains alone.

        It is a part of the share of initiator, target and their interaction, since it follows from
        them. None where fewer than two relations are known.
        """
        relation = self.frame["relation"]
        codes, names = pd.factorize(relation)
        if len(names) < 2 or relation.isna().any() or set(names) & set(_NOT_KNOWN):
            return None
        departures = analysis.values - analysis.values.mean()
        means = np.bincount(codes, departures) / np.bincount(codes)
        return float(100.0 * (means[codes] ** 2).sum() / (departures**2).sum())


def find_studies(measurements: Table) -> list[Study]:
    """Every table that can be analysed, in the order of the rows.

    Args:
        measurements: of one host in one configuration.
    """
    measured = Measurements.from_table(measurements).rows_with_value()
    if "reference" in measured.rows:  # its ratio to itself is always 1
        measured = measured.where(reference=False)
    found = []
    for (experiment, load, metric), own in measured.groups(["experiment", "load", "metric"]):
        everyone = measured.where(experiment=experiment).rows
        for where, part, candidates in _comparable_parts(own.rows, everyone):
            for cut, chosen, factors, left_out in _designs(part, candidates):
                found.append(
                    Study(
                        experiment=str(experiment),
                        load=str(load),
                        metric=str(metric),
                        where={**where, **cut},
                        factors=factors,
                        frame=_frame(chosen, factors),
                        left_out=left_out,
                        block=BLOCK if chosen[BLOCK].nunique() > 1 else None,
                    )
                )
    return found


def _frame(rows: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    return rows[[*factors, BLOCK, "relation", RESPONSE]].reset_index(drop=True)


Part = tuple[dict[str, str], pd.DataFrame, list[str]]


def _comparable_parts(own: pd.DataFrame, everyone: pd.DataFrame) -> Iterator[Part]:
    """Rows of one load and metric by the kinds of initiator and target, with their factors.

    Points that differ only in the other loads need the columns of the other loads too. Points
    without other loads lack these columns, so they are analysed apart.

    Args:
        own: rows of one load and metric.
        everyone: rows of all loads of the experiment.

    Yields:
        What is constant in the part, its rows, and the columns that are candidates for factors.
    """
    kinds = [kind for kind in _KINDS if own[kind].nunique(dropna=False) > 1]
    groups = own.groupby(kinds, sort=False, dropna=False) if kinds else [((), own)]
    for names, part in groups:
        where = dict(zip(kinds, map(str, names), strict=True))
        columns = _expanded(part["factors"], "")
        part = part.assign(**columns)
        candidates = [*columns, *_OWN]
        if _unique(part, candidates):
            yield where, part, candidates
            continue
        for several, some in part.groupby(part["load_count"] > 1, sort=False):
            others = _other_loads(some, everyone) if several else {}
            wider = [*candidates, *others]
            some = some.assign(**others)
            apart = {"loads": "co-running" if several else "alone"}
            if _unique(some, wider):
                yield {**where, **apart}, some, wider


def _expanded(texts: pd.Series, prefix: str) -> dict[str, pd.Series]:
    """A column for each key of JSON texts; a key that a row lacks has the level "none"."""
    levels = texts.map({text: parse_levels_json(text) for text in texts.dropna().unique()})
    held = [parsed if isinstance(parsed, Mapping) else {} for parsed in levels]
    keys = dict.fromkeys(key for parsed in held for key in parsed)
    return {
        f"{prefix}{key}": pd.Series([_level(parsed.get(key)) for parsed in held], texts.index)
        for key in keys
    }


def _level(value: object) -> str:
    """A level as text; numbers without a needless fraction."""
    if value is None or value != value:
        return "none"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _other_loads(rows: pd.DataFrame, everyone: pd.DataFrame) -> dict[str, pd.Series]:
    """Kernel, target and levels of the other loads of each row's point, `role.kernel` and so on."""
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


def _unique(rows: pd.DataFrame, columns: Iterable[str]) -> bool:
    """Whether a replicate has each combination of levels once."""
    return not rows.duplicated([*columns, BLOCK]).any()


Cut = tuple[dict[str, str], pd.DataFrame, tuple[str, ...], tuple[str, ...]]


def _designs(rows: pd.DataFrame, candidates: Sequence[str]) -> Iterator[Cut]:
    """Well filled crossings that together cover the rows, the largest first."""
    factors, follow = _independent(rows, candidates)
    if factors and _filled(rows, factors) >= LEAST_FILLED:
        yield {}, rows, factors, follow
        return
    left = pd.Series(True, rows.index)
    cuts = list(_cuts(rows, [*candidates, "relation"]))
    for _ in range(MOST_CUTS):
        best = max(cuts, key=lambda cut: _worth(cut, left), default=None)
        if best is None or _worth(best, left)[0] == 0:
            return
        left[best[1].index] = False
        yield best


def _worth(cut: Cut, left: pd.Series) -> tuple[int, int, float]:
    """The number of rows that a cut adds, the number of its factors, and how full it is."""
    _, rows, factors, _ = cut
    return int(left[rows.index].sum()), len(factors), _filled(rows, factors)


def _cuts(rows: pd.DataFrame, columns: Sequence[str]) -> Iterator[Cut]:
    """Every well filled crossing with one column constant."""
    for column in columns:
        for level, part in rows.groupby(column, sort=False):
            others = [name for name in columns if name not in (column, "relation")]
            factors, follow = _independent(part, others)
            if factors and _filled(part, factors) >= LEAST_FILLED:
                yield {column: str(level)}, part, factors, follow


def _filled(rows: pd.DataFrame, factors: Sequence[str]) -> float:
    """Share of the combinations of levels that have a value."""
    there = len(rows[list(factors)].drop_duplicates())
    return there / float(np.prod([rows[name].nunique(dropna=False) for name in factors]))


def _independent(
    rows: pd.DataFrame, candidates: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The candidates that are factors, and the candidates that follow from the factors.

    When two candidates follow from each other the first is kept.
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
        if _follows(codes[name], combinations):
            kept.remove(name)
            follow.append(name)
    return tuple(kept), tuple(reversed(follow))


def _follows(codes: np.ndarray, combinations: pd.Series) -> bool:
    """Whether every combination of the other columns has a single level."""
    pairs = pd.DataFrame({"level": codes, "combination": combinations}).drop_duplicates()
    return not pairs["combination"].duplicated().any()


def analyse_all_studies(measurements: Table) -> Iterator[tuple[Study, Analysis]]:
    """Every study with its analysis; studies that cannot be analysed are skipped."""
    for study in find_studies(measurements):
        try:
            yield study, study.analyse()
        except UserError:
            continue
