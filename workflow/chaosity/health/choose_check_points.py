"""Choose the points of a check: those of a host's map in which a fault of one part shows whole.

A load of one node against one node or one drive shows a fault of that part without dilution; of
two such loads, the one that moves more data, or waits longer, is limited by the part more often
than by a core or a cache. So the map decides, and no list of experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import pandas as pd

from chaosity.design.point_expansion import json_fingerprint
from chaosity.place_names import node_name
from chaosity.records.point_types import Load, Point
from chaosity.store.measurements import WORKING_SET, is_performance_metric
from chaosity.topology.topology_model import Topology

# A check measures shorter than the map. Below 0.4 s, a load has too few samples for an interval.
_MIN_SECONDS, _MAX_SECONDS = 0.4, 0.6
# Starting a load and writing its record, beyond the estimate of the point.
OVERHEAD_SECONDS = 0.25

PointKey = tuple[str, str]


@dataclass(frozen=True)
class CheckPoint:
    """A point of a check.

    Attributes:
        point: the point of the map, with a shorter stopping rule and so another definition.
        load: its only load.
        metric: the metric that is judged.
        parts: the components that limit it: a node, a drive, or a path such as node0->node4.
    """

    point: Point
    load: Load
    metric: str
    parts: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Return the expected time of one measurement in seconds."""
        return self.point["estimated_seconds"] + OVERHEAD_SECONDS

    @property
    def key(self) -> PointKey:
        """Return experiment and point."""
        return self.point["experiment"], self.point["point"]


def choose_check_points(
    points: Iterable[Point], medians: Mapping[PointKey, float], topology: Topology
) -> list[CheckPoint]:
    """Return a point for each part and kind of load: local ones and drives first, then paths.

    Args:
        points: the points of the map.
        medians: experiment and point -> median of its first metric in the map, in the metric's
            unit; points without a median are left out.
        topology: the host's topology; it tells which nodes a package has.
    """
    best: dict[tuple[str, ...], tuple[float, CheckPoint]] = {}
    for point in points:
        found = _part_and_kind(point, topology)
        median = medians.get((point["experiment"], point["point"]))
        if found is None or median is None or not median > 0.0:
            continue
        signature, check = found
        if signature not in best or median > best[signature][0]:
            best[signature] = median, check
    chosen = [check for _, check in best.values()]
    return sorted(chosen, key=lambda check: (len(check.parts) > 1, check.parts, check.metric))


def fit_into_time(
    points: Iterable[CheckPoint], checked: Mapping[PointKey, str], seconds: float
) -> tuple[list[CheckPoint], list[CheckPoint]]:
    """Divide points into those that fit into a time and those left for the next check.

    Points that no check has measured come first, then those whose last check is longest ago.

    Args:
        points: in the order of their importance.
        checked: experiment and point -> time of its last check.
        seconds: the time of all measurements.
    """
    taken, left, spent = list[CheckPoint](), list[CheckPoint](), 0.0
    for check in sorted(points, key=lambda check: checked.get(check.key, "")):
        spent += check.seconds
        (taken if spent <= seconds else left).append(check)
    return taken, left


def _part_and_kind(point: Point, topology: Topology) -> tuple[tuple[str, ...], CheckPoint] | None:
    """Return what a point tells about which part, and the point; None if it blurs several parts."""
    [load, *others] = point["loads"]
    target, sources = load["target"], load["initiator"]["nodes"]
    metric = next((m for m in load["metrics"] if is_performance_metric(m)), None)
    several = others or len(sources) != 1 or "by_node" in target or "device" in target
    in_caches = {WORKING_SET, "responder"} & set(load.get("levels", {}))
    if metric is None or several or in_caches:
        return None
    [source] = sources
    kind = load["category"]
    if target["drives"]:
        [drive, *more] = target["drives"]
        if more or drive["node"] not in (None, source):
            return None
        return _check(point, load, metric, (kind, metric), (drive["component"],))
    if len(target["nodes"]) != 1:
        return None
    [node] = target["nodes"]
    if node == source:
        return _check(point, load, metric, (kind, metric), (node_name(node),))
    package_of = {
        each: str(package.os_index) for package in topology.packages for each in package.nodes
    }
    ends = package_of.get(source, "none"), package_of.get(node, "none")
    signature = kind, metric, *ends
    return _check(point, load, metric, signature, (node_name(source), node_name(node)), remote=True)


def _check(
    point: Point,
    load: Load,
    metric: str,
    kind: tuple[str, ...],
    parts: tuple[str, ...],
    *,
    remote: bool = False,
) -> tuple[tuple[str, ...], CheckPoint]:
    """Return the signature of what a point tells, and the shortened point."""
    own = point["stopping"]
    stopping = {
        **own,
        "min_seconds": min(own["min_seconds"], _MIN_SECONDS),
        "max_seconds": min(own["max_seconds"], _MAX_SECONDS),
    }
    saved = max(own["max_seconds"] - _MAX_SECONDS, 0.0)
    shortened = {
        **point,
        "stopping": stopping,
        "definition": json_fingerprint([point["definition"], stopping]),
        "estimated_seconds": max(point["estimated_seconds"] - saved, _MIN_SECONDS),
    }
    # Paths within and between packages are alike, so one of each kind is enough.
    signature = kind if remote else (*kind, *parts)
    return signature, CheckPoint(cast(Point, shortened), load, metric, parts)


def first_medians(cells: pd.DataFrame) -> dict[PointKey, float]:
    """Return experiment and point -> median of its first cell, from a summary of cells."""
    first = cells.drop_duplicates(["experiment", "point"])
    keys = first[["experiment", "point"]].itertuples(index=False, name=None)
    return dict(zip(keys, first["median"].astype(float), strict=True))
