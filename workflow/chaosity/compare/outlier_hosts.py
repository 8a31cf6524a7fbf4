"""Find outlier hosts, which differ from the other hosts although all hosts should be equal.

Equal servers differ by 1 or 2 %. Two runs on one server also differ by 1 or 2 %. So each cell of a
host is compared by the scatter of the *other* hosts' values, and not by the scatter of the host's
replicates. But the scatter of hosts is taken as at least the scatter that their replicates cause.
One replicate of each cell is enough for the comparison.

A host is an outlier if one of its cells deviates from the median of the other hosts by 5 % or more,
and if the deviation is significant. In at most one of twenty comparisons of *all* hosts in *all*
cells, chance makes any deviation significant (Holm). The limit is strict, since a healthy host that
is named by mistake costs a person a day.

Outlier hosts are named one by one, the clearest first. After each naming, the remaining hosts are
tested again without the named hosts, since an outlier shifts the median and the scatter of hosts.

With three hosts, only two other hosts show how much equal hosts differ in a cell. So a cell alone
has one degree of freedom, and its test would find nothing. But all cells of a metric scatter
similarly, so their variances are combined (moderated).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from chaosity.compare.selections import (
    ARROW,
    match_cells,
    prepare_sides_for_matching,
    signs_of_improvement,
)
from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.statistics.estimates import (
    FALSE_ALARM_PROBABILITY,
    LEAST_REPORTED_DIFFERENCE,
    Ratio,
    adjust_family_wise_error,
    fit_variance_prior,
    variance_of_median,
)
from chaosity.store.measurements import (
    WORKING_SET,
    Measurements,
    is_percentile,
    parse_levels_json,
)
from chaosity.text_templates import sentences_of_macro

MIN_HOSTS = 3
_ValuesOfCellsAndHosts = NDArray[np.float64]


@dataclass(frozen=True)
class _HostDeviations:
    """The deviations of hosts; each array has the shape (cells, hosts), with NaN if not tested."""

    deviation: _ValuesOfCellsAndHosts  # log of value / median of the other hosts
    p: _ValuesOfCellsAndHosts  # p-value of the deviation, adjusted for all cells of all hosts
    detectable: _ValuesOfCellsAndHosts  # smallest detectable deviation, as a logarithm

    @property
    def large_and_significant_mask(self) -> NDArray[np.bool_]:
        """Whether each deviation is both large and significant."""
        with np.errstate(invalid="ignore"):
            large = np.abs(self.deviation) >= np.log1p(LEAST_REPORTED_DIFFERENCE)
            clear: NDArray[np.bool_] = (self.p < FALSE_ALARM_PROBABILITY) & large
        return clear


def _find_outliers_one_by_one(
    logs: _ValuesOfCellsAndHosts, groups: NDArray[np.str_], within: _ValuesOfCellsAndHosts
) -> tuple[set[int], _HostDeviations]:
    """Return the numbers of the outlier hosts, found one by one, and the deviations of all hosts.

    The deviations of an outlier host come from the test in which this host was named. The
    deviations of the other hosts come from the last test. `scatter_and_median_of_other_hosts`
    explains the arguments.
    """
    hosts = logs.shape[1]
    remaining = np.full(hosts, True)
    result = current = _deviations_from_others(logs, groups, within)
    # The majority of the hosts defines which values are right, so only a minority can be outliers.
    for _ in range((hosts - 1) // 2):
        clear = current.large_and_significant_mask
        if not clear.any():
            break
        # If several p-values are equally small, the host with the largest deviation is named first.
        p = np.where(clear, current.p, np.inf).min(axis=0)
        largest = np.where(clear, np.abs(current.deviation), 0.0).max(axis=0)
        remaining[np.lexsort((-largest, p))[0]] = False
        current = _deviations_from_others(np.where(remaining, logs, np.nan), groups, within)
        both = ((getattr(each, f.name) for each in (current, result)) for f in fields(current))
        result = _HostDeviations(*(np.where(remaining, new, old) for new, old in both))
    return set(np.flatnonzero(~remaining).tolist()), result


def _deviations_from_others(
    logs: _ValuesOfCellsAndHosts, groups: NDArray[np.str_], within: _ValuesOfCellsAndHosts
) -> _HostDeviations:
    """Return how far each host is from the median of the other hosts, and the p-values."""
    freedom, spread, expected = scatter_and_median_of_other_hosts(logs, groups, within)
    deviation = logs - expected
    with np.errstate(invalid="ignore"):
        p = np.asarray(2.0 * stats.t.sf(np.abs(deviation) / spread, freedom))
    tested = np.isfinite(p)
    p[tested] = adjust_family_wise_error(p[tested])
    level = FALSE_ALARM_PROBABILITY / 2.0 / max(1, int(np.count_nonzero(tested)))
    detectable = np.asarray(stats.t.isf(level, freedom)) * spread
    return _HostDeviations(deviation, p, np.where(np.isnan(logs), np.nan, detectable))


def scatter_and_median_of_other_hosts(
    logs: _ValuesOfCellsAndHosts,
    groups: NDArray[np.str_],
    within: _ValuesOfCellsAndHosts,
    hosts: Collection[int] | None = None,
) -> tuple[_ValuesOfCellsAndHosts, _ValuesOfCellsAndHosts, _ValuesOfCellsAndHosts]:
    """Return the value that the other hosts let expect of each host in each cell, and its scatter.

    The three results are arrays of the shape (cells, hosts). The first array has the degrees of
    freedom of the spread. The second array has the spread: the standard deviation of the difference
    between an equal host and the expected value. The third array has the expected value: the median
    of the other hosts' logarithms. Freedom and spread are NaN if fewer than two other hosts have a
    value. The variances of a group's cells are combined.

    Args:
        logs: logarithms of the values, shape (cells, hosts); NaN if a host has no value in a cell.
        groups: group of each cell.
        within: for each cell, the variance of a host's value that the scatter of its replicates
            causes.
        hosts: numbers of the tested hosts, by default all hosts. For hosts that are not tested,
            freedom and spread are NaN.
    """
    own = ~np.isnan(logs)
    others = own.sum(axis=1, keepdims=True) - own
    # The prior is fitted without the tested host too. With the tested host, the deviation of an
    # outlier would enlarge the prior and so look usual.
    scatter = _variance_of_others(logs)
    variance, freedom = np.full(logs.shape, np.nan), np.full(logs.shape, np.nan)
    for host in range(logs.shape[1]) if hosts is None else hosts:
        enough = others[:, host] >= MIN_HOSTS - 1
        for group in np.unique(groups[enough]):
            place = np.flatnonzero(enough & (groups == group)), host
            known = others[place] - 1.0
            prior = fit_variance_prior(scatter[place], known)
            variance[place], freedom[place] = prior.shrink_variances(scatter[place], known)
    # If hosts differ less than their replicates scatter, the small difference is chance.
    variance = np.fmax(variance, np.where(np.isnan(variance), np.nan, within[:, np.newaxis]))
    # The spread includes the scatter of the tested host and the scatter of the others' median.
    spread = np.sqrt(variance * (1.0 + variance_of_median(others)))
    return freedom, spread, _medians_of_others(logs)


def _variance_of_others(values: _ValuesOfCellsAndHosts) -> _ValuesOfCellsAndHosts:
    """Return for each value the variance of the other values in its row; NaN for fewer than two."""
    n = np.count_nonzero(~np.isnan(values), axis=1)[:, np.newaxis]
    own = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = values - np.nansum(values, axis=1, keepdims=True) / n
        squares = np.nansum(away**2, axis=1, keepdims=True)
        left = np.where(own, squares - away**2 * n / (n - 1.0), squares)
        variance: _ValuesOfCellsAndHosts = np.maximum(left, 0.0) / (n - own - 1.0)
    return variance


def _medians_of_others(values: _ValuesOfCellsAndHosts) -> _ValuesOfCellsAndHosts:
    """Return for each value the median of the other values in its row.

    Each row is sorted only once, since a separate median for each of 200 hosts would take minutes.
    NaN means that there is no value.
    """
    ordered = np.sort(values, axis=1)  # NaNs are at the end
    rank = np.argsort(np.argsort(values, axis=1), axis=1)
    own = ~np.isnan(values)
    others = own.sum(axis=1, keepdims=True) - own
    last = values.shape[1] - 1

    def other_value_at(place: NDArray[np.intp]) -> _ValuesOfCellsAndHosts:
        """Return the value at a position among the sorted other values of each row."""
        place = np.clip(place + (own & (place >= rank)), 0, last)
        return np.take_along_axis(ordered, place, axis=1)

    middle = (other_value_at((others - 1) // 2) + other_value_at(others // 2)) / 2.0
    return np.where(others > 0, middle, np.nan)


def _find_cells_where_hosts_differ(
    n: _ValuesOfCellsAndHosts,
    medians: _ValuesOfCellsAndHosts,
    means: _ValuesOfCellsAndHosts,
    variances: _ValuesOfCellsAndHosts,
) -> pd.DataFrame:
    """Find cells in which hosts differ more than their replicates scatter, the widest range first.

    The table has a row for each found cell: the number of the cell (`cell`), and the lowest and the
    highest value of any host divided by the hosts' median (`low`, `high`).

    If one half of the hosts has other memory modules than the other half, hosts scatter so much
    that no host is an outlier. But this analysis of variance finds the difference. The analysis
    needs at least two replicates on each of three hosts. Each argument describes the logarithms of
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
    # If the replicates have no scatter at all, any difference between hosts is significant.
    p = np.where(inside > 0.0, p, low == high)
    clear = adjust_family_wise_error(p) < FALSE_ALARM_PROBABILITY
    clear &= np.maximum(high, 1.0 / low) >= 1.0 + LEAST_REPORTED_DIFFERENCE
    found = pd.DataFrame({"cell": tested, "low": low, "high": high})[clear]
    order = np.argsort((found["low"] / found["high"]).to_numpy(), kind="stable")
    return found.iloc[order]


# Largest number of hosts in one comparison. A comparison of 200 hosts with eight nodes and 30
# drives takes a minute of processor time and 1.3 GB of memory.
MAX_HOSTS = 1000
_OTHER_LOADS_TEXT = "all other loads"
# Largest number of columns for places of one kind in the table of hosts. If there are more places,
# they are grouped by node, or else by package, so that a row fits on a page.
_MOST_PLACES_IN_A_ROW = 16


@dataclass(frozen=True)
class HostVerdict:
    """The verdict on one host."""

    host: str  # name of the host
    # Speed of the host divided by the other hosts' median speed; median over the host's cells. A
    # number below 1 means that the host is slower, also for latency. None if no cell was compared.
    speed: float | None
    # low, high: 95 % interval of `speed`, from the scatter over the cells.
    low: float | None
    high: float | None
    cells: int  # number of compared cells
    missing: int  # number of cells that most hosts have and this host lacks
    clear: int  # number of cells with a clear deviation
    worst: str  # text on the cell with the largest deviation, if possible a clear one
    # Value of the host in the worst cell, divided by the median of the other hosts.
    worst_ratio: float | None
    # Smallest p-value of the host's deviations of 5 % or more, adjusted for all cells of all hosts;
    # None without a test.
    p_adjusted: float | None
    differs: bool  # whether the host is an outlier host


@dataclass(frozen=True)
class ResourceSpeeds:
    """The speed of each host in one resource."""

    group: str  # for example "memory bandwidth of own node"
    # Name of the place: "node3", "0 -> 1" (packages), a drive, or the node of several drives. The
    # text is "" for the resource that has all other loads.
    place: str
    # For each host, its speed in the most deviating cell of this resource, divided by the other
    # hosts' median. A number below 1 means that the host is slower, also for latency. None without
    # a value.
    speeds: tuple[float | None, ...]
    # For each host, whether any cell of the resource has a large and significant deviation.
    clear: tuple[bool, ...]


@dataclass(frozen=True)
class OutlierHosts:
    """The verdicts on all hosts."""

    matched_by: str  # PLACE or CLASS
    sentences: tuple[str, ...]  # the overall verdict, as sentences
    compared: int  # number of cells that at least three hosts have
    # Smallest detectable deviation of a host in a typical cell, as a share; None if unknown.
    detectable: float | None
    detectable_at_worst: float | None  # the share in the cell with the most scatter
    hosts: tuple[HostVerdict, ...]  # verdicts; outlier hosts first, then the slowest first
    # A table with a row for each clear deviation of an outlier host, and the columns `host`,
    # `group`, `where`, `asked_words`, `ratio` and `p_adjusted`.
    cells: pd.DataFrame
    names: tuple[str, ...]  # names of the hosts, in the order of `resources`
    # The speed of each host in each resource, for a table of hosts by resources.
    resources: tuple[ResourceSpeeds, ...]

    def to_json(self) -> dict[str, object]:
        """Return the attributes as JSON values; `sentences` becomes `verdict`."""
        plain = {"verdict" if key == "sentences" else key: v for key, v in vars(self).items()}
        hosts = [asdict(host) for host in self.hosts]
        resources = [asdict(resource) for resource in self.resources]
        cells = self.cells.to_dict("records")
        return {**plain, "hosts": hosts, "cells": cells, "resources": resources}


def find_outlier_hosts(
    tables: Mapping[str, Measurements],
    *,
    by: str | None = None,
    packages: Mapping[int, int] | None = None,
) -> OutlierHosts:
    """Compare hosts that should be equal, and name the hosts that deviate.

    Args:
        tables: name of each host -> its measurements.
        by: PLACE or CLASS; by default, PLACE if all hosts are built alike, else CLASS.
        packages: node -> its package, for `OutlierHosts.resources`.

    Raises:
        UserError: there are fewer than 3 or more than `MAX_HOSTS` hosts, or no cell was measured on
            three hosts.
    """
    if len(tables) < MIN_HOSTS:
        remedy = "compare two hosts with each other, or add a third host"
        what = f"{len(tables)} hosts are too few to find an outlier host"
        raise UserError(what, remedy=remedy)
    if len(tables) > MAX_HOSTS:
        remedy = f"compare at most {MAX_HOSTS} hosts at once"
        raise UserError(f"{len(tables)} hosts are too many", remedy=remedy)
    by, sides, keys = prepare_sides_for_matching(tables.values(), by)
    matched, names = match_cells(sides, keys), tuple(tables)
    columns = range(len(names))
    n, medians, means, variances = (
        matched.samples[name].unstack("side").reindex(columns=columns).sort_index().to_numpy(float)
        for name in ("n", "median", "mean", "variance")
    )
    common = np.count_nonzero(n > 0, axis=1) >= MIN_HOSTS
    n, medians, means, variances = (each[common] for each in (n, medians, means, variances))
    cells = matched.cells.loc[common].reset_index(drop=True)
    if cells.empty:
        raise UserError("no cell was measured on three hosts", None, "compare two of the hosts")
    groups = cells["group"].to_numpy(dtype=str)
    # Variance of a host's median that the scatter of its replicates causes; 0 if unknown.
    within = pd.DataFrame(variances * variance_of_median(n)).mean(axis=1).fillna(0.0).to_numpy()
    named, deviations = _find_outliers_one_by_one(medians, groups, within)
    verdicts = [
        _make_host_verdict(names[host], cells, deviations, host, differs=host in named)
        for host in range(len(names))
    ]
    ordered = tuple(sorted(verdicts, key=lambda host: (not host.differs, host.speed or 0.0)))
    typical, at_worst = _detectable_deviations(deviations)
    equal = [host for host in range(len(names)) if host not in named]
    differing = _find_cells_where_hosts_differ(
        *(each[:, equal] for each in (n, medians, means, variances))
    )
    modes = [table.rows["configuration"] for table in tables.values()]
    return OutlierHosts(
        matched_by=by,
        sentences=tuple(
            sentences_of_macro(
                "comparison",
                "hosts",
                hosts=ordered,
                compared=len(cells),
                fewest=MIN_HOSTS,
                typical=typical,
                at_worst=at_worst,
                widest=_cell_text(cells.iloc[differing["cell"].iloc[0]].to_dict())
                if len(differing)
                else None,
                differing=differing.to_dict("records"),
                configurations=sorted(map(str, pd.concat(modes).unique())),
            )
        ),
        compared=len(cells),
        detectable=typical,
        detectable_at_worst=at_worst,
        hosts=ordered,
        cells=_rows_of_clear_deviations(names, cells, deviations, named),
        names=names,
        resources=tuple(_resource_speeds(cells, medians, deviations, packages or {})),
    )


def _detectable_deviations(deviations: _HostDeviations) -> tuple[float | None, float | None]:
    """Return the smallest detectable deviation in a typical cell and in the worst cell."""
    known = deviations.detectable[np.isfinite(deviations.detectable)]
    if not len(known):
        return None, None
    typical, at_worst = (float(-np.expm1(-value)) for value in (np.median(known), known.max()))
    return max(typical, LEAST_REPORTED_DIFFERENCE), max(at_worst, LEAST_REPORTED_DIFFERENCE)


def _cell_text(cell: Mapping[Any, Any]) -> str:
    """Return the group, place and load of a row of `MatchedCells.cells` as text."""
    asked = cell["asked_words"]
    return f"{cell['group']} of {cell['where']}" + (f", {asked}" if asked else "")


def _make_host_verdict(
    name: str, cells: pd.DataFrame, deviations: _HostDeviations, host: int, *, differs: bool
) -> HostVerdict:
    deviation, p = deviations.deviation[:, host], deviations.p[:, host]
    clear = deviations.large_and_significant_mask[:, host] & differs
    known = ~np.isnan(deviation)
    if not known.any():
        unknown = (None, None, None, 0, len(known), 0, "no cell in common", None, None)
        return HostVerdict(name, *unknown, False)
    typical = Ratio.of_many_cells(np.exp((signs_of_improvement(cells) * deviation)[known]))
    worst = int(np.argmax(np.where(clear if clear.any() else known, np.abs(deviation), -1.0)))
    large = known & ~np.isnan(p) & (np.abs(deviation) >= np.log1p(LEAST_REPORTED_DIFFERENCE))
    return HostVerdict(
        host=name,
        speed=typical.ratio,
        low=typical.low,
        high=typical.high,
        cells=int(known.sum()),
        missing=int((~known).sum()),
        clear=int(clear.sum()),
        worst=_cell_text(cells.iloc[worst].to_dict()),
        worst_ratio=float(np.exp(deviation[worst])),
        p_adjusted=float(p[large].min()) if large.any() else None,
        differs=differs,
    )


def _rows_of_clear_deviations(
    names: Sequence[str], cells: pd.DataFrame, deviations: _HostDeviations, named: set[int]
) -> pd.DataFrame:
    """Return a row for each clear deviation of the named hosts, see `OutlierHosts.cells`."""
    hosts, numbers = np.nonzero(deviations.large_and_significant_mask.T)
    chosen = np.isin(hosts, list(named))
    hosts, numbers = hosts[chosen], numbers[chosen]
    found = cells.loc[numbers, ["group", "where", "asked_words"]]
    found.insert(0, "host", [names[host] for host in hosts.tolist()])
    return found.assign(
        ratio=np.exp(deviations.deviation[numbers, hosts]), p_adjusted=deviations.p[numbers, hosts]
    ).reset_index(drop=True)


def _resource_speeds(
    cells: pd.DataFrame,
    logs: NDArray[np.float64],
    deviations: _HostDeviations,
    packages: Mapping[int, int],
) -> list[ResourceSpeeds]:
    """Return the speeds of hosts in each resource: nodes, paths, drives, and last all other cells.

    A resource has cells whose values one component limits: the local memory of a node, a drive read
    from its node, the paths between two packages. If several loads use one place, the load with the
    highest value counts, since a core may limit loads with lower values. All other cells together
    are one resource. `logs` has the logarithms of the hosts' values, shape (cells, hosts). Without
    `packages`, paths are grouped by relation.
    """
    typical = np.nanmedian(logs, axis=1)  # logarithm of the hosts' median
    chosen: dict[tuple[str, tuple[str, ...], str], int] = {}
    for number, cell in enumerate(cells.to_dict("records")):
        found = _place_of_single_part(cell, packages)
        if found is not None:
            key = *found, "{initiator_nodes} {target_nodes}".format_map(cell)
            if key not in chosen or typical[number] > typical[chosen[key]]:
                chosen[key] = number
    # An outlier in one of the other cells must be shown, but the noise of a thousand other cells
    # must not look like an outlier. So only clear deviations of other cells count.
    clear = deviations.large_and_significant_mask
    speed = deviations.deviation * signs_of_improvement(cells)[:, np.newaxis]
    columns: dict[tuple[str, str], list[int]] = {}
    for group in dict.fromkeys(group for group, _, _ in chosen):
        own = {key: number for key, number in chosen.items() if key[0] == group}
        level = _finest_level_that_fits([names for _, names, _ in own])
        for (_, names, _), number in own.items():
            columns.setdefault((group, names[level]), []).append(number)
    shown = [
        _make_resource_speeds(group, place, speed[numbers], clear[numbers])
        for (group, place), numbers in columns.items()
    ]
    others = sorted(set(range(len(cells))) - set(chosen.values()))
    if others and clear[others].any():
        shown.append(
            _make_resource_speeds(
                _OTHER_LOADS_TEXT, "", np.where(clear, speed, np.nan)[others], clear[others]
            )
        )
    return shown


def _make_resource_speeds(
    group: str, place: str, speed: NDArray[np.float64], clear: NDArray[np.bool_]
) -> ResourceSpeeds:
    # A clear deviation is preferred to a larger deviation that chance may explain.
    rank = np.where(np.isnan(speed), -1.0, np.abs(speed) + 100.0 * clear)
    worst = np.take_along_axis(speed, rank.argmax(axis=0)[np.newaxis], axis=0)[0]
    shares = tuple(None if np.isnan(one) else float(np.exp(one)) for one in worst)
    return ResourceSpeeds(group, place, shares, tuple(bool(each.any()) for each in clear.T))


def _place_of_single_part(
    facts: Mapping[Any, Any], packages: Mapping[int, int]
) -> tuple[str, tuple[str, ...]] | None:
    """Return group and place (fine to coarse) of a cell; None if several components limit it."""
    sources, targets = (_parse_nodes(facts.get(f"{end}_nodes")) for end in ("initiator", "target"))
    levels = parse_levels_json(facts["load_parameters"])
    in_caches = {WORKING_SET, "responder"} & levels.keys()
    if facts["company"] or in_caches or is_percentile(str(facts["metric"])):
        return None
    if "target" not in facts:  # matched by class: these nodes are of one of many places
        return str(facts["group"]), (str(facts["where"]),)
    words, is_drive = facts["group"], facts["target_kind"] == "drive"
    if is_drive and len(sources) == 1 and not targets:
        return f"{words} of drives without a known node", (str(facts["target"]),)
    if facts["target_kind"] == "nodes" and facts["initiator_kind"] == "package":
        return _place_of_packages(words, sources, targets, packages)
    if not len(sources) == len(targets) == 1 or facts["target_kind"] not in ("node", "drive"):
        return None
    ends = [packages.get(node) for node in (*sources, *targets)]
    if sources != targets:
        path = f"{ends[0]} {ARROW} {ends[1]}" if None not in ends else str(facts["part"])
        return f"{words} from {'remote drives' if is_drive else 'other nodes'}, by package", (path,)
    node, package = f"node{targets[0]}", f"package {ends[1]}"
    if is_drive:
        drive = str(facts["target"])
        return f"{words} of drives", (drive, node, package)
    return f"{words} of own node", (node, package)


def _place_of_packages(
    words: str, sources: Sequence[int], targets: Sequence[int], packages: Mapping[int, int]
) -> tuple[str, tuple[str, ...]] | None:
    """Return group and place of a load from one package to one package; None for another load."""
    ends = [{packages.get(node) for node in nodes} for nodes in (sources, targets)]
    if None in ends[0] | ends[1] or not len(ends[0]) == len(ends[1]) == 1:
        return None
    source, target = (end.pop() for end in ends)
    if source == target:
        return f"{words} of own package", (f"package {source}",)
    return f"{words} between packages", (f"{source} {ARROW} {target}",)


def _parse_nodes(text: object) -> Sequence[int]:
    """Return the numbers of the nodes in a text such as "0-3"; none if the text is damaged."""
    with suppress(ValueError):
        return parse_cpu_list(str(text))
    return ()


def _finest_level_that_fits(places: Iterable[tuple[str, ...]]) -> int:
    """Return the finest level of names that fits into a row, or else the coarsest level."""
    levels = list(zip(*places, strict=True))
    return next(
        (number for number, names in enumerate(levels) if len(set(names)) <= _MOST_PLACES_IN_A_ROW),
        len(levels) - 1,
    )
