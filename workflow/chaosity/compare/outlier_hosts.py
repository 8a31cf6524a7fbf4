"""Find outlier hosts: hosts that differ from the other hosts although all should be equal.

Equal servers differ by 1 or 2 %. Two runs on one server also differ by 1 or 2 %. So the comparison
of a host, cell by cell, uses the scatter of the *other* hosts and not the scatter of the host's own
replicates. But the scatter of hosts counts as at least the scatter that their replicates cause. One
replicate is enough for the comparison.

A host is an outlier if one of its cells deviates from the median of the other hosts by 5 % or more,
and if chance would cause such a deviation in less than one of twenty comparisons of *all* hosts in
*all* cells (Holm). The limit is strict, since a healthy host that is named by mistake costs a
person a day.

Outlier hosts are named one by one, the clearest first. After each, the remaining hosts are tested
without the named host, since a named host shifts their median and scatter.

With three hosts, only two other hosts show how much equal hosts differ in a cell. A test with one
degree of freedom finds nothing. But all cells of a metric scatter similarly, so their variances are
combined (moderated).
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
    LEVEL,
    MATTERS,
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
    """Deviations of hosts; each array has the shape (cells, hosts), with NaN if not tested."""

    deviation: _ValuesOfCellsAndHosts  # logarithm of (host's value / median of the other hosts)
    p: _ValuesOfCellsAndHosts  # p-value of the deviation, adjusted for all cells of all hosts
    detectable: _ValuesOfCellsAndHosts  # smallest detectable deviation, as a logarithm

    @property
    def large_and_significant_mask(self) -> NDArray[np.bool_]:
        """Mask of the deviations that are large and significant."""
        with np.errstate(invalid="ignore"):
            large = np.abs(self.deviation) >= np.log1p(MATTERS)
            clear: NDArray[np.bool_] = (self.p < LEVEL) & large
        return clear


def _find_outliers_one_by_one(
    logs: _ValuesOfCellsAndHosts, groups: NDArray[np.str_], within: _ValuesOfCellsAndHosts
) -> tuple[set[int], _HostDeviations]:
    """Return the outlier hosts, named one after the other, and the deviations of all hosts.

    The deviations of an outlier host come from the round in which the host was named. The
    deviations of the other hosts come from the last round. For the arguments, see
    `scatter_and_median_of_other_hosts`.
    """
    hosts = logs.shape[1]
    remaining = np.full(hosts, True)
    result = current = _deviations(logs, groups, within)
    # The majority of the hosts defines what is right, so only a minority can be named.
    for _ in range((hosts - 1) // 2):
        clear = current.large_and_significant_mask
        if not clear.any():
            break
        # If several p-values are equally small, the host with the largest deviation is named first.
        p = np.where(clear, current.p, np.inf).min(axis=0)
        largest = np.where(clear, np.abs(current.deviation), 0.0).max(axis=0)
        remaining[np.lexsort((-largest, p))[0]] = False
        current = _deviations(np.where(remaining, logs, np.nan), groups, within)
        both = ((getattr(each, f.name) for each in (current, result)) for f in fields(current))
        result = _HostDeviations(*(np.where(remaining, new, old) for new, old in both))
    return set(np.flatnonzero(~remaining).tolist()), result


def _deviations(
    logs: _ValuesOfCellsAndHosts, groups: NDArray[np.str_], within: _ValuesOfCellsAndHosts
) -> _HostDeviations:
    """Return how far each host is from the median of the other hosts, and the p-values."""
    freedom, spread, expected = scatter_and_median_of_other_hosts(logs, groups, within)
    deviation = logs - expected
    with np.errstate(invalid="ignore"):
        p = np.asarray(2.0 * stats.t.sf(np.abs(deviation) / spread, freedom))
    tested = np.isfinite(p)
    p[tested] = adjust_family_wise_error(p[tested])
    level = LEVEL / 2.0 / max(1, int(np.count_nonzero(tested)))
    detectable = np.asarray(stats.t.isf(level, freedom)) * spread
    return _HostDeviations(deviation, p, np.where(np.isnan(logs), np.nan, detectable))


def scatter_and_median_of_other_hosts(
    logs: _ValuesOfCellsAndHosts,
    groups: NDArray[np.str_],
    within: _ValuesOfCellsAndHosts,
    hosts: Collection[int] | None = None,
) -> tuple[_ValuesOfCellsAndHosts, _ValuesOfCellsAndHosts, _ValuesOfCellsAndHosts]:
    """Return the expected value of each host in each cell, from the other hosts, and its scatter.

    Returns three arrays of the shape (cells, hosts). First, the degrees of freedom of the spread.
    Second, the spread: the standard deviation of the difference between an equal host and the
    expected value. Third, the expected value: the median of the other hosts' logarithms. Freedom
    and spread are NaN where too few other hosts have a value. The cells of a group share variances.

    Args:
        logs: logarithms of the values, shape (cells, hosts); NaN where a host has no value.
        groups: group of each cell.
        within: for each cell, the variance of a host's value that its replicates cause.
        hosts: numbers of the tested hosts. For all other hosts, freedom and spread are NaN.
            Default: all hosts are tested.
    """
    own = ~np.isnan(logs)
    others = own.sum(axis=1, keepdims=True) - own
    # The prior too is fitted without the tested host. Otherwise an outlier would make its own
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
    # If hosts differ less than their own replicates scatter, they are so equal only by chance.
    variance = np.fmax(variance, np.where(np.isnan(variance), np.nan, within[:, np.newaxis]))
    # The difference includes the scatter of the tested host and the scatter of the others' median.
    spread = np.sqrt(variance * (1.0 + variance_of_median(others)))
    return freedom, spread, _medians_of_others(logs)


def _variance_of_others(values: _ValuesOfCellsAndHosts) -> _ValuesOfCellsAndHosts:
    """Return, for each value, the variance of the other values of its row; NaN without two."""
    n = np.count_nonzero(~np.isnan(values), axis=1)[:, np.newaxis]
    own = ~np.isnan(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = values - np.nansum(values, axis=1, keepdims=True) / n
        squares = np.nansum(away**2, axis=1, keepdims=True)
        left = np.where(own, squares - away**2 * n / (n - 1.0), squares)
        variance: _ValuesOfCellsAndHosts = np.maximum(left, 0.0) / (n - own - 1.0)
    return variance


def _medians_of_others(values: _ValuesOfCellsAndHosts) -> _ValuesOfCellsAndHosts:
    """Return, for each value of a row, the median of the other values of this row.

    Each row is sorted only once, since computing a median for each of 200 hosts would take minutes.
    NaN counts as no value.
    """
    ordered = np.sort(values, axis=1)  # NaNs are at the end
    rank = np.argsort(np.argsort(values, axis=1), axis=1)
    own = ~np.isnan(values)
    others = own.sum(axis=1, keepdims=True) - own
    last = values.shape[1] - 1

    def of_others(place: NDArray[np.intp]) -> _ValuesOfCellsAndHosts:
        """Return the value at a position among the sorted other values of each row."""
        place = np.clip(place + (own & (place >= rank)), 0, last)
        return np.take_along_axis(ordered, place, axis=1)

    middle = (of_others((others - 1) // 2) + of_others(others // 2)) / 2.0
    return np.where(others > 0, middle, np.nan)


def _find_cells_where_hosts_differ(
    n: _ValuesOfCellsAndHosts,
    medians: _ValuesOfCellsAndHosts,
    means: _ValuesOfCellsAndHosts,
    variances: _ValuesOfCellsAndHosts,
) -> pd.DataFrame:
    """Find cells whose hosts differ more than their replicates scatter, the widest range first.

    Returns a row for each such cell: its number `cell`, and the lowest and the highest value of any
    host, divided by the hosts' median (`low` and `high`).

    Example: one half of the hosts has other memory modules than the other half. Then hosts scatter
    so much that no host is an outlier, but the analysis of variance finds the difference. The
    analysis needs at least two replicates on each of three hosts. Each argument describes the
    logarithms of the replicates and has the shape (cells, hosts).
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
    # If the values have no scatter at all, any difference counts.
    p = np.where(inside > 0.0, p, low == high)
    clear = adjust_family_wise_error(p) < LEVEL
    clear &= np.maximum(high, 1.0 / low) >= 1.0 + MATTERS
    found = pd.DataFrame({"cell": tested, "low": low, "high": high})[clear]
    order = np.argsort((found["low"] / found["high"]).to_numpy(), kind="stable")
    return found.iloc[order]


# Most hosts in one comparison. Already 200 hosts with eight nodes and 30 drives take a minute of
# processor time and 1.3 GB.
MAX_HOSTS = 1000
_OTHER_LOADS_TEXT = "all other loads"
# Largest number of places of a kind in a row of the table of hosts. More places are grouped by
# node, or else by package, so that a row fits on a page.
_MOST_PLACES_IN_A_ROW = 16


@dataclass(frozen=True)
class HostVerdict:
    """The verdict on one host."""

    host: str  # name of the host
    # Median, over the host's cells, of its speed divided by the other hosts' median speed. Below 1
    # is slower, also for latency. None if no cell was compared.
    speed: float | None
    # low, high: 95 % interval of the speed over the cells.
    low: float | None
    high: float | None
    cells: int  # number of compared cells
    missing: int  # number of cells that most hosts have and this host lacks
    clear: int  # number of cells with a clear deviation
    worst: str  # description of the cell with the largest (if possible clear) deviation
    # Value of the host in the worst cell, divided by the median of the other hosts.
    worst_ratio: float | None
    # Smallest p-value of the host's large deviations, adjusted for all cells of all hosts; None
    # without a test.
    p_adjusted: float | None
    differs: bool  # whether the host is an outlier host


@dataclass(frozen=True)
class ResourceSpeeds:
    """The speed of each host in one resource."""

    group: str  # for example "memory bandwidth of own node"
    # For example "node3", "0 -> 1" (packages), or the node of several drives. "" for all other
    # loads.
    place: str
    # For each host, its value in the most deviating cell of this resource, divided by the other
    # hosts' median. Below 1 is slower, also for latency. None without a value.
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
    detectable_at_worst: float | None  # the same share in the cell with most scatter
    hosts: tuple[HostVerdict, ...]  # verdicts; outlier hosts first, then the slowest first
    # A row for each clear deviation of an outlier host, with the columns `host`, `group`, `where`,
    # `asked_words`, `ratio` and `p_adjusted`.
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
    """Compare hosts that should be equal.

    Args:
        tables: name of each host -> its measurements.
        by: PLACE or CLASS. Default: PLACE where all hosts are built alike.
        packages: node -> its package, for `OutlierHosts.resources`.

    Raises:
        UserError: there are fewer than 3 or more than `MAX_HOSTS` hosts, or no cell that three
            hosts have.
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
    # The variance that replicates cause in the median of a host; 0 if it is unknown.
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
    """Return the smallest detectable deviation in a typical and in the most scattered cell."""
    known = deviations.detectable[np.isfinite(deviations.detectable)]
    if not len(known):
        return None, None
    typical, at_worst = (float(-np.expm1(-value)) for value in (np.median(known), known.max()))
    return max(typical, MATTERS), max(at_worst, MATTERS)


def _cell_text(cell: Mapping[Any, Any]) -> str:
    """Return a text with the group, place and load of a row of `MatchedCells.cells`."""
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
    large = known & ~np.isnan(p) & (np.abs(deviation) >= np.log1p(MATTERS))
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
    """Return the resources of equal hosts: nodes, paths, drives, and last all other cells.

    A resource is what one part of a host limits: the memory of a node from its own cores, a drive
    from its own node, the paths between two packages. If several loads use one place, the load with
    the highest value counts: the part limits this load, but a core may limit the others. All other
    cells together are one resource. `logs` are the logarithms of the hosts' values, shape (cells,
    hosts). Without `packages`, paths are grouped by relation.
    """
    typical = np.nanmedian(logs, axis=1)  # of the hosts, as a logarithm
    chosen: dict[tuple[str, tuple[str, ...], str], int] = {}
    for number, cell in enumerate(cells.to_dict("records")):
        found = _place_of_single_part(cell, packages)
        if found is not None:
            key = *found, "{initiator_nodes} {target_nodes}".format_map(cell)
            if key not in chosen or typical[number] > typical[chosen[key]]:
                chosen[key] = number
    # An outlier in a cell without a resource of its own must not be lost, and the noise of a
    # thousand cells must not look like an outlier. So of these other cells only clear deviations
    # count.
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
    # A clear deviation counts more than a larger deviation that chance may explain.
    rank = np.where(np.isnan(speed), -1.0, np.abs(speed) + 100.0 * clear)
    worst = np.take_along_axis(speed, rank.argmax(axis=0)[np.newaxis], axis=0)[0]
    shares = tuple(None if np.isnan(one) else float(np.exp(one)) for one in worst)
    return ResourceSpeeds(group, place, shares, tuple(bool(each.any()) for each in clear.T))


def _place_of_single_part(
    facts: Mapping[Any, Any], packages: Mapping[int, int]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the group of a cell, and its place from fine to coarse; None for several parts."""
    sources, targets = (_parse_nodes(facts.get(f"{end}_nodes")) for end in ("initiator", "target"))
    levels = parse_levels_json(facts["load_parameters"])
    in_caches = {WORKING_SET, "responder"} & levels.keys()
    if facts["company"] or in_caches or is_percentile(str(facts["metric"])):
        return None
    if "target" not in facts:  # matched by class, so the nodes are those of one of many places
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
    """Return group and place of a load by one package on one package; None for any other load."""
    ends = [{packages.get(node) for node in nodes} for nodes in (sources, targets)]
    if None in ends[0] | ends[1] or not len(ends[0]) == len(ends[1]) == 1:
        return None
    source, target = (end.pop() for end in ends)
    if source == target:
        return f"{words} of own package", (f"package {source}",)
    return f"{words} between packages", (f"{source} {ARROW} {target}",)


def _parse_nodes(text: object) -> Sequence[int]:
    """Return the nodes in a text such as 0-3; no nodes if the text is damaged."""
    with suppress(ValueError):
        return parse_cpu_list(str(text))
    return ()


def _finest_level_that_fits(places: Iterable[tuple[str, ...]]) -> int:
    """Return the finest level of names that has few enough places, or else the coarsest level."""
    levels = list(zip(*places, strict=True))
    return next(
        (number for number, names in enumerate(levels) if len(set(names)) <= _MOST_PLACES_IN_A_ROW),
        len(levels) - 1,
    )
