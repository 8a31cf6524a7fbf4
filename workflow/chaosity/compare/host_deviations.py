"""Find how far each host deviates from other hosts in each cell, and how likely that is by chance.

A host is compared with the scatter of the *other* hosts, not with that of its own replicates.
Outlier hosts are named one by one, the clearest first. The other hosts are then tested without the
named host, since a named host shifts their median and scatter.

With three hosts, only two other hosts show how much equal hosts differ in a cell: a test with one
degree of freedom finds nothing. But all cells of a metric scatter similarly, so variances are
moderated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.statistics.estimates import LEVEL, MATTERS, adjust_family_wise_error
from chaosity.statistics.moderated_variances import fit_variance_prior, variance_of_median

MIN_HOSTS = 3
_Values = NDArray[np.float64]


@dataclass(frozen=True)
class HostDeviations:
    """Deviations of hosts; each array is (cells, hosts), NaN where a host was not tested."""

    deviation: _Values  # logarithm of (host's value / median of the other hosts)
    p: _Values  # probability of the deviation by chance, adjusted for all cells of all hosts
    detectable: _Values  # smallest detectable deviation, as a logarithm

    @property
    def large_and_significant_mask(self) -> NDArray[np.bool_]:
        """Mask of the deviations that are large and significant."""
        with np.errstate(invalid="ignore"):
            large = np.abs(self.deviation) >= np.log1p(MATTERS)
            clear: NDArray[np.bool_] = (self.p < LEVEL) & large
        return clear


def find_outliers_one_by_one(
    logs: _Values, groups: NDArray[np.str_], within: _Values
) -> tuple[set[int], HostDeviations]:
    """Return the outlier hosts, named one after the other, and the deviations of all hosts.

    The deviations of an outlier host are those from the round in which it was named. The deviations
    of the other hosts are those from the last round. The arguments are those of
    `scatter_and_median_of_other_hosts`.
    """
    hosts = logs.shape[1]
    remaining = np.full(hosts, True)
    result = current = _deviations(logs, groups, within)
    # The majority defines what is right, so at most a minority is named.
    for _ in range((hosts - 1) // 2):
        clear = current.large_and_significant_mask
        if not clear.any():
            break
        # If p-values are equally small, the host with the larger deviation comes first.
        p = np.where(clear, current.p, np.inf).min(axis=0)
        largest = np.where(clear, np.abs(current.deviation), 0.0).max(axis=0)
        remaining[np.lexsort((-largest, p))[0]] = False
        current = _deviations(np.where(remaining, logs, np.nan), groups, within)
        both = ((getattr(each, f.name) for each in (current, result)) for f in fields(current))
        result = HostDeviations(*(np.where(remaining, new, old) for new, old in both))
    return set(np.flatnonzero(~remaining).tolist()), result


def _deviations(logs: _Values, groups: NDArray[np.str_], within: _Values) -> HostDeviations:
    """Return how far each host is from the median of the other hosts, and the p-values."""
    freedom, spread, expected = scatter_and_median_of_other_hosts(logs, groups, within)
    deviation = logs - expected
    with np.errstate(invalid="ignore"):
        p = np.asarray(2.0 * stats.t.sf(np.abs(deviation) / spread, freedom))
    tested = np.isfinite(p)
    p[tested] = adjust_family_wise_error(p[tested])
    level = LEVEL / 2.0 / max(1, int(np.count_nonzero(tested)))
    detectable = np.asarray(stats.t.isf(level, freedom)) * spread
    return HostDeviations(deviation, p, np.where(np.isnan(logs), np.nan, detectable))


def scatter_and_median_of_other_hosts(
    logs: _Values, groups: NDArray[np.str_], within: _Values, hosts: Collection[int] | None = None
) -> tuple[_Values, _Values, _Values]:
    """Return the value to expect of each host in each cell from the other hosts, and its scatter.

    The cells of a group share variances. Each result has the shape (cells, hosts): the degrees of
    freedom of the spread; the spread, which is the standard deviation of the difference of an equal
    host to the expected value; and the expected value, the median of the other hosts' logarithms.
    Freedom and spread are NaN where too few other hosts have a value.

    Args:
        logs: logarithms, shape (cells, hosts); NaN where a host has no value.
        groups: group of each cell.
        within: variance of a host's value that its own replicates cause, for each cell.
        hosts: the tested hosts; all other hosts get NaN as freedom and spread. Default: all hosts
            are tested.
    """
    own = ~np.isnan(logs)
    others = own.sum(axis=1, keepdims=True) - own
    # The prior too is fitted without the tested host; otherwise an outlier would make its own
    # deviation look usual.
    scatter = _variance_of_others(logs)
    variance, freedom = np.full(logs.shape, np.nan), np.full(logs.shape, np.nan)
    for host in range(logs.shape[1]) if hosts is None else hosts:
        enough = others[:, host] >= MIN_HOSTS - 1
        for group in np.unique(groups[enough]):
            place = np.flatnonzero(enough & (groups == group)), host
            known = others[place] - 1.0
            prior = fit_variance_prior(scatter[place], known)
            variance[place], freedom[place] = prior.shrink_variances(scatter[place], known)
    # Hosts that differ less than their own replicates scatter are so equal only by chance.
    variance = np.fmax(variance, np.where(np.isnan(variance), np.nan, within[:, np.newaxis]))
    # The tested host's value and the median of the other hosts scatter too.
    spread = np.sqrt(variance * (1.0 + variance_of_median(others)))
    return freedom, spread, _medians_of_others(logs)


def _variance_of_others(values: _Values) -> _Values:
    """Return, for each value, the variance of the other values of its row; NaN if only one."""
    n = np.count_nonzero(~np.isnan(values), axis=1)[:, np.newaxis]
    own = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = values - np.nansum(values, axis=1, keepdims=True) / n
        squares = np.nansum(away**2, axis=1, keepdims=True)
        left = np.where(own, squares - away**2 * n / (n - 1.0), squares)
        variance: _Values = np.maximum(left, 0.0) / (n - own - 1.0)
    return variance


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
        """Return the value at a position among the sorted other values of each row."""
        place = np.clip(place + (own & (place >= rank)), 0, last)
        return np.take_along_axis(ordered, place, axis=1)

    middle = (of_others((others - 1) // 2) + of_others(others // 2)) / 2.0
    return np.where(others > 0, middle, np.nan)


def find_cells_where_hosts_differ(
    n: _Values, medians: _Values, means: _Values, variances: _Values
) -> pd.DataFrame:
    """Find cells in which hosts differ more than their replicates scatter, the widest range first.

    Returns a row for each such cell: its number `cell`, and the lowest and highest value of a host,
    divided by the hosts' median (`low` and `high`).

    Example: one half of the hosts has other memory modules than the other half. Then the scatter is
    so large that no host is an outlier, but the analysis of variance finds the difference. The
    analysis needs two replicates on each of three hosts. Each argument describes the logarithms of
    the replicates and has the shape (cells, hosts).
    """
    tested = np.flatnonzero(np.count_nonzero(n > 1, axis=1) >= MIN_HOSTS)
    n, medians, means, variances = (
        np.where(n > 1, each, np.nan)[tested] for each in (n, medians, means, variances)
    )
    hosts, values = np.count_nonzero(~np.isnan(n), axis=1), np.nansum(n, axis=1)
    centre = np.nansum(n * means, axis=1) / values
    between = np.nansum(n * (means.T - centre).T ** 2, axis=1) / (hosts - 1.0)
    inside = np.nansum((n - 1.0) * variances, axis=1) / (values - hosts)
    away = (medians.T - np.nanmedian(medians, axis=1)).T
    low, high = np.exp(np.nanmin(away, axis=1)), np.exp(np.nanmax(away, axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        p = stats.f.sf(between / inside, hosts - 1.0, values - hosts)
    # Values without any scatter are compared exactly.
    p = np.where(inside > 0.0, p, low == high)
    clear = adjust_family_wise_error(p) < LEVEL
    clear &= np.maximum(high, 1.0 / low) >= 1.0 + MATTERS
    found = pd.DataFrame({"cell": tested, "low": low, "high": high})[clear]
    order = np.argsort((found["low"] / found["high"]).to_numpy(), kind="stable")
    return found.iloc[order]
