"""Check whether the firmware's distances (ACPI's SLIT) and packages agree with the measurements.

They are compared with the structure that is learned from the matrix alone. An entry of the SLIT is
wrong when most pairs of nodes at the same distance were measured to be in another group. The order
of the SLIT is wrong when pairs at the smaller distance were measured to be clearly worse. A SLIT
is about time: memory of another kind (HBM, CXL) has another bandwidth at any distance, so
bandwidths are only compared within one kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.cell_groups import GroupedCells
from chaosity.anomalies.cell_log_scores import (
    Position,
    ScoredCells,
    cell_positions_in_mask,
    loss_percent,
)
from chaosity.anomalies.departure_significance import (
    is_significant_and_large,
    limit_confidence_by_replicates,
)
from chaosity.anomalies.matrix_structure import (
    ENOUGH_CELLS,
    NONE,
    PACKAGES,
    EqualCellGroups,
    NodePair,
    PackageNodes,
    SlitEntries,
    are_groups_within_packages_better,
    learn_matrix_structure,
    structure_cost,
)
from chaosity.place_names import node_name
from chaosity.statistics.significance_tests import MATTERS
from chaosity.store.measurements import less_is_better
from chaosity.text_templates import write_sentences, write_text
from chaosity.units import format_quantity

# The given packages are rejected when they cost this much more than the learned structure: the
# cost of one more group and of one departing cell.
_CLEARLY_WORSE = 20.0
# Difference of two groups that a SLIT can express: its entries are in steps of a tenth of the local
# distance.
_SLIT_STEP = 0.1
# A node is the reason for wrong pairs with at least so many others.
_SEVERAL = 3
# Most pairs that a sentence names.
_MAX_NAMED = 6


@dataclass(frozen=True)
class PackagesAndSlitCheck:
    """What the comparison of the packages with the SLIT found."""

    anomalies: tuple[Anomaly, ...] = ()  # anomalies of the kind slit_mismatch
    # Structure to use instead of the given structure; None to keep the given one.
    structure: EqualCellGroups | None = None
    notes: tuple[str, ...] = ()  # observations that are not anomalies


def check_packages_and_slit(
    cells: ScoredCells[int],
    structure: EqualCellGroups,
    packages: PackageNodes | None,
    distances: SlitEntries | None,
) -> PackagesAndSlitCheck:
    """Compare the given packages and distances with the measured structure.

    Args:
        cells: the matrix.
        structure: learned with the packages and distances among the hypotheses.
        packages: nodes of each package, as the firmware reports.
        distances: (initiator, target) -> entry of the SLIT.
    """
    if not packages and not distances:
        return PackagesAndSlitCheck()
    if cells.measured_mask.mean() < ENOUGH_CELLS:
        few = "Too few cells were measured to check the packages and the SLIT."
        return PackagesAndSlitCheck(notes=(few,))
    measured = learn_matrix_structure(cells)
    anomalies: list[Anomaly] = []
    notes: list[str] = []
    instead = None
    if packages and measured.kind == PACKAGES and _differ(measured.packages or (), packages):
        # The given packages were not selected, or only with steps that contradict them.
        rejected = structure.kind != PACKAGES or not are_groups_within_packages_better(
            cells, structure
        )
        gain = structure_cost(cells, structure) - structure_cost(cells, measured)
        if rejected or gain > _CLEARLY_WORSE:
            instead = measured
            # A difference of costs is twice a difference of log likelihoods.
            confidence = 1.0 - float(np.exp(-max(gain, 0.0) / 2.0))
            anomalies.append(_wrong_packages(cells, measured.packages or (), packages, confidence))
    if distances:
        positions = cell_positions_in_mask(cells.measured_mask)
        pairs = [cells.initiator_and_target(position) for position in positions]
        differ = len({distances[pair] for pair in pairs if pair in distances}) > 1
        is_interleaved = measured.kind == NONE and differ
        missing = [pair for pair in pairs if pair not in distances]
        given = {"missing": missing, "is_interleaved": is_interleaved}
        notes += write_sentences("anomalies", "slit_notes", **given)
        if not is_interleaved:
            seen = measured if instead is not None or measured.kind != NONE else structure
            groups = GroupedCells(cells, seen.labels)
            anomalies += _wrong_entries(groups, seen, distances) or _wrong_order(groups, distances)
    return PackagesAndSlitCheck(tuple(anomalies), instead, tuple(notes))


def _differ(learned: PackageNodes, given: PackageNodes) -> bool:
    """Return whether two divisions of the same nodes into packages differ."""
    same_nodes = set(chain(*learned)) == set(chain(*given))
    return same_nodes and set(map(frozenset, learned)) != set(map(frozenset, given))


def _wrong_packages(
    cells: ScoredCells[int], learned: PackageNodes, given: PackageNodes, confidence: float
) -> Anomaly:
    """Return the anomaly of node pairs in one given package but in different measured packages."""
    together = [pair for nodes in learned for pair in combinations(sorted(nodes), 2)]
    given_pairs = [pair for nodes in given for pair in combinations(sorted(nodes), 2)]
    apart = [pair for pair in given_pairs if pair not in together]
    observed, expected = (
        float(np.median([_both_directions(cells, pair) for pair in pairs]))
        for pairs in (apart, together)
    )
    sentence = write_text("anomalies", "wrong_packages", given=given, learned=learned)
    return _mismatch(cells, observed, expected, confidence, apart, sentence, "the given packages")


def _both_directions(cells: ScoredCells[int], pair: NodePair) -> float:
    """Return the median score of the two directions between two nodes."""
    positions = [
        (cells.rows.index(source), cells.columns.index(target))
        for source, target in (pair, pair[::-1])
        if source in cells.rows and target in cells.columns
    ]
    return float(np.nanmedian([cells.log_score[position] for position in positions]))


def _mismatch(
    cells: ScoredCells[int],
    observed: float,
    expected: float,
    confidence: float,
    pairs: Sequence[NodePair],
    sentence: str,
    compared_with: str,
    worst: NodePair | None = None,
    others: Sequence[NodePair] = (),
) -> Anomaly:
    """Return the anomaly of pairs of nodes; its place is the `worst` pair (default: the first).

    The loss is what a program loses when it places memory by the firmware's table. `others` are the
    pairs that they are compared with; a cable is no reason for a difference of kinds of memory.
    """
    kinds = {_is_of_other_kind(cells, pair) for pair in (*pairs, *others)}
    initiator, target = worst or pairs[0]
    return Anomaly(
        kind=AnomalyKind.SLIT_MISMATCH,
        initiator=initiator,
        target=target,
        components=tuple(map(node_name, nodes_in_common(pairs))),
        metric=cells.metric,
        observed=cells.value_of_score(observed),
        expected=cells.value_of_score(expected),
        loss_percent=abs(loss_percent(observed - expected, cells.metric)),
        loss_percent_low=None,
        loss_percent_high=None,
        confidence=limit_confidence_by_replicates(cells, confidence),
        p_value=1.0 - confidence,
        n=int(cells.n[cells.measured_mask].min()),
        compared_with=compared_with,
        sentence=sentence,
        advice=anomaly_text.advice_text("slit" if len(kinds) == 1 else "slit_of_unlike_memory"),
        cells=tuple(pairs),
    )


def nodes_in_common(pairs: Sequence[NodePair]) -> list[int]:
    """Return the fewest nodes of which each pair has one, or all nodes if there are no such few.

    A node that changed places with another is in all pairs that are wrong. Each of the nodes must
    be in pairs with several others, else either node of a pair can be the reason.
    """
    remaining = {frozenset(pair) for pair in pairs}
    found = []
    while remaining:
        counts = Counter(chain(*remaining))
        node, number = max(counts.items(), key=lambda each: (each[1], -each[0]))
        if number < _SEVERAL:
            return sorted(set(chain(*pairs)))
        found.append(node)
        remaining = {pair for pair in remaining if node not in pair}
    return sorted(found)


def _is_of_other_kind(cells: ScoredCells[int], pair: NodePair) -> bool:
    """Return whether the target is memory without processing units, among nodes that have some."""
    return pair[1] not in cells.rows and bool(set(cells.columns) & set(cells.rows))


def _positions(
    cells: ScoredCells[int], distances: SlitEntries, *, local: bool
) -> list[dict[NodePair, Position]]:
    """Return pair -> position, for measured local (or remote) pairs with an entry in the SLIT.

    There is one mapping for all pairs, or for bandwidths one for each kind of memory.
    """
    wanted = cell_positions_in_mask(cells.measured_mask & (cells.local_mask == local))
    named = {cells.initiator_and_target(position): position for position in wanted}
    known = {pair: position for pair, position in named.items() if pair in distances}
    if less_is_better(cells.metric):
        return [known]
    return [
        {pair: at for pair, at in known.items() if _is_of_other_kind(cells, pair) == other}
        for other in (False, True)
    ]


def _wrong_entries(
    groups: GroupedCells[int], structure: EqualCellGroups, distances: SlitEntries
) -> list[Anomaly]:
    """Return an anomaly of the pairs in another group than most pairs at their distance, or none.

    The pairs that are compared are those of `_positions`.
    """
    found = (
        _wrong_entries_among(groups, structure, distances, positions)
        for positions in _positions(groups.cells, distances, local=False)
    )
    return list(filter(None, found))


def _wrong_entries_among(
    groups: GroupedCells[int],
    structure: EqualCellGroups,
    distances: SlitEntries,
    positions: Mapping[NodePair, Position],
) -> Anomaly | None:
    """Return one anomaly of all pairs that are in another group than most pairs at their distance.

    A pair counts only if its score is nearer to its own group than to the usual group at its
    distance: a slow path is not an error of the SLIT.
    """
    cells = groups.cells
    labels = {pair: int(groups.labels[position]) for pair, position in positions.items()}
    usual = _usual_groups(labels, distances)
    wrong: dict[NodePair, float] = {}  # pair -> difference from most pairs at its distance
    typical = {
        label: float(np.median(cells.log_score[groups.labels == label]))
        for label in set(usual.values())
    }
    for pair, position in positions.items():
        label = usual[distances[pair]]
        difference = abs(float(cells.log_score[position]) - typical[label])
        far_from_group = abs(groups.departures[position]) > max(MATTERS, difference / 3.0)
        if labels[pair] != label and not far_from_group and difference > _SLIT_STEP:
            wrong[pair] = difference
    if not wrong:
        return None
    worst = max(wrong, key=wrong.__getitem__)
    error = _error_of_difference(groups)
    _, confidence = is_significant_and_large(wrong[worst], error, groups.scatter, len(positions))
    distance = distances[worst]
    scores = float(cells.log_score[positions[worst]]), typical[usual[distance]]
    if len({distances[pair] for pair in positions}) == 1:
        apart = abs(loss_percent(-wrong[worst], cells.metric))
        verb = anomaly_text.verb_before_value(cells.metric)[:-1]
        loss = anomaly_text.loss_text(cells.metric, apart)
        given = {"groups": structure.names[1:], "verb": verb, "loss": loss}
        sentence = write_text("anomalies", "flat_slit", **given)
    else:
        sentence = write_text(
            "anomalies",
            "wrong_entries",
            pairs=anomaly_text.shorten_list(
                ["->".join(map(str, pair)) for pair in wrong], _MAX_NAMED
            ),
            nodes=nodes_in_common(list(wrong)),
            worst="->".join(map(str, worst)),
            distance=distance,
            measured=_value_text(cells, scores[0]),
            other=_value_text(cells, scores[1]),
            group=structure.names[labels[worst]],
        )
    compared_with = f"pairs at distance {distance:g}"
    others = [pair for pair in positions if distances[pair] == distance]
    pairs = list(wrong)
    return _mismatch(cells, *scores, confidence, pairs, sentence, compared_with, worst, others)


def _error_of_difference(groups: GroupedCells[int]) -> float:
    """Return the standard deviation of the difference of two cells."""
    return float(np.nanmedian(groups.scatter.own) * np.sqrt(2.0))


def _usual_groups(labels: Mapping[NodePair, int], distances: SlitEntries) -> dict[float, int]:
    """Return distance -> the group in which most pairs at this distance are.

    If several groups have equally many pairs, it is the group that a correct table would have at
    this distance: groups are numbered from the best to the worst, nearest pairs first.
    """
    ranked = sorted(labels.values())
    usual, start = {}, 0
    for distance in sorted({distances[pair] for pair in labels}):
        here = [label for pair, label in labels.items() if distances[pair] == distance]
        correct = ranked[start + len(here) // 2]
        ranks = {label: (here.count(label), -abs(label - correct)) for label in sorted(set(here))}
        usual[distance] = max(ranks, key=ranks.__getitem__)
        start += len(here)
    return usual


@dataclass(frozen=True)
class _DistanceLevel:
    """The pairs at a distance of the SLIT and their median score."""

    distance: float
    log_score: float
    pairs: tuple[NodePair, ...]


def _wrong_order(groups: GroupedCells[int], distances: SlitEntries) -> list[Anomaly]:
    """Return an anomaly for the two distances with the clearest wrong order: the nearer is worse.

    A node's own memory has to be nearer than all other memory.
    """
    cells = groups.cells
    orders: list[tuple[_DistanceLevel, _DistanceLevel]] = []
    own_levels: list[_DistanceLevel] = []
    by_kind = (_positions(cells, distances, local=local) for local in (False, True))
    for remote_pairs, local_pairs in zip(*by_kind, strict=True):
        remote, local = (
            _distance_levels(cells, distances, pairs) for pairs in (remote_pairs, local_pairs)
        )
        orders += combinations(remote, 2)
        orders += [
            (level, own) for level in remote for own in local if level.distance <= own.distance
        ]
        own_levels += local
    error = _error_of_difference(groups)
    wrong = []
    for near, far in orders:
        gain = far.log_score - near.log_score
        clear, confidence = is_significant_and_large(gain, error, groups.scatter, len(orders))
        if clear:
            wrong.append((gain, confidence, near, far))
    if not wrong:
        return []
    _, confidence, near, far = max(wrong, key=lambda entry: entry[0])
    sentence = write_text(
        "anomalies",
        "wrong_order",
        near=near.distance,
        near_value=_value_text(cells, near.log_score),
        far=far.distance,
        far_value=_value_text(cells, far.log_score),
        is_own=far in own_levels,
    )
    scores, compared_with = (near.log_score, far.log_score), f"pairs at distance {far.distance:g}"
    return [
        _mismatch(cells, *scores, confidence, near.pairs, sentence, compared_with, others=far.pairs)
    ]


def _distance_levels(
    cells: ScoredCells[int], distances: SlitEntries, positions: Mapping[NodePair, Position]
) -> list[_DistanceLevel]:
    """Return the pairs grouped by distance, the smallest distance first."""
    levels = []
    for distance in sorted({distances[pair] for pair in positions}):
        pairs = tuple(pair for pair in positions if distances[pair] == distance)
        typical = float(np.median([cells.log_score[positions[pair]] for pair in pairs]))
        levels.append(_DistanceLevel(distance, typical, pairs))
    return levels


def _value_text(cells: ScoredCells[int], log_score: float) -> str:
    return format_quantity(cells.metric, cells.value_of_score(log_score))
