"""Choose the points of a check, and compare values with the map, earlier checks and equal hosts.

A check measures loads of one node against one node or one drive, because their values show the
complete loss by a fault of this node or drive. If several of these loads use the same part, the
load that moves most data or waits longest is chosen, because the part limits this load more often
than a core or a cache does. So the values of the map decide which points are chosen, and not a list
of experiments.

The logarithm of a value divided by the map's median scatters for three reasons. Single measurements
scatter, as the replicates of the map show. The median of the map is not exact. The values of two
nights differ, as earlier checks show. A loss is clear if it exceeds this scatter so far that a
healthy host, checked every night, has one false alarm a year over all its values.

The mean of several nights shows a loss that the scatter of a single night hides. So the last checks
together are also compared with the first checks after the map, which a slow drift has not yet
changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from statistics import fmean, median
from types import MappingProxyType

import numpy as np
from scipy import stats

from chaosity.compare.outlier_hosts import scatter_and_median_of_other_hosts
from chaosity.design.point_expansion import json_fingerprint
from chaosity.health.change_points import variance_from_neighbour_differences
from chaosity.place_names import node_name
from chaosity.records.record_format import Load, Point, PointKey, PointStoppingRule, point_key
from chaosity.statistics.estimates import LEAST_REPORTED_DIFFERENCE, lost_share, variance_of_median
from chaosity.store.measurements import WORKING_SET, is_performance_metric, less_is_better
from chaosity.topology.topology_model import Topology

# Shortest and longest time in seconds of a load in a check, which are below the times in the map.
# In less than 0.4 s, a load has too few samples for an interval.
_MIN_SECONDS, _MAX_SECONDS = 0.4, 0.6
# Seconds for starting a load and writing its record, which are not in the estimated time of a
# point.
OVERHEAD_SECONDS = 0.25

# If the smaller of two medians in a map is at least this share of the larger median, the same part
# limits both loads.
_LEAST_RATIO_OF_EQUAL_MEDIANS = 0.97


@dataclass(frozen=True)
class CheckPoint:
    """A point of a check."""

    point: Point  # a point of the map; a chosen point has a shorter stopping rule
    load: Load  # the only load of the point
    metric: str  # the metric that is judged
    # Names of the components that limit the load: a node, a drive, or a path such as node0->node4.
    parts: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Return the expected time of one measurement in seconds."""
        return self.point["estimated_seconds"] + OVERHEAD_SECONDS

    @property
    def key(self) -> PointKey:
        """Return experiment and point."""
        return point_key(self.point)


def choose_check_points(
    points: Iterable[Point],
    medians: Mapping[PointKey, float],
    topology: Topology,
    popularity: Mapping[PointKey, int] = MappingProxyType({}),
) -> list[CheckPoint]:
    """Return a point for each part and kind of load: first local memory and drives, then paths.

    Args:
        points: the points of the map, in the order of its plan.
        medians: experiment and point -> median of the point's first metric in the map. Points
            without a median are left out.
        topology: the host's topology.
        popularity: experiment and point -> number of equal hosts that check this point. If points
            of a part have nearly equal medians, the point that most equal hosts check is chosen, or
            else the first in the plan. The best of nearly equal medians may be best only by chance,
            so that a check of its point would expect too much.
    """
    alike: dict[tuple[object, ...], list[tuple[float, CheckPoint]]] = {}
    for point in points:
        median = medians.get(point_key(point))
        check = check_point_of_single_part(point)
        if check is None or median is None or not median > 0.0:
            continue
        place: tuple[object, ...] = check.parts
        if len(check.parts) > 1:
            # All paths in a package are alike, and so are all paths between packages, so one path
            # of each kind is enough.
            ends = check.load["initiator"]["nodes"] + check.load["target"]["nodes"]
            place = tuple(map(topology.package_of_node.get, ends))
        signature = check.load["category"], check.metric, len(check.parts), *place
        alike.setdefault(signature, []).append((median, check))
    best = []
    for found in alike.values():
        least = _LEAST_RATIO_OF_EQUAL_MEDIANS * max(median for median, _ in found)
        near = [check for median, check in found if median >= least]
        best.append(max(near, key=lambda check: popularity.get(check.key, 0)))
    chosen = [replace(check, point=_with_short_stopping_rule(check.point)) for check in best]
    return sorted(chosen, key=lambda check: (len(check.parts) > 1, check.parts, check.metric))


def split_by_available_time(
    points: Iterable[CheckPoint], checked: Mapping[PointKey, str], seconds: float
) -> tuple[list[CheckPoint], list[CheckPoint]]:
    """Divide points into those that fit into the time and those for the next check.

    Points that no check has measured come first, then the points whose last check was longest ago.
    Points with the same time keep their order. `checked` contains the time of each point's last
    check.
    """
    taken, left, spent = list[CheckPoint](), list[CheckPoint](), 0.0
    for check in sorted(points, key=lambda check: checked.get(check.key, "")):
        spent += check.seconds
        (taken if spent <= seconds else left).append(check)
    return taken, left


def check_point_of_single_part(point: Point) -> CheckPoint | None:
    """Return a point with the part that limits its load; None if several parts can limit it."""
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
    nodes = dict.fromkeys(sources + target["nodes"])  # one node if the node reads its own memory
    return CheckPoint(point, load, metric, tuple(map(node_name, nodes)))


def _with_short_stopping_rule(point: Point) -> Point:
    """Return a point with the shorter stopping rule of a check, which changes its definition."""
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


# Assumed standard deviation between sessions of a healthy host, and the number of earlier
# deviations as which this assumption counts. Runs of a machine differ by 1 to 2 % from boot to
# boot.
_SESSION_DEVIATION, _SESSION_FREEDOM = 0.015, 8.0
# Smallest loss that is reported. A smaller loss is not reported even if it is clear, since a reboot
# can change values by as much.
LEAST_REPORTED_LOSS_OF_CHECK = 0.02
# Number of checks of a healthy host in which one false alarm is expected.
_CHECKS_PER_FALSE_ALARM = 365.0
# Number of last checks that are judged together, and number of first checks with which the last
# checks are compared.
RECENT, _REFERENCE = 7, 14
# Smallest confirmed loss of a single part that is a fault and not only a warning.
_LEAST_LOSS_OF_FAULT = 0.10
# If at least this share of the values of several parts is slow, the cause is common to all parts.
_LEAST_SLOW_SHARE_OF_COMMON_CAUSE = 0.7

# Fewest other hosts that show how much equal hosts differ.
_FEWEST_OTHER_HOSTS = 4

FINE, WARNING, FAULTY = 0, 1, 2
RecentValues = Mapping[PointKey, Sequence[float]]


@dataclass(frozen=True)
class MapValue:
    """What a map says about a value: median, n, and the variance of a single value's logarithm."""

    median: float
    n: int
    variance: float


@dataclass(frozen=True)
class LossEvidence:
    """A loss that one comparison shows, as a share: 0.1 is 10 % less bandwidth.

    A latency of twice the expected latency is a loss of 1.0. A value that is better than expected
    gives a negative loss.
    """

    loss: float = 0.0
    limit: float = math.inf  # smallest loss that chance does not explain
    hosts: int = 0  # number of equal hosts with which the host was compared

    @property
    def is_clear(self) -> bool:
        """Return whether the loss is large enough to be reported and not due to chance."""
        return self.loss > max(self.limit, LEAST_REPORTED_LOSS_OF_CHECK)


@dataclass(frozen=True)
class CheckedValue:
    """The values of a check at one point, the expected value, and the evidence of a loss."""

    check: CheckPoint  # the point of the check
    # The measured values in the metric's unit. A slow first value is measured again.
    values: tuple[float, ...]
    expected: float  # the expected value: the median of the map, corrected by earlier checks
    limit: float  # smallest loss of this check that counts as clear, as a share
    # Says whether other programs used the processors during the measurements.
    disturbed: bool = False
    # The loss of the last `RECENT` checks together, including this check.
    recent: LossEvidence = LossEvidence()
    # The loss of recent checks of this host against those of equal hosts.
    equals: LossEvidence = LossEvidence()
    # Says whether the host is a virtual machine and the value is of its memory. A hypervisor can
    # run two virtual processors on one core for minutes. The bandwidth is then halved, and no
    # counter of the virtual machine shows the cause.
    hypervisor_may_explain: bool = False

    @property
    def value(self) -> float:
        """Return the median of the values of this check."""
        return median(self.values)

    @property
    def tonight(self) -> LossEvidence:
        """Return the loss of this check, compared with the expected value."""
        ratio = self.value / self.expected
        is_time = less_is_better(self.check.metric)
        return LossEvidence(ratio - 1.0 if is_time else 1.0 - ratio, self.limit)

    @property
    def clear_losses(self) -> list[LossEvidence]:
        """Return the clear losses: first that of this check, then that of the recent checks.

        The loss against equal hosts comes last.
        """
        return [each for each in (self.tonight, self.recent, self.equals) if each.is_clear]

    @property
    def reported_loss(self) -> float:
        """Return the loss that a check reports: the first clear loss, or 0 if no loss is clear."""
        return self.clear_losses[0].loss if self.clear_losses else 0.0

    @property
    def is_confirmed(self) -> bool:
        """Return whether repeated measurements, undisturbed by other programs, show the loss."""
        return self.tonight.is_clear and len(self.values) > 1 and not self.disturbed

    @property
    def is_fault(self) -> bool:
        """Return whether the loss is confirmed and so large that a part must be broken."""
        is_large = self.tonight.loss >= _LEAST_LOSS_OF_FAULT
        return self.is_confirmed and is_large and not self.hypervisor_may_explain


def probability_of_false_alarm(number: int) -> float:
    """Return the false-alarm probability of one test if `number` values are tested.

    Each value has three tests: of this check, of the last checks together, and against equal hosts.
    In a year of checks, all tests of a host together give one false alarm.
    """
    return 1.0 / (_CHECKS_PER_FALSE_ALARM * 3 * number)


_normal_quantile = cache(stats.norm.isf)


class Expectation:
    """The values that a check expects at each point.

    Args:
        known: experiment and point -> what the map says about the value.
        earlier: experiment and point -> values of earlier checks, oldest first.
        in_virtual_machine: whether the host is a virtual machine.
    """

    def __init__(
        self,
        known: Mapping[PointKey, MapValue],
        earlier: Mapping[PointKey, Sequence[float]],
        *,
        in_virtual_machine: bool = False,
    ) -> None:
        self.known, self.in_virtual_machine = known, in_virtual_machine
        # Logarithms of earlier values divided by the map's median, the oldest first.
        self.logs = {
            # Logarithms are subtracted, since the ratio of values in a damaged series can underflow
            # to 0.
            key: [math.log(value) - math.log(known[key].median) for value in values]
            for key, values in earlier.items()
            if key in known
        }
        long = (logs for logs in self.logs.values() if len(logs) > 2)
        steps = [later - sooner for logs in long for sooner, later in pairwise(logs)]
        nightly = variance_from_neighbour_differences(steps)
        # The scatter between nights includes the scatter of single measurements, which is
        # subtracted.
        own = max(nightly - median(each.variance for each in known.values()), 0.0) if steps else 0.0
        self.session_variance = (_SESSION_FREEDOM * _SESSION_DEVIATION**2 + len(steps) * own) / (
            _SESSION_FREEDOM + len(steps)
        )

    def judge(
        self, check: CheckPoint, values: Sequence[float], number: int, *, disturbed: bool = False
    ) -> CheckedValue:
        """Return the judged value, with the expected value and the smallest clear loss.

        `number` is the number of all values of the check, since each value can give a false alarm.
        """
        known, logs = self.known[check.key], self.logs.get(check.key, [])
        quantile = float(_normal_quantile(probability_of_false_alarm(number)))
        nightly = self.session_variance + known.variance
        # The median of three or more earlier checks shows which value a short measurement gives.
        first = logs[:_REFERENCE]
        shift = median(first) if len(first) > 2 else 0.0
        each, size = (nightly, len(first)) if len(first) > 2 else (known.variance, known.n)
        variance = self.session_variance + known.variance / len(values)
        least = quantile * math.sqrt(variance + each * variance_of_median(size))
        judged = CheckedValue(
            check,
            tuple(values),
            known.median * math.exp(shift),
            lost_share(least, check.metric),
            disturbed,
            hypervisor_may_explain=self.in_virtual_machine and not check.load["target"]["drives"],
        )
        reference, last = logs[: 1 - RECENT][:_REFERENCE], logs[1 - RECENT :]
        if len(reference) < RECENT:
            return judged
        last = [*last, math.log(judged.value / known.median)]
        away, is_time = fmean(last) - median(reference), less_is_better(check.metric)
        variance = nightly * (1.0 / RECENT + float(variance_of_median(len(reference))))
        loss = lost_share(away if is_time else -away, check.metric)
        limit = lost_share(quantile * math.sqrt(variance), check.metric)
        return replace(judged, recent=LossEvidence(loss, limit))


def compare_with_equal_hosts(
    values: Sequence[CheckedValue], own: RecentValues, others: Sequence[RecentValues]
) -> list[CheckedValue]:
    """Return the values of a check, each with its loss against equal hosts.

    The comparison with equal hosts also finds a host whose map was already bad. Each host counts
    with the median of its recent checks: the same number of checks as the checked host has, but at
    most `RECENT`. A loss of 5 % or more is reported if the scatter of the other hosts does not
    explain the loss.

    Args:
        values: the values of this check.
        own: recent earlier values of the checked host.
        others: recent values of each equal host.
    """
    compared = [
        value
        for value in values
        if sum(value.check.key in other for other in others) >= _FEWEST_OTHER_HOSTS
    ]
    if not compared:
        return list(values)
    medians = []
    for value in compared:
        key = value.check.key
        mine = [*own.get(key, []), value.value][-RECENT:]
        theirs = (median(each[key][-len(mine) :]) if key in each else math.nan for each in others)
        medians.append([median(mine), *theirs])
    logs, metrics = np.log(medians), [value.check.metric for value in compared]
    groups = np.array([f"{v.check.metric} {len(v.check.parts)}" for v in compared])
    # The scatter of replicates in the maps is left out, because it is small beside the scatter of
    # nights.
    freedom, spread, expected = (
        each[:, 0]
        for each in scatter_and_median_of_other_hosts(logs, groups, np.zeros(len(logs)), hosts=[0])
    )
    away = np.where([less_is_better(name) for name in metrics], 1.0, -1.0) * (logs[:, 0] - expected)
    limits = stats.t.isf(probability_of_false_alarm(len(values)), freedom) * spread
    limits = np.maximum(limits, math.log1p(LEAST_REPORTED_DIFFERENCE))
    hosts = np.count_nonzero(~np.isnan(logs[:, 1:]), axis=1)
    found = {}
    for value, log, limit, number in zip(compared, away, limits, hosts, strict=True):
        loss = lost_share(log, value.check.metric)
        least = lost_share(limit, value.check.metric) if math.isfinite(limit) else math.inf
        found[value.check.key] = replace(value, equals=LossEvidence(loss, least, int(number)))
    return [found.get(value.check.key, value) for value in values]


def exit_status_of_values(values: Iterable[CheckedValue]) -> int:
    """Return FINE, WARNING or FAULTY (0, 1, 2): the exit status of a check."""
    slow = [value for value in values if value.clear_losses]
    if any(value.is_fault for value in slow):
        return FAULTY
    return WARNING if slow else FINE


@dataclass(frozen=True)
class Suspect:
    """Components that explain slow values."""

    # Names of the components. If several components are named, each of them alone can explain the
    # values. No component is named if most of the host is slow.
    parts: tuple[str, ...]
    # The slow values that the components explain, the largest loss first.
    values: tuple[CheckedValue, ...]


def suspected_parts(values: Sequence[CheckedValue]) -> list[Suspect]:
    """Return the components that explain all clear losses, the largest loss first.

    A component is suspected if all values that the component limits are slow. The component that
    explains most slow values is chosen first, and each value is explained only once. If nearly all
    values are slow, the cause is common to all parts.
    """
    slow = sorted(
        (value for value in values if value.clear_losses), key=lambda value: -value.reported_loss
    )
    parts = {part for value in values for part in value.check.parts}
    if len(parts) > 2 and len(slow) >= _LEAST_SLOW_SHARE_OF_COMMON_CAUSE * len(values):
        return [Suspect((), tuple(slow))]
    found: list[Suspect] = []
    while slow:
        explained: dict[str, list[CheckedValue]] = {}
        for value in slow:
            for part in value.check.parts:
                explained.setdefault(part, []).append(value)
        # Only values of the same metric count: a node can be slow in bandwidth and fast in latency.
        well = {
            part: sum(
                part in value.check.parts
                and not value.clear_losses
                and value.check.metric in {each.check.metric for each in own}
                for value in values
            )
            for part, own in explained.items()
        }
        best = max(
            explained,
            key=lambda part: (-well[part], len(explained[part]), explained[part][0].reported_loss),
        )
        mine = explained[best]
        # If both ends of a slow path are fast in other values, the path and not an end is
        # suspected.
        names = (best,) if well[best] == 0 else mine[0].check.parts
        mine = mine if well[best] == 0 else [mine[0]]
        found.append(Suspect(names, tuple(mine)))
        slow = [value for value in slow if not any(value is each for each in mine)]
    return sorted(found, key=lambda suspect: -suspect.values[0].reported_loss)
