"""Merge those anomalies of a host that have the same cause.

A finding explains a second finding if all cells of the second finding use the component of the
first, and lose no more than this component can cost. There is one rule for each way in which cells
use a component. For example, a rule decides whether a link is slow or only a node behind the link,
which lost a memory module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, CellNames, loss_text
from chaosity.anomalies.component_anomalies import (
    package_of_nodes,
    thread_count_and_nodes_of_name,
)
from chaosity.place_names import (
    is_spread_target,
    node_name,
    packages_of_link,
    parse_place_name,
)
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.units import format_count, metric_in_words

# Largest number of sentences on merged anomalies. Anomalies of one place by several kernels,
# metrics or experiments are merged into one anomaly.
_MOST_MERGED_SENTENCES = 3
# Ratio of a path's loss to the loss of its slow node above which the path has a separate fault.
_LOSS_RATIO_OF_OWN_FAULT = 1.5
# Share of the rate of a slow link below which a path over this link has a separate fault. A
# slightly lower rate is normal for other kernels, and for data that fit into caches to a smaller
# part.
_LEAST_SHARE_OF_LINK_RATE = 0.75
# The rate of triad counts only three quarters of the moved bytes. This limit is a little
# below three quarters, since rates have noise.
_LEAST_SHARE_COUNTED_BY_TRIAD = 0.7
# A node causes the loss of a link if the paths of the node lose as much as the link, or less by at
# most 5 percentage points.
_LARGEST_DIFFERENCE_OF_EQUAL_LOSSES_PERCENT = 5.0
# Kinds of anomalies that explain no other anomaly.
_KINDS_THAT_EXPLAIN_NOTHING = (
    AnomalyKind.REMOTE_BETTER,
    AnomalyKind.SLIT_MISMATCH,
    AnomalyKind.ADDING_DRIVES,
)


@dataclass(frozen=True)
class HostPlaces:
    """Says which places of a host lie within which other places."""

    # Number of a node, or name of an initiator or target -> package; see `packages_of_places`.
    packages: Mapping[int | str, int]
    first_units: Mapping[int, str]  # node -> its first processing unit
    node_of_l3_domain: Mapping[str, int]  # L3 domain -> node that contains it


def packages_of_places(
    rows: Measurements, package_of_node: Mapping[int, int]
) -> dict[int | str, int]:
    """Return place (number of a node, name of an initiator or target) -> its only package."""
    found: dict[int | str, int] = dict(package_of_node.items())
    for end in ("initiator", "target"):
        places = rows.rows[[end, f"{end}_nodes"]].drop_duplicates()
        for name, nodes in places.itertuples(index=False):
            found[str(name)] = package_of_nodes(nodes, package_of_node)
    return {place: package for place, package in found.items() if package >= 0}


def merge_findings_of_one_place(found: Iterable[Anomaly]) -> list[Anomaly]:
    """Return one anomaly of each kind and place, if possible without doubt and with many cells.

    One slow component can cause several anomalies. For example, one kernel shows that the memory of
    a node is slow for all nodes, and another kernel shows that it is slow for its own node.
    """
    by_place: dict[object, list[Anomaly]] = {}
    for anomaly in found:
        suspected = anomaly.kind in (AnomalyKind.SLOW_COMPONENT, AnomalyKind.SLOW_PATH)
        place = () if suspected else (anomaly.initiator, anomaly.target)
        # Slow memory of a node and slow reads of drives by this node can be two findings.
        key = anomaly.kind, anomaly.components, place, anomaly.is_on_drives
        by_place.setdefault(key, []).append(anomaly)
    merged = []
    for similar in by_place.values():
        first, *others = sorted(similar, key=_merge_rank)
        also = dict.fromkeys(
            f"Also by {_source_text(other)}: {loss_text(other.metric, other.loss_percent)}."
            for other in others
        )
        merged.append(replace(first, also=(*first.also, *list(also)[:_MOST_MERGED_SENTENCES])))
    return merged


def _merge_rank(anomaly: Anomaly) -> tuple[bool, bool, float, int, bool, float, float]:
    """Return a sort key: first anomalies without doubt, then L3 domain links, then most cells.

    Anomalies of nodes come before anomalies of parts of nodes. Of paths to drives, the largest loss
    comes first, since sets of drives show more of the loss than single drives.
    """
    by_units = isinstance(anomaly.initiator, str)
    on_path_to_drives = anomaly.kind == AnomalyKind.SLOW_PATH and anomaly.is_on_drives
    return (
        bool(anomaly.doubt),
        not _is_l3_domain_link(anomaly),
        -anomaly.loss_as_share_of_better_value if on_path_to_drives else 0.0,
        -len(anomaly.cells),
        by_units,
        -anomaly.confidence,
        -anomaly.loss_as_share_of_better_value,
    )


def _source_text(anomaly: Anomaly) -> str:
    """Return metric, kernel and experiment as text: "bandwidth (triad) of memory_bandwidth"."""
    kernel = anomaly.where.get("kernel")
    metric = metric_in_words(anomaly.metric).lower()
    return f"{metric}{f' ({kernel})' if kernel else ''} of {anomaly.where.get('experiment')}"


def without_explained_anomalies(found: Sequence[Anomaly], places: HostPlaces) -> list[Anomaly]:
    """Return the anomalies that no other anomaly explains, with sentences on what each explains."""
    causes_of = {
        number: [
            cause
            for cause, other in enumerate(found)
            if cause != number and _explains(other, anomaly, places)
        ]
        for number, anomaly in enumerate(found)
    }
    shown = [number for number, causes in causes_of.items() if not causes]
    sentences: dict[int, list[str]] = {number: [] for number in shown}
    for number, causes in causes_of.items():
        # A suspicion never explains a finding. An explained anomaly never explains another anomaly.
        usable = [
            cause
            for cause in causes
            if not causes_of[cause] and (found[number].doubt or not found[cause].doubt)
        ]
        if usable:
            best = max(usable, key=lambda cause: found[cause].confidence)
            sentences[best].append(found[number].sentence)
        else:
            sentences.setdefault(number, [])
    return [_with_explained_sentences(found[number], also) for number, also in sentences.items()]


def _with_explained_sentences(anomaly: Anomaly, sentences: Sequence[str]) -> Anomaly:
    more = len(sentences) - _MOST_MERGED_SENTENCES
    rest = [f"{format_count(more, 'more finding')} of the same cause."] if more > 0 else []
    return replace(anomaly, also=(*anomaly.also, *sentences[:_MOST_MERGED_SENTENCES], *rest))


def _explains(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether the anomaly `cause` explains the other anomaly."""
    rules = _RULES_BY_ANOMALY_KIND.get(AnomalyKind(anomaly.kind), ())
    return cause.kind not in _KINDS_THAT_EXPLAIN_NOTHING and any(
        rule(cause, anomaly, places) for rule in rules
    )


def _has_all_cells(cause: Anomaly, anomaly: Anomaly, _: HostPlaces) -> bool:
    return set(anomaly.cells) <= set(cause.cells)


def _has_a_cell_or_component(cause: Anomaly, anomaly: Anomaly, _: HostPlaces) -> bool:
    shared = set(anomaly.components) & set(cause.components)
    return bool(shared or set(anomaly.cells) & set(cause.cells))


def _limits_its_end(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether a slow component (`cause`) limits all cells of an anomaly.

    Slow memory limits all paths to this memory, and all cores that use this memory.
    """
    if cause.kind != AnomalyKind.SLOW_COMPONENT or len(anomaly.cells) >= len(cause.cells):
        return False
    if _is_l3_domain_of_all_cells(anomaly, cause, places):
        return False  # the link limits the cores, so they are not the cause
    if less_is_better(cause.metric) != less_is_better(anomaly.metric):
        return False
    ends = zip(
        _initiators_and_targets(cause.cells), _initiators_and_targets(anomaly.cells), strict=True
    )
    shared = any(len(own) == 1 and own == other for own, other in ends)
    most = _LOSS_RATIO_OF_OWN_FAULT * cause.loss_as_share_of_better_value
    return shared and anomaly.loss_as_share_of_better_value <= most


def _initiators_and_targets(cells: Sequence[CellNames]) -> list[set[str]]:
    """Return the names of all initiators of the cells, and the names of all targets."""
    return [
        {node_name(end) if isinstance(end, int) else end for end in ends}
        for ends in zip(*cells, strict=True)
    ]


def _is_one_of_its_threads(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether a slow unit (`cause`) runs a thread of an anomaly that loses no more."""
    _, nodes = thread_count_and_nodes_of_name(anomaly.components[0])
    is_thread = any(places.first_units.get(node) in cause.components for node in nodes)
    loss = cause.loss_as_share_of_better_value
    return is_thread and anomaly.loss_as_share_of_better_value <= loss


def _is_link_of_all_cells(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether all reads of an anomaly use a slow link (`cause`) and are as fast as it."""
    across = _all_reads_cross_link(cause, anomaly, places, both_ways=False)
    return across and anomaly.observed >= _LEAST_SHARE_OF_LINK_RATE * cause.observed


def _is_node_behind_link(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether paths of one node (`cause`) lose as much as a link (`anomaly`) seems to lose.

    The package of the node has several nodes. The loads that test the link have pages on all nodes
    of the package, so a slow node slows these loads too. The paths may use either direction of the
    link.
    """
    if (
        _all_reads_cross_link(cause, anomaly, places, both_ways=False)
        or not _all_reads_cross_link(anomaly, cause, places, both_ways=True)
        or cause.observed >= _LEAST_SHARE_OF_LINK_RATE * anomaly.observed
    ):
        return False
    of_one_node = any(
        isinstance(side[0], int) and len(set(side)) == 1 and _has_several_nodes(side[0], places)
        for side in zip(*cause.cells, strict=True)
    )
    return (
        of_one_node
        and cause.loss_percent >= anomaly.loss_percent - _LARGEST_DIFFERENCE_OF_EQUAL_LOSSES_PERCENT
    )


def _all_reads_cross_link(
    link: Anomaly, anomaly: Anomaly, places: HostPlaces, *, both_ways: bool
) -> bool:
    """Return whether all reads of an anomaly use the slow direction of a link (`link`).

    With `both_ways`, reads that use the opposite direction of the link count too.
    """
    slow: list[tuple[int | None, ...]] = list(filter(None, map(packages_of_link, link.components)))
    slow += [pair[::-1] for pair in slow if both_ways]
    package = places.packages.get
    used = [(package(target), package(source)) for source, target in anomaly.cells]
    return bool(used) and anomaly.metric == link.metric and all(each in slow for each in used)


def _has_several_nodes(node: int, places: HostPlaces) -> bool:
    """Return whether the package of a node has further nodes."""
    nodes = [package for place, package in places.packages.items() if isinstance(place, int)]
    return nodes.count(places.packages[node]) > 1


def _is_l3_domain_of_all_cells(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether all accesses of an anomaly use the slow link of an L3 domain (`cause`).

    The accesses must be as fast as the link, and must come from cores of the domain or of its node.
    """
    if not _is_l3_domain_link(cause):
        return False
    [domain], initiators = cause.components, _initiators_and_targets(anomaly.cells)[0]
    nodes = {_node_of_initiator(name, places) for name in initiators}
    same = initiators == {domain} or nodes == {places.node_of_l3_domain.get(domain, -1)}
    enough = anomaly.observed >= _LEAST_SHARE_COUNTED_BY_TRIAD * cause.observed
    return same and anomaly.metric == cause.metric and enough


def _is_l3_domain_behind_link(cause: Anomaly, anomaly: Anomaly, places: HostPlaces) -> bool:
    """Return whether the slow link of an L3 domain (`cause`) also slows the package as a whole.

    Only packages with more than two L3 domains are tested, so the package loses less than half as
    much as the domain.
    """
    if not _is_l3_domain_link(cause):
        return False
    [domain], links = (
        _initiators_and_targets(cause.cells)[0],
        map(packages_of_link, anomaly.components),
    )
    ends = {package for link in links for package in link or ()}
    loss = anomaly.loss_as_share_of_better_value
    return places.packages.get(domain) in ends and loss <= cause.loss_as_share_of_better_value / 2


def _is_memory_of_its_buffers(cause: Anomaly, anomaly: Anomaly, _: HostPlaces) -> bool:
    """Return whether the buffers of slow drive reads (`anomaly`) lie in slow memory (`cause`)."""
    if cause.kind != AnomalyKind.SLOW_COMPONENT or cause.is_on_drives or not anomaly.is_on_drives:
        return False
    memory, readers = (
        _initiators_and_targets(cause.cells)[1],
        _initiators_and_targets(anomaly.cells)[0],
    )
    if anomaly.kind == AnomalyKind.REMOTE_BETTER:
        # The last cell has the slow reader.
        readers = _initiators_and_targets(anomaly.cells[-1:])[0]
    loses_more = cause.loss_as_share_of_better_value >= anomaly.loss_as_share_of_better_value
    return len(memory) == 1 and memory == readers and loses_more


def _is_shared_by_its_drive(cause: Anomaly, anomaly: Anomaly, _: HostPlaces) -> bool:
    """Return whether a drive alone is as fast as a slow set (`cause`) that has the drive."""
    among = set(anomaly.components) < set(cause.components) and anomaly.is_on_drives
    same_metric = anomaly.metric == cause.metric and cause.is_on_drives
    return among and same_metric and anomaly.observed >= _LEAST_SHARE_OF_LINK_RATE * cause.observed


def _is_l3_domain_link(anomaly: Anomaly) -> bool:
    """Return whether the anomaly is an L3 domain that reads slowly from several nodes at once."""
    return any(is_spread_target(str(target)) for _, target in anomaly.cells)


def _node_of_initiator(name: str, places: HostPlaces) -> int | None:
    """Return the node of an initiator that is a node, some threads of a node, or its first unit."""
    place = parse_place_name(name)
    if place is None:
        return None
    nodes = place.nodes_in_name or thread_count_and_nodes_of_name(name)[1]
    nodes = nodes or [node for node, unit in places.first_units.items() if unit == name]
    return nodes[0] if len(nodes) == 1 else None


_ExplanationRule = Callable[[Anomaly, Anomaly, HostPlaces], bool]
_RULES_FOR_SLOW_PARTS: tuple[_ExplanationRule, ...] = (
    _limits_its_end,
    _is_one_of_its_threads,
    _is_link_of_all_cells,
    _is_node_behind_link,
    _is_l3_domain_of_all_cells,
    _is_l3_domain_behind_link,
    _is_memory_of_its_buffers,
    _is_shared_by_its_drive,
)
# Kind of an anomaly -> rules by which another anomaly may explain an anomaly of this kind.
_RULES_BY_ANOMALY_KIND: Mapping[AnomalyKind, tuple[_ExplanationRule, ...]] = {
    AnomalyKind.SLOW_COMPONENT: _RULES_FOR_SLOW_PARTS,
    AnomalyKind.SLOW_PATH: _RULES_FOR_SLOW_PARTS,
    AnomalyKind.CONTENTION: (_is_one_of_its_threads,),
    AnomalyKind.INVERSION: (_is_one_of_its_threads,),
    AnomalyKind.ADDING_DRIVES: (_has_all_cells,),
    AnomalyKind.REMOTE_BETTER: (_has_a_cell_or_component, _is_memory_of_its_buffers),
}
