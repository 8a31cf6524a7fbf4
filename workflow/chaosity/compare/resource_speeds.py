"""Group the deviations of hosts by resource, for a table with a row a host and a column a resource.

A resource is what one part of a host limits: the memory of a node from its own cores, a drive from
its own node, the paths between two packages. Of several loads on one place, the one with the
highest value counts, since a part limits this load and not a core. All other cells are one
resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.compare.comparison_text import ARROW
from chaosity.compare.host_deviations import HostDeviations
from chaosity.compare.matched_cells import gain_signs
from chaosity.store.measurements import (
    WORKING_SET,
    is_percentile_of_slow_accesses,
    parse_levels_json,
)

OTHER = "all other loads"
# More places of a kind are grouped by node, or else by package, so that a row fits on a page.
_MOST_PLACES = 16


@dataclass(frozen=True)
class ResourceSpeeds:
    """The speed of each host in one resource."""

    group: str  # for example "memory bandwidth of own node"
    # For example "node3", "0 -> 1" (packages), the node of several drives; "" in the group OTHER.
    place: str
    # For each host, its value in the cell of this resource that deviates most, as a share of the
    # other hosts' median; below 1 is slower, for latency too; None without a value.
    speeds: tuple[float | None, ...]
    # For each host, whether a cell of the resource has a significant, large deviation.
    clear: tuple[bool, ...]


def resource_speeds(
    cells: pd.DataFrame,
    logs: NDArray[np.float64],
    deviations: HostDeviations,
    packages: Mapping[int, int],
) -> list[ResourceSpeeds]:
    """Return the resources of equal hosts: own nodes, paths, drives, then all other cells.

    Args:
        cells: those of `MatchedCells`.
        logs: logarithms of the hosts' values, shape (cells, hosts).
        deviations: their deviations from each other.
        packages: node -> its package; without it, paths are grouped by relation.
    """
    typical = np.nanmedian(logs, axis=1)  # of the hosts, as a logarithm
    chosen: dict[tuple[str, tuple[str, ...], str], int] = {}
    for number, cell in enumerate(cells.to_dict("records")):
        found = _place_of_single_part(cell, packages)
        if found is not None:
            key = *found, "{initiator_nodes} {target_nodes}".format_map(cell)
            if key not in chosen or typical[number] > typical[chosen[key]]:
                chosen[key] = number
    # An outlier in a cell that no resource shows must not be lost, and noise of a thousand cells
    # must not look like one: of the other cells only clear deviations count.
    clear = deviations.large_and_significant_mask
    speed = deviations.deviation * gain_signs(cells)[:, np.newaxis]
    columns: dict[tuple[str, str], list[int]] = {}
    for group in dict.fromkeys(group for group, _, _ in chosen):
        own = {key: number for key, number in chosen.items() if key[0] == group}
        level = _level_that_fits([names for _, names, _ in own])
        for (_, names, _), number in own.items():
            columns.setdefault((group, names[level]), []).append(number)
    shown = [
        _speeds(group, place, speed[numbers], clear[numbers])
        for (group, place), numbers in columns.items()
    ]
    others = sorted(set(range(len(cells))) - set(chosen.values()))
    if others and clear[others].any():
        shown.append(_speeds(OTHER, "", np.where(clear, speed, np.nan)[others], clear[others]))
    return shown


def _speeds(
    group: str, place: str, speed: NDArray[np.float64], clear: NDArray[np.bool_]
) -> ResourceSpeeds:
    # A clear deviation comes before a larger one that may be chance.
    rank = np.where(np.isnan(speed), -1.0, np.abs(speed) + 100.0 * clear)
    worst = np.take_along_axis(speed, rank.argmax(axis=0)[np.newaxis], axis=0)[0]
    shares = tuple(None if np.isnan(one) else float(np.exp(one)) for one in worst)
    return ResourceSpeeds(group, place, shares, tuple(bool(each.any()) for each in clear.T))


def _place_of_single_part(
    facts: Mapping[Any, Any], packages: Mapping[int, int]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the group of a cell, and its place from fine to coarse; None without a single part.

    The places of a drive are the drive, its node and its package; a path has one: two packages.
    """
    sources, targets = (_numbers(facts.get(f"{end}_nodes")) for end in ("initiator", "target"))
    levels = parse_levels_json(facts["load_parameters"])
    in_caches = {WORKING_SET, "responder"} & levels.keys()
    if facts["company"] or in_caches or is_percentile_of_slow_accesses(str(facts["metric"])):
        return None
    if "target" not in facts:  # matched by class, so the nodes are those of one of many places
        return str(facts["group"]), (str(facts["where"]),)
    words, is_drive = facts["group"], facts["target_kind"] == "drive"
    if is_drive and len(sources) == 1 and not targets:
        return f"{words} of drives without a known node", (str(facts["target"]),)
    if facts["target_kind"] == "nodes":
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
    """Return the group and the place of a load by a package on a package; None for any other."""
    ends = [{packages.get(node) for node in nodes} for nodes in (sources, targets)]
    if None in ends[0] | ends[1] or not len(ends[0]) == len(ends[1]) == 1:
        return None
    source, target = (end.pop() for end in ends)
    if source == target:
        return f"{words} of own package", (f"package {source}",)
    return f"{words} between packages", (f"{source} {ARROW} {target}",)


def _numbers(text: object) -> Sequence[int]:
    return [int(each) for each in str(text).split(",") if each.strip().isdigit()]


def _level_that_fits(places: Iterable[tuple[str, ...]]) -> int:
    """Return the finest level of names at which there are few enough places, or the coarsest."""
    levels = list(zip(*places, strict=True))
    return next(
        (number for number, names in enumerate(levels) if len(set(names)) <= _MOST_PLACES),
        len(levels) - 1,
    )
