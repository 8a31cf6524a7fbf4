"""From the tidy table to tables that can be analysed: what was varied, found in the data.

Nothing here knows an experiment. The candidates for factors are the design's own factors and a
load's levels, then initiator, target, kernel and benchmark. Of these, what never varies is no
factor, nor is what follows from the others: a target that is always the initiator's own node says
nothing that the initiator does not, and a relation follows from initiator and target.

An experiment often holds several designs, such as a matrix of nodes by one kernel, and all kernels
on local memory. Crossed in one table, most of it would be empty. So where the candidates do not
fill their table, the rows are cut by the one column and level that leaves the fullest crossing,
until what is left is covered too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.statistics.anova import Analysis, analyse
from chaosity.statistics.contrasts import Contrast
from chaosity.statistics.loads import POINT, load_counts
from chaosity.statistics.summary import VALID, plain

RESPONSE, BLOCK = "value", "replicate"
LOCAL, REMOTE = "local", "remote"
_SAME_NODE = "same_node"
_NOT_KNOWN = ("unknown", "none")
# Columns that every load has, in the order in which they are kept when one follows from others.
_OWN = ("initiator", "target", "kernel", "benchmark")
# Values of these are different things: a thread is no node, a drive is no set of drives.
_KINDS = ("initiator_kind", "target_kind")
# Cells without a value cost degrees of freedom and make shares of variation overlap. A matrix
# without its diagonal (a core does not talk to itself) fills 2/3 from three cores on.
LEAST_FILLED = 0.6
# Of a plan with many designs the first few tell what there is to tell.
MOST_CUTS = 4


@dataclass(frozen=True)
class Study:
    """A table to analyse, out of one experiment.

    Attributes:
        experiment, load, metric: whose values.
        where: what is held constant in it, of what varies in the experiment.
        factors: columns of the frame that were varied.
        frame: the factors, `value`, `replicate`, and `relation`.
        left_out: columns that follow from the factors.
        block: `replicate`, or None where there is only one.
    """

    experiment: str
    load: str
    metric: str
    where: Mapping[str, str]
    factors: tuple[str, ...]
    frame: pd.DataFrame
    left_out: tuple[str, ...]
    block: str | None

    def analysis(self, transform: str = "better") -> Analysis:
        """Analyse it.

        Raises:
            UserError: it cannot be analysed, such as when no value differs from another.
        """
        return analyse(self.frame, RESPONSE, self.factors, self.block, transform)

    def local_against_remote(self, analysis: Analysis) -> Contrast | None:
        """Other nodes' memory or drives against one's own; None when one of them is missing."""
        relation = self.frame["relation"]
        known = relation.notna() & ~relation.isin(_NOT_KNOWN)
        groups = np.where(relation == _SAME_NODE, LOCAL, np.where(known, REMOTE, "unknown"))
        return analysis.between(list(groups), (REMOTE, LOCAL), "relation")

    def share_of_relation(self, analysis: Analysis) -> float | None:
        """Per cent of the variation that goes with the relation of initiator and target alone.

        It is part of what initiator, target and their interaction explain, since it follows from
        them. None where fewer than two relations are known.
        """
        relation = self.frame["relation"]
        codes, names = pd.factorize(relation)
        if len(names) < 2 or relation.isna().any() or set(names) & set(_NOT_KNOWN):
            return None
        departures = analysis.values - analysis.values.mean()
        means = np.bincount(codes, departures) / np.bincount(codes)
        return float(100.0 * (means[codes] ** 2).sum() / (departures**2).sum())


def studies(tidy: pd.DataFrame) -> list[Study]:
    """Every table of the tidy table that can be analysed, in its order.

    Args:
        tidy: of one host in one configuration.
    """
    rows = plain(tidy)
    rows = rows[(rows["status"] == VALID) & np.isfinite(rows["value"].to_numpy(float))]
    if "reference" in rows:  # its ratio to itself is 1 whatever was measured
        rows = rows[~rows["reference"].astype(bool)]
    if rows.empty:
        return []
    rows = rows.assign(company=load_counts(rows) > 1)
    found = []
    for (experiment, load, metric), own in rows.groupby(["experiment", "load", "metric"],
                                                        sort=False):  # fmt: skip
        everybody = rows[rows["experiment"] == experiment]
        for where, part, others in _alike(own, everybody):
            for cut, chosen, factors, left_out in _designs(part, others):
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


def _alike(own: pd.DataFrame, everybody: pd.DataFrame) -> Iterator[Part]:
    """Rows of one load and metric by what kind of thing they are, with columns of their factors.

    Points that differ only in what ran beside the load need the other loads' columns too. Points
    without other loads lack these, so they stand apart.
    """
    kinds = [kind for kind in _KINDS if own[kind].nunique(dropna=False) > 1]
    groups = own.groupby(kinds, sort=False, dropna=False) if kinds else [((), own)]
    for names, part in groups:
        where = dict(zip(kinds, map(str, names), strict=True))
        columns = _declared(part)
        part = part.assign(**columns)
        candidates = [*columns, *_OWN]
        if _unique(part, candidates):
            yield where, part, candidates
            continue
        for company, some in part.groupby("company", sort=False):
            beside = _beside(some, everybody) if company else {}
            wider = [*candidates, *beside]
            some = some.assign(**beside)
            apart = {"company": "with others" if company else "alone"}
            if _unique(some, wider):
                yield {**where, **apart}, some, wider


def _declared(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """The point's factors and the load's levels, a column each."""
    return _expanded(rows["factors"], "")


def _expanded(texts: pd.Series, prefix: str) -> dict[str, pd.Series]:
    """Columns of texts of JSON; a key that a row lacks is "none"."""
    read = {text: json.loads(text) for text in texts.dropna().unique()}
    keys = list(dict.fromkeys(key for factors in read.values() for key in factors))
    return {
        f"{prefix}{key}": texts.map(
            lambda text, key=key: _level(read.get(text, {}).get(key))
        )
        for key in keys
    }  # fmt: skip


def _level(value: object) -> str:
    """A level as text; numbers without a needless fraction."""
    if value is None or value != value:
        return "none"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _beside(rows: pd.DataFrame, everybody: pd.DataFrame) -> dict[str, pd.Series]:
    """Kernel, target and levels of the other loads of each row's point, `role.kernel` and so on."""
    columns: dict[str, pd.Series] = {}
    points = pd.MultiIndex.from_frame(rows[list(POINT)])
    others = everybody[everybody["load"] != rows["load"].iloc[0]]
    for role, found in others.groupby("load", sort=False):
        first = found.drop_duplicates(list(POINT)).set_index(list(POINT))
        of = {f"{role}.{name}": first[name] for name in ("kernel", "initiator", "target")}
        if "levels" in first:
            of |= _expanded(first["levels"], f"{role}.")
        columns |= {
            name: pd.Series(column.reindex(points).to_numpy(), rows.index).map(_level)
            for name, column in of.items()
        }
    return columns


def _unique(rows: pd.DataFrame, columns: Iterable[str]) -> bool:
    """Whether a replicate has each combination of levels once: no point passes for a replicate."""
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
    """Rows that it would add, its factors, how full it is."""
    _, rows, factors, _ = cut
    return int(left[rows.index].sum()), len(factors), _filled(rows, factors)


def _cuts(rows: pd.DataFrame, columns: Sequence[str]) -> Iterator[Cut]:
    """Every well filled crossing that holds one column at one level."""
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
    """Candidates that vary and do not follow from the others, and those that do follow.

    When two follow from each other the one that stands first is kept.
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
    """Whether every combination of the others has one level."""
    pairs = pd.DataFrame({"level": codes, "combination": combinations}).drop_duplicates()
    return not pairs["combination"].duplicated().any()


def analyses(tidy: pd.DataFrame) -> Iterator[tuple[Study, Analysis]]:
    """Every study with its analysis; what cannot be analysed is passed over."""
    for study in studies(tidy):
        try:
            yield study, study.analysis()
        except UserError:
            continue
