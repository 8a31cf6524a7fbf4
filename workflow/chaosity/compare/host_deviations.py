"""Hosts against hosts in all cells: how far off each is, and by what chance.

A host is compared with how much the *others* scatter, and not with how much its own replicates do.
One host is named at a time, the clearest first, and the rest is looked at without it, since it
moves the others' median and scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.compare.cell_ratios import LEVEL, MATTERS
from chaosity.compare.comparison_text import group_words
from chaosity.compare.matched_cells import (
    ALONE,
    CLASS,
    PLACE,
    Cell,
    Key,
    alike,
    cells_of,
    coarse,
    key_columns,
    prepared,
    relations_unknown,
)
from chaosity.compare.variance_moderation import prior_of
from chaosity.statistics import equal_values_allowed, holm_adjusted, less_is_better, valid

FEWEST = 3
_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Fleet:
    """The values of all hosts.

    Attributes:
        hosts: their names.
        told: what describes each cell.
        groups: what each cell is of, in words.
        signs: 1 for each cell of which more is better, else -1.
        logs: typical values as logarithms, cells x hosts; NaN where a host has none.
        samples: of each cell the replicates' logarithms of each host; empty where it has none.
    """

    hosts: tuple[str, ...]
    told: tuple[Mapping[str, object], ...]
    groups: tuple[str, ...]
    signs: _Values
    logs: _Values
    samples: tuple[tuple[_Values, ...], ...]


@dataclass(frozen=True)
class Look:
    """What a look at some hosts gave, all of it cells x hosts; NaN where nothing can be said.

    Attributes:
        off: logarithm of the host's value over the others' median.
        p: chance of being as far off, adjusted for all cells of all hosts.
        seen: how far off a host has to be to be seen, as a logarithm.
    """

    off: _Values
    p: _Values
    seen: _Values

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Where a host is far off, and not by chance."""
        with np.errstate(invalid="ignore"):
            return (self.p < LEVEL) & (np.abs(self.off) >= np.log(MATTERS))


def fleet_of(tables: Mapping[str, pd.DataFrame], by: str | None) -> tuple[str, Fleet]:
    """The hosts' values, cells that fewer than three hosts have left out."""
    # One table of all: a host is known by its name here, should two tables be of one host.
    rows = valid(prepared(pd.concat([table.assign(host=name) for name, table in tables.items()])))
    if by is None:
        by = PLACE if alike([rows[rows["host"] == name] for name in tables]) else CLASS
    if by == CLASS and relations_unknown(rows):
        rows = coarse(rows)
    cells: dict[str, dict[Key, Cell]] = {name: {} for name in tables}
    for (name, *key), cell in cells_of(rows, ["host", *key_columns(by)]).items():
        cells[str(name)][tuple(key)] = cell
    told: dict[Key, Mapping[str, object]] = {}
    for own in cells.values():
        for key, cell in own.items():
            told.setdefault(key, cell.told)
    logs = np.array(
        [
            [np.log(own[key].median) if key in own else np.nan for own in cells.values()]
            for key in told
        ]
    ).reshape(len(told), len(cells))
    kept = np.count_nonzero(~np.isnan(logs), axis=1) >= FEWEST
    chosen = [told[key] for key, keep in zip(told, kept, strict=True) if keep]
    nothing = np.empty(0)
    samples = [
        tuple(np.log(own[key].values) if key in own else nothing for own in cells.values())
        for key, keep in zip(told, kept, strict=True)
        if keep
    ]
    return by, Fleet(
        hosts=tuple(cells),
        told=tuple(chosen),
        groups=tuple(_group(one) for one in chosen),
        signs=np.array([-1.0 if less_is_better(str(one["metric"])) else 1.0 for one in chosen]),
        logs=logs[kept],
        samples=tuple(samples),
    )


def _group(told: Mapping[str, object]) -> str:
    company = told.get("company", told.get("company_class", ALONE))
    return group_words(str(told["category"]), str(told["metric"]), bool(company))


def settle(fleet: Fleet) -> tuple[set[int], Look]:
    """Name one host after the other; the values of each are from the look that settled it."""
    hosts = len(fleet.hosts)
    left = list(range(hosts))
    named: set[int] = set()
    found = _look(fleet, left)
    settled = Look(found.off.copy(), found.p.copy(), found.seen.copy())
    # The majority says what is right, so it cannot be at fault.
    while len(named) < (hosts - 1) // 2:
        chances = np.where(found.clear, found.p, np.inf).min(axis=0)
        if not np.isfinite(chances).any():
            break
        # Of chances that are all too small to be told apart, that of the larger deviation.
        off = np.where(found.clear, np.abs(found.off), 0.0).max(axis=0)
        worst = min(left, key=lambda host: (chances[host], -off[host]))
        named.add(worst)
        left.remove(worst)
        found = _look(fleet, left)
        for whole, part in zip(_parts(settled), _parts(found), strict=True):
            whole[:, left] = part[:, left]
    return named, settled


def _parts(one: Look) -> tuple[_Values, _Values, _Values]:
    return one.off, one.p, one.seen


def _look(fleet: Fleet, hosts: Sequence[int]) -> Look:
    """Each of some hosts against the others of them; NaN for everybody else."""
    shape = fleet.logs.shape
    off, p, seen = (np.full(shape, np.nan) for _ in range(3))
    own = fleet.logs[:, hosts]
    within = np.array([_within([cell[host] for host in hosts]) for cell in fleet.samples])
    freedom, spread, expected = (np.full(own.shape, np.nan) for _ in range(3))
    for place, host in enumerate(hosts):
        others = np.delete(own, place, axis=1)
        number = np.count_nonzero(~np.isnan(others), axis=1)
        some = number >= 1
        middle = np.full(len(own), np.nan)
        middle[some] = np.nanmedian(others[some], axis=1)
        off[:, host] = own[:, place] - middle
        for group in dict.fromkeys(fleet.groups):
            chosen = (number >= FEWEST - 1) & (np.array(fleet.groups) == group)
            if not chosen.any():
                continue
            part, n = others[chosen], number[chosen]
            scatter = np.nanvar(part, axis=1, ddof=1)
            # Of the others too, or a host that is off would make its own deviation look usual.
            variance, total = prior_of(scatter, n - 1.0).shrunk(scatter, n - 1.0)
            # Hosts that agree better than their replicates do it by chance.
            variance = np.maximum(variance, within[chosen])
            freedom[chosen, place] = total
            # A host's own value scatters as the others do, and so does their mean.
            spread[chosen, place] = np.sqrt(variance * (1.0 + 1.0 / n))
            expected[chosen, place] = np.nanmean(part, axis=1)
    with np.errstate(invalid="ignore"):
        t = np.abs(own - expected) / spread
    chances = 2.0 * stats.t.sf(t, freedom)
    held = np.isfinite(chances)
    if held.any():
        corrected = np.full(own.shape, np.nan)
        corrected[held] = holm_adjusted(chances[held])
        p[:, hosts] = corrected
        needed = stats.t.isf(LEVEL / 2.0 / np.count_nonzero(held), freedom) * spread
        seen[:, hosts] = needed
    return Look(off, p, seen)


def _within(cell: Sequence[_Values]) -> float:
    """How much a host's typical value varies because its replicates do; 0 where that is unknown."""
    known = [one for one in cell if len(one) > 1]
    return float(np.mean([one.var(ddof=1) / len(one) for one in known])) if known else 0.0


@dataclass(frozen=True)
class Scattered:
    """A cell in which hosts differ: its number, and the ends of their values over the median."""

    cell: int
    low: float
    high: float


def scattered(fleet: Fleet, hosts: Sequence[int]) -> list[Scattered]:
    """Cells in which some hosts differ beyond what their replicates scatter, the widest first.

    Half of a fleet with other modules than the other half scatters so much that nobody stands out;
    analysis of variance sees it. It needs two replicates of three hosts.
    """
    # Cells of which all hosts have as many replicates are looked at together: one call is slow.
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, cell in enumerate(fleet.samples):
        alike.setdefault(tuple(len(cell[host]) for host in hosts), []).append(number)
    chances: list[float] = []
    wide: list[Scattered] = []
    for sizes, numbers in alike.items():
        own = [host for host, size in zip(hosts, sizes, strict=True) if size > 1]
        if len(own) < FEWEST:
            continue
        samples = [np.array([fleet.samples[number][host] for number in numbers]) for host in own]
        off = np.stack([np.median(one, axis=1) for one in samples])
        off -= np.median(off, axis=0)
        with equal_values_allowed():
            p = stats.f_oneway(*samples, axis=1).pvalue
        chances.extend(np.where(np.isfinite(p), p, ~off.any(axis=0)))
        low, high = np.exp(off.min(axis=0)), np.exp(off.max(axis=0))
        wide.extend(map(Scattered, numbers, map(float, low), map(float, high)))
    if not wide:
        return []
    clear = holm_adjusted(chances) < LEVEL
    found = [
        one
        for one, differs in zip(wide, clear, strict=True)
        if differs and max(one.high, 1.0 / one.low) >= MATTERS
    ]
    return sorted(found, key=lambda one: one.low / one.high)
