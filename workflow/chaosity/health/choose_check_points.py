"""Choose the points of a check from a host's map: points that lose as much as a slow part loses.

A load of one node against one node or one drive shows the whole loss by a fault of this node or
drive. Of two of these loads, the one that moves more data, or waits longer, is limited by the part
more often than by a core or a cache. So the values of the map decide which points are chosen, and
not a list of experiments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from chaosity.design.point_expansion import json_fingerprint
from chaosity.place_names import node_name
from chaosity.records.record_format import Load, Point, PointStoppingRule
from chaosity.store.measurements import WORKING_SET, is_performance_metric
from chaosity.topology.topology_model import Topology

# A check measures shorter than the map. Below 0.4 s, a load has too few samples for an interval.
_MIN_SECONDS, _MAX_SECONDS = 0.4, 0.6
# Seconds for starting a load and writing its record, which the estimate of the point lacks.
OVERHEAD_SECONDS = 0.25

# If two medians of a map have at least this ratio, the same part limits both loads.
_NEARLY_EQUAL = 0.97

PointKey = tuple[str, str]


@dataclass(frozen=True)
class CheckPoint:
    """A point of a check."""

    point: Point  # the point of the map; of those that are chosen, with a shorter stopping rule
    load: Load  # its only load
    metric: str  # the metric that is judged
    # The components that limit it: a node, a drive, or a path such as node0->node4.
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
    points: Iterable[Point],
    medians: Mapping[PointKey, float],
    topology: Topology,
    popularity: Mapping[PointKey, int] = MappingProxyType({}),
) -> list[CheckPoint]:
    """Return a point for each part and kind of load: local ones and drives first, then paths.

    Args:
        points: the points of the map, in the order of its plan.
        medians: experiment and point -> median of its first metric in the map; points without a
            median are left out.
        topology: the host's topology.
        popularity: experiment and point -> in the checks of how many equal hosts it is. Of points
            with nearly equal medians, the one that most equal hosts check is taken, or else the
            first of the plan. The best of nearly equal medians would be the luckiest one, and the
            check would expect too much.
    """
    alike: dict[tuple[object, ...], list[tuple[float, CheckPoint]]] = {}
    for point in points:
        median = medians.get((point["experiment"], point["point"]))
        check = check_point_of_single_part(point)
        if check is None or median is None or not median > 0.0:
            continue
        place: tuple[object, ...] = check.parts
        if len(check.parts) > 1:
            # Paths within and between packages are alike, so one of each kind is enough.
            ends = check.load["initiator"]["nodes"] + check.load["target"]["nodes"]
            place = tuple(map(topology.package_of_node.get, ends))
        signature = check.load["category"], check.metric, len(check.parts), *place
        alike.setdefault(signature, []).append((median, check))
    best = []
    for found in alike.values():
        least = _NEARLY_EQUAL * max(median for median, _ in found)
        near = [check for median, check in found if median >= least]
        best.append(max(near, key=lambda check: popularity.get(check.key, 0)))
    chosen = [replace(check, point=_shortened(check.point)) for check in best]
    return sorted(chosen, key=lambda check: (len(check.parts) > 1, check.parts, check.metric))


def split_by_available_time(
    points: Iterable[CheckPoint], checked: Mapping[PointKey, str], seconds: float
) -> tuple[list[CheckPoint], list[CheckPoint]]:
    """Divide points into those that fit into a time and those left for the next check.

    Points that no check has measured come first, then those whose last check is longest ago, each
    in the given order. `checked` has the time of each point's last check.
    """
    taken, left, spent = list[CheckPoint](), list[CheckPoint](), 0.0
    for check in sorted(points, key=lambda check: checked.get(check.key, "")):
        spent += check.seconds
        (taken if spent <= seconds else left).append(check)
    return taken, left


def check_point_of_single_part(point: Point) -> CheckPoint | None:
    """Return the point with the part that limits its load; None if several parts can limit it."""
    [load, *others] = point["loads"]
    target, sources = load["target"], load["initiator"]["nodes"]
    metric = next((m for m in load["metrics"] if is_performance_metric(m)), None)
    several = others or len(sources) != 1 or "by_node" in target or "device" in target
    in_caches = {WORKING_SET, "responder"} & set(load.get("levels", {}))
    if metric is None or several or in_caches:
        return None
    if target["drives"]:
        [drive, *more] = target["drives"]
        if more or drive["node"] not in (None, *sources):
            return None
        return CheckPoint(point, load, metric, (drive["component"],))
    if len(target["nodes"]) != 1:
        return None
    nodes = dict.fromkeys(sources + target["nodes"])  # one node if it reads its own memory
    return CheckPoint(point, load, metric, tuple(map(node_name, nodes)))


def _shortened(point: Point) -> Point:
    """Return the point with the stopping rule of a check, and so with another definition."""
    own = point["stopping"]
    stopping: PointStoppingRule = {
        **own,
        "min_seconds": min(own["min_seconds"], _MIN_SECONDS),
        "max_seconds": min(own["max_seconds"], _MAX_SECONDS),
    }
    saved = own["max_seconds"] - stopping["max_seconds"]
    return {
        **point,
        "stopping": stopping,
        "definition": json_fingerprint([point["definition"], stopping]),
        "estimated_seconds": max(point["estimated_seconds"] - saved, _MIN_SECONDS),
    }
