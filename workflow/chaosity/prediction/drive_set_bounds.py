"""The drives of drive sets, and bounds of their bandwidth from other measured sets.

More drives never give less, so a set gives at least what each of its subsets gives, and at most
what each of its supersets gives. A set also gives at most the sum of what its parts give.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from chaosity.cpusets import parse_cpu_list
from chaosity.store.measurements import Measurements

Drives = frozenset[str]
Part = TypeVar("Part", bound=Hashable)
# Values that differ by more than this many standard errors differ by more than noise: with some
# thousand comparisons of a large server, about one in 400 exceeds this by chance.
SIGNIFICANT = 3.0
DrivesByNode = Mapping[int, frozenset[str]]


class NoisyValue(NamedTuple):
    """A bandwidth, with its standard error as a share of the bandwidth."""

    value: float
    error: float

    def significant_log_ratio_to(self, other: NoisyValue) -> float:
        """Return the logarithm of the ratio to another value; 0 if noise can explain it."""
        ratio = math.log(self.value / other.value)
        noise = SIGNIFICANT * math.hypot(self.error, other.error)
        return ratio if abs(ratio) > noise else 0.0

    @classmethod
    def total(cls, parts: Sequence[NoisyValue]) -> NoisyValue:
        """Return the sum of values with independent errors."""
        value = math.fsum(part.value for part in parts)
        return cls(value, math.hypot(*(part.value * part.error for part in parts)) / value)

    @classmethod
    def mean(cls, values: Sequence[NoisyValue]) -> NoisyValue | None:
        """Return the geometric mean of values with independent errors; None without values."""
        if not values:
            return None
        logs = math.fsum(math.log(each.value) for each in values) / len(values)
        return cls(math.exp(logs), math.hypot(*(each.error for each in values)) / len(values))


class DriveSetBounds(NamedTuple):
    """What measured sets say about another set."""

    lower: NoisyValue | None = None  # value of the best subset; None without a measured subset
    # Lowest sum of sets that together contain the drives; None without such sets.
    upper: NoisyValue | None = None
    # Value if the set is limited by nothing else than the measured sets.
    expected: NoisyValue | None = None


def bound_drive_set(
    wanted: Drives,
    measured: Mapping[Drives, NoisyValue],
    node_of: Mapping[str, int],
    raised: Mapping[Drives, NoisyValue],
) -> DriveSetBounds:
    """Return the bounds of a drive set.

    Args:
        wanted: the drives of the set. The set's own measurement, if any, is not used.
        measured: what the initiator gets from each measured set, single drives included.
        node_of: the node of each drive.
        raised: values that replace those of some measured sets where they limit other sets, see
            `values_raised_to_best_subset`.
    """
    subsets = [value for own, value in measured.items() if own < wanted]
    nodes = {
        node: frozenset(drive for drive in wanted if node_of[drive] == node)
        for node in {node_of[drive] for drive in wanted}
    }
    # Sets of one node divide the drives of the node; other sets divide the nodes.
    of_node: dict[int, dict[Drives, NoisyValue]] = {node: {} for node in nodes}
    of_nodes: dict[frozenset[int], NoisyValue] = {}
    supersets = []
    for own, value in measured.items():
        own_nodes = {node_of[drive] for drive in own}
        if own == wanted or own_nodes.isdisjoint(nodes):
            continue
        if not own < wanted:
            value = raised.get(own, value)
        if own > wanted:
            supersets.append(value)
        if len(own_nodes) == 1:
            of_node[min(own_nodes)][own] = value
        elif covered := frozenset(node for node, drives in nodes.items() if drives <= own):
            of_nodes[covered] = min(value, of_nodes.get(covered, value))
    for node, drives in nodes.items():
        if (alone := lowest_sum_of_cover(drives, of_node[node])) is not None:
            key = frozenset({node})
            of_nodes[key] = min(alone, of_nodes.get(key, alone))
    upper = lowest_sum_of_cover(frozenset(nodes), of_nodes)
    if upper is None:
        return DriveSetBounds(max(subsets, default=None))
    # The lowest of several noisy values is too low, so values that noise can explain are averaged.
    alike = [each for each in (*supersets, *subsets) if each.significant_log_ratio_to(upper) == 0.0]
    return DriveSetBounds(max(subsets, default=None), upper, NoisyValue.mean([*alike, upper]))


def values_raised_to_best_subset(measured: Mapping[Drives, NoisyValue]) -> dict[Drives, NoisyValue]:
    """Return each measured set that clearly gives less than a subset -> value of its best subset.

    Either the measurement of the set was disturbed, or its drives disturb each other. In both
    cases, the low value of the set says nothing about smaller sets.
    """
    raised: dict[Drives, NoisyValue] = {}
    for own, value in measured.items():
        best = max((other for part, other in measured.items() if part < own), default=value)
        if best.significant_log_ratio_to(value) > 0.0:
            raised[own] = best
    return raised


def lowest_sum_of_cover(
    wanted: frozenset[Part], family: Mapping[frozenset[Part], NoisyValue]
) -> NoisyValue | None:
    """Return the lowest sum of values of sets that together contain `wanted`; None without any."""
    parts: dict[frozenset[Part], NoisyValue] = {}
    for own, value in family.items():
        if part := own & wanted:
            parts[part] = min(value, parts.get(part, value))
    if not wanted <= frozenset[Part]().union(*parts):
        return None
    single = {part: parts[frozenset({part})] for part in wanted if frozenset({part}) in parts}
    kept: dict[frozenset[Part], NoisyValue] = {}
    for part in sorted(parts, key=len, reverse=True):
        value, alone = parts[part], [single[each] for each in part if each in single]
        # A set that gives what its parts give together is not a limit, nor is a part of a set with
        # a lower value.
        is_sum = (
            1 < len(part) == len(alone)
            and value.significant_log_ratio_to(NoisyValue.total(alone)) >= 0.0
        )
        if not is_sum and not any(part < other and value >= kept[other] for other in kept):
            kept[part] = value
    return _lowest_sum(wanted, kept, [], None)


def _lowest_sum(
    wanted: frozenset[Part],
    family: Mapping[frozenset[Part], NoisyValue],
    begun: list[NoisyValue],
    best: NoisyValue | None,
) -> NoisyValue | None:
    """Return the lowest sum of `begun` and a cover of `wanted`, or `best` if that is lower."""
    if begun and best is not None and NoisyValue.total(begun) >= best:
        return best
    if not wanted:
        return NoisyValue.total(begun)
    first = min(wanted, key=lambda part: sum(part in own for own in family))
    for own in sorted((own for own in family if first in own), key=lambda own: -len(own & wanted)):
        best = _lowest_sum(wanted - own, family, [*begun, family[own]], best)
    return best


def drives_by_node_of_sets(
    rows: Measurements, known: Mapping[int, Sequence[str]] | None = None
) -> dict[str, DrivesByNode]:
    """Return drive set -> node -> names of the set's drives at this node.

    Args:
        rows: rows of loads on drives.
        known: node -> names of its drives. Drives that were read only together get their names from
            this mapping, unless the measurement left out some drives of the node.

    A set is left out if its drives are unknown: drives of unknown nodes, or the first drives of a
    node of which neither the single drives nor all drives together were measured.
    """
    columns = ["target", "target_kind", "target_nodes", "drives"]
    sets = rows.rows[columns].drop_duplicates("target").sort_values("target")
    names_at = {str(node): sorted(names) for node, names in (known or {}).items()}
    at_node: dict[str, list[str]] = {}
    for name, kind, nodes, _ in sets.itertuples(index=False):
        if kind == "drive":
            at_node.setdefault(str(nodes or ""), []).append(name)
    for _, kind, nodes, number in sets.itertuples(index=False):
        if kind == "all_of_node" and len(at_node.get(str(nodes), [])) < int(number):
            names = names_at.get(str(nodes), [])
            unnamed = [f"{nodes}#{index}" for index in range(int(number))]
            at_node[str(nodes)] = names if len(names) == int(number) else unnamed
    found: dict[str, DrivesByNode] = {}
    for name, kind, nodes, number in sets.itertuples(index=False):
        first = int(number) if kind == "first_of_node" else None
        own = {
            node: frozenset([name] if kind == "drive" else at_node.get(str(node), [])[:first])
            for node in parse_cpu_list(str(nodes or ""))
        }
        if sum(map(len, own.values())) == int(number):
            found[name] = own
    return found
