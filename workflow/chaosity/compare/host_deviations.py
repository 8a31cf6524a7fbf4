"""Find how far each host deviates from the others in each cell, and how likely that is by chance.

A host is compared with the scatter of the *other* hosts, not with that of its own replicates.
Outlier hosts are named one by one, the clearest first. The other hosts are then tested without the
named host, since it shifts their median and scatter.

With three hosts, only two others show how much equal hosts differ in a cell: a test with one degree
of freedom finds nothing. But all cells of a metric scatter similarly, so variances are moderated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from chaosity.compare.matched_cells import (
    CLASS,
    LEVEL,
    MATTERS,
    PLACE,
    ComparableCell,
    Key,
    add_matching_columns,
    configuration_key,
    group_cells,
    key_columns,
    place_names_mean_the_same,
    simplify_relations_if_any_unknown,
)
from chaosity.statistics.moderated_variances import fit_variance_prior
from chaosity.statistics.significance_tests import (
    adjust_family_wise_error,
    silence_warnings_on_equal_values,
)
from chaosity.store.measurements import Measurements

MIN_HOSTS = 3
_Values = NDArray[np.float64]


@dataclass(frozen=True)
class HostValues:
    """The values of all hosts, in the cells that were measured on at least three hosts."""

    hosts: tuple[str, ...]  # names of the hosts
    cells: tuple[ComparableCell, ...]  # each cell as the first host has it, for its description
    logs: _Values  # logarithms of the medians, shape (cells, hosts); NaN where a host has no value
    # For each cell, the logarithms of each host's replicates.
    samples: tuple[tuple[_Values, ...], ...]

    def cell_text(self, number: int) -> str:
        """Return a text with the group, place and load of the cell with this number."""
        cell = self.cells[number]
        return f"{cell.category_and_metric_text} of {cell.place_text}" + (
            f", {cell.load_text}" if cell.load_text else ""
        )


@dataclass(frozen=True)
class HostDeviations:
    """Deviations of hosts; each array is (cells, hosts), NaN where a host was not tested."""

    deviation: _Values  # logarithm of the host's value divided by the median of the others
    p: _Values  # probability of such a deviation by chance, adjusted for all cells of all hosts
    detectable: _Values  # smallest detectable deviation, as a logarithm

    @property
    def large_and_significant_mask(self) -> NDArray[np.bool_]:
        """Mask of the deviations that are large and significant."""
        with np.errstate(invalid="ignore"):
            large = np.abs(self.deviation) >= np.log(MATTERS)
            clear: NDArray[np.bool_] = (self.p < LEVEL) & large
        return clear


def match_cells_and_collect_values(
    tables: Mapping[str, Measurements], by: str | None
) -> tuple[str, HostValues]:
    """Return how cells are matched (PLACE or CLASS), and the values of all hosts.

    Args:
        tables: name of each host -> its measurements.
        by: PLACE or CLASS. Default: PLACE where all hosts are built alike.
    """
    Measurements.refuse_mixed_origins(tables.values())
    sides = [add_matching_columns(table).valid_rows() for table in tables.values()]
    configuration = configuration_key(list(tables.values()))
    if by is None:
        by = PLACE if place_names_mean_the_same(sides, configuration) else CLASS
    if by == CLASS:
        sides = simplify_relations_if_any_unknown(sides)
    described: dict[Key, ComparableCell] = {}
    # Of the cells of a fleet, only the values are kept: descriptions of all would fill the memory.
    values: list[dict[Key, _Values]] = []
    for side in sides:
        own = group_cells(side, [*key_columns(by), *configuration])
        values.append({key: np.log(cell.block_values) for key, cell in own.items()})
        described = own | described
    hosts_by_key = Counter(chain(*values))
    common = [key for key, number in hosts_by_key.items() if number >= MIN_HOSTS]
    nothing = np.empty(0)
    samples = [tuple(own.get(key, nothing) for own in values) for key in common]
    logs = [[np.median(own) if len(own) else np.nan for own in cell] for cell in samples]
    return by, HostValues(
        hosts=tuple(tables),
        cells=tuple(described[key] for key in common),
        logs=np.array(logs).reshape(len(common), len(tables)),
        samples=tuple(samples),
    )


def find_outliers_one_by_one(values: HostValues) -> tuple[set[int], HostDeviations]:
    """Return the outlier hosts, named one after the other, and the deviations of all hosts.

    The deviations of an outlier host are those from the round in which it was named. The deviations
    of the other hosts are those from the last round.
    """
    hosts = len(values.hosts)
    remaining = list(range(hosts))
    named: set[int] = set()
    result = current = _deviations(values, remaining)
    # The majority defines what is right, so at most a minority is named.
    while len(named) < (hosts - 1) // 2:
        clear = current.large_and_significant_mask
        p = np.where(clear, current.p, np.inf).min(axis=0)
        if not np.isfinite(p).any():
            break
        # If p-values are equally small, the host with the larger deviation comes first.
        largest = np.where(clear, np.abs(current.deviation), 0.0).max(axis=0)
        worst = min(remaining, key=lambda host: (p[host], -largest[host]))
        named.add(worst)
        remaining.remove(worst)
        current = _deviations(values, remaining)
        newer = np.isin(np.arange(hosts), remaining)
        both = zip(vars(current).values(), vars(result).values(), strict=True)
        result = HostDeviations(*(np.where(newer, new, old) for new, old in both))
    return named, result


def _deviations(values: HostValues, hosts: Sequence[int]) -> HostDeviations:
    """Return the deviation of each of `hosts` from the rest of `hosts`; NaN for other hosts."""
    deviation, p, detectable = (np.full(values.logs.shape, np.nan) for _ in range(3))
    own = values.logs[:, hosts]
    within = np.array([_variance_within([cell[host] for host in hosts]) for cell in values.samples])
    groups = np.array([cell.category_and_metric_text for cell in values.cells])
    deviation[:, hosts] = own - _medians_of_others(own)
    scatters = [
        scatter_of_other_hosts(np.delete(own, place, axis=1), groups, within)
        for place in range(len(hosts))
    ]
    freedom, spread, expected = np.stack(scatters, axis=-1)
    with np.errstate(invalid="ignore"):
        t = np.abs(own - expected) / spread
    p_values = 2.0 * stats.t.sf(t, freedom)
    tested = np.isfinite(p_values)
    if tested.any():
        adjusted = np.full(own.shape, np.nan)
        adjusted[tested] = adjust_family_wise_error(np.asarray(p_values)[tested])
        p[:, hosts] = adjusted
        level = LEVEL / 2.0 / np.count_nonzero(tested)
        detectable[:, hosts] = stats.t.isf(level, freedom) * spread
    return HostDeviations(deviation, p, detectable)


class OtherHostsScatter(NamedTuple):
    """The value that other hosts make likely for an equal host in each cell, and its scatter.

    All are NaN where too few other hosts have a value.
    """

    freedom: _Values  # degrees of freedom of the spread
    spread: _Values  # standard deviation of the difference of an equal host to `expected`
    expected: _Values  # mean of the other hosts' logarithms


def scatter_of_other_hosts(
    others: _Values, groups: NDArray[np.str_], within: _Values
) -> OtherHostsScatter:
    """Return the scatter of the other hosts, with variances that the cells of a group share.

    Args:
        others: logarithms, shape (cells, other hosts); NaN where a host has no value.
        groups: group of each cell.
        within: variance of a host's value that its own replicates cause, for each cell.
    """
    freedom, spread, expected = (np.full(len(others), np.nan) for _ in range(3))
    number = np.count_nonzero(~np.isnan(others), axis=1)
    for group in np.unique(groups):
        chosen = (number >= MIN_HOSTS - 1) & (groups == group)
        if not chosen.any():
            continue
        part, n = others[chosen], number[chosen]
        # The prior too is fitted without the tested host; else an outlier would make its own
        # deviation look usual.
        scatter = np.nanvar(part, axis=1, ddof=1)
        prior = fit_variance_prior(scatter, n - 1.0)
        variance, freedom[chosen] = prior.shrink_variances(scatter, n - 1.0)
        # If hosts differ less than their replicates scatter, they agree by chance.
        variance = np.maximum(variance, within[chosen])
        # The tested host's value and the mean of the other hosts scatter too.
        spread[chosen] = np.sqrt(variance * (1.0 + 1.0 / n))
        expected[chosen] = np.nanmean(part, axis=1)
    return OtherHostsScatter(freedom, spread, expected)


def _medians_of_others(values: _Values) -> _Values:
    """Return, for each value of a row, the median of the other values of this row.

    Each row is sorted once, since a median for each of 200 hosts would take minutes. NaN is no
    value.
    """
    ordered = np.sort(values, axis=1)  # NaN comes last
    rank = np.argsort(np.argsort(values, axis=1), axis=1)
    own = ~np.isnan(values)
    others = own.sum(axis=1, keepdims=True) - own
    last = values.shape[1] - 1

    def of_others(place: NDArray[np.intp]) -> _Values:
        """Return the value at a place of the sorted others: one further from the own rank on."""
        place = np.clip(place + (own & (place >= rank)), 0, last)
        return np.take_along_axis(ordered, place, axis=1)

    middle = (of_others((others - 1) // 2) + of_others(others // 2)) / 2.0
    return np.where(others > 0, middle, np.nan)


def _variance_within(samples: Sequence[_Values]) -> float:
    """Return the variance of a host's median that its replicates cause; 0 if unknown."""
    known = [sample for sample in samples if len(sample) > 1]
    return float(np.mean([sample.var(ddof=1) / len(sample) for sample in known])) if known else 0.0


@dataclass(frozen=True)
class CellWhereHostsDiffer:
    """A cell in which hosts differ: its number, and its extreme values divided by the median."""

    cell: int
    low: float
    high: float


def find_cells_where_hosts_differ(
    values: HostValues, hosts: Sequence[int]
) -> list[CellWhereHostsDiffer]:
    """Find cells in which hosts differ more than their replicates scatter, the widest range first.

    Example: one half of the hosts has other memory modules than the other half. Then the scatter is
    so large that no host is an outlier, but the analysis of variance finds the difference. The
    analysis needs two replicates on each of three hosts.
    """
    # Cells with equal numbers of replicates are tested together, since a call is slow.
    by_sizes: dict[tuple[int, ...], list[int]] = {}
    for number, cell in enumerate(values.samples):
        by_sizes.setdefault(tuple(len(cell[host]) for host in hosts), []).append(number)
    p_values: list[float] = []
    tested: list[CellWhereHostsDiffer] = []
    for sizes, numbers in by_sizes.items():
        own = [host for host, size in zip(hosts, sizes, strict=True) if size > 1]
        if len(own) < MIN_HOSTS:
            continue
        samples = [np.array([values.samples[number][host] for number in numbers]) for host in own]
        medians = np.stack([np.median(sample, axis=1) for sample in samples])
        medians -= np.median(medians, axis=0)
        with silence_warnings_on_equal_values():
            p = stats.f_oneway(*samples, axis=1).pvalue
        p_values.extend(np.where(np.isfinite(p), p, ~medians.any(axis=0)))
        low, high = np.exp(medians.min(axis=0)), np.exp(medians.max(axis=0))
        tested.extend(map(CellWhereHostsDiffer, numbers, map(float, low), map(float, high)))
    if not tested:
        return []
    clear = adjust_family_wise_error(p_values) < LEVEL
    found = [
        cell
        for cell, differs in zip(tested, clear, strict=True)
        if differs and max(cell.high, 1.0 / cell.low) >= MATTERS
    ]
    return sorted(found, key=lambda cell: cell.low / cell.high)
