"""Check whether the packages and distances (SLIT) of the firmware agree with measurements.

The distances and packages are compared with the structure that is learned from the matrix alone.
Each distance of the SLIT stands for the group of cells that has most pairs of nodes with this
distance. The group of a distance is never better than the group of a smaller distance. If a pair of
nodes is in another group than the group of its distance, the SLIT entry of the pair is wrong. The
wrong entries can be one pair, all pairs of a distance that is out of order, or the far pairs of a
SLIT with only one distance. The distances of a SLIT are relative latencies. Memory of another kind
(HBM, CXL) has another bandwidth at any distance, so bandwidths are compared only within one kind of
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind, advice_text, shorten_list
from chaosity.anomalies.cell_groups import GroupedCells
from chaosity.anomalies.cell_log_scores import (
    Position,
    ScoredCells,
    cell_positions_in_mask,
)
from chaosity.anomalies.matrix_structure import (
    LEAST_SHARE_OF_MEASURED_CELLS,
    NONE,
    PACKAGES,
    EqualCellGroups,
    NodePair,
    PackageNodes,
    SlitEntries,
    are_values_better_within_packages,
    learn_matrix_structure,
    structure_cost,
)
from chaosity.place_names import node_name
from chaosity.statistics.estimates import LEAST_REPORTED_DIFFERENCE, lost_share
from chaosity.store.measurements import less_is_better
from chaosity.text_templates import sentences_of_macro, text_of_macro
from chaosity.units import format_quantity

# Difference of costs at which the given packages are rejected in favour of the learned structure:
# about the cost of one more group and one departing cell.
_COST_OF_REJECTED_PACKAGES = 20.0
# Smallest difference between the scores of two groups that a SLIT can express, since SLIT entries
# have steps of a tenth of the local distance.
_LEAST_SCORE_DIFFERENCE_IN_SLIT = 0.1
# Least number of other nodes with which a node has wrong pairs if the node is the cause.
_FEWEST_WRONG_PAIRS_OF_CAUSE = 3
# Largest number of pairs that a sentence names.
_MOST_NAMED_PAIRS = 6


@dataclass(frozen=True)
class PackagesAndSlitCheck:
    """The result of the comparison of the firmware's packages and SLIT with the measurements."""

    anomalies: tuple[Anomaly, ...] = ()  # anomalies of the kind slit_mismatch
    # Structure that replaces the given structure, or None if the given structure is kept.
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
        structure: structure that was learned from the matrix, the packages and the distances.
        packages: nodes of each package that the firmware reports.
        distances: (initiator, target) -> entry of the SLIT.
    """
    if not packages and not distances:
        return PackagesAndSlitCheck()
    if cells.measured_mask.mean() < LEAST_SHARE_OF_MEASURED_CELLS:
        few = "Too few cells were measured to check the packages and the SLIT."
        return PackagesAndSlitCheck(notes=(few,))
    measured = learn_matrix_structure(cells)
    anomalies: list[Anomaly] = []
    notes: list[str] = []
    instead = None
    if (
        packages
        and measured.kind == PACKAGES
        and _are_packages_different(measured.packages or (), packages)
    ):
        # The packages are rejected if the structure has no packages, or if the measured values
        # contradict the packages.
        rejected = structure.kind != PACKAGES or not are_values_better_within_packages(
            cells, structure
        )
        gain = structure_cost(cells, structure) - structure_cost(cells, measured)
        if rejected or gain > _COST_OF_REJECTED_PACKAGES:
            instead = measured
            # The difference of two costs is twice the difference of the log likelihoods.
            confidence = 1.0 - float(np.exp(-max(gain, 0.0) / 2.0))
            anomalies.append(
                _anomaly_of_wrong_packages(cells, measured.packages or (), packages, confidence)
            )
    if distances:
        positions = cell_positions_in_mask(cells.measured_mask)
        pairs = [cells.initiator_and_target(position) for position in positions]
        differ = len({distances[pair] for pair in pairs if pair in distances}) > 1
        is_interleaved = measured.kind == NONE and differ
        missing = [pair for pair in pairs if pair not in distances]
        given = {"missing": missing, "is_interleaved": is_interleaved}
        notes += sentences_of_macro("anomalies", "slit_notes", **given)
        if not is_interleaved:
            seen = measured if instead is not None or measured.kind != NONE else structure
            groups = GroupedCells(cells, seen.labels)
            found = (
                _anomalies_of_wrong_entries(groups, distances, own)
                for own in _pairs_to_compare(cells, distances)
            )
            anomalies += filter(None, found)
    return PackagesAndSlitCheck(tuple(anomalies), instead, tuple(notes))


def _are_packages_different(learned: PackageNodes, given: PackageNodes) -> bool:
    """Return whether two divisions of the same nodes into packages differ."""
    same_nodes = set(chain(*learned)) == set(chain(*given))
    return same_nodes and set(map(frozenset, learned)) != set(map(frozenset, given))


def _anomaly_of_wrong_packages(
    cells: ScoredCells[int], learned: PackageNodes, given: PackageNodes, confidence: float
) -> Anomaly:
    """Return the anomaly of pairs of nodes that share a given package but no measured package."""
    together = [pair for nodes in learned for pair in combinations(sorted(nodes), 2)]
    given_pairs = [pair for nodes in given for pair in combinations(sorted(nodes), 2)]
    apart = [pair for pair in given_pairs if pair not in together]
    scores = (
        float(np.median([_median_score_of_both_directions(cells, pair) for pair in pairs]))
        for pairs in (apart, together)
    )
    sentence = text_of_macro("anomalies", "wrong_packages", given=given, learned=learned)
    return _make_slit_mismatch(cells, scores, confidence, apart, sentence, "the given packages")


def _median_score_of_both_directions(cells: ScoredCells[int], pair: NodePair) -> float:
    """Return the median score of the two directions between two nodes."""
    mask = cells.mask_of_path(*pair) | cells.mask_of_path(*pair[::-1])
    return float(np.nanmedian(cells.log_score[mask]))


def _make_slit_mismatch(
    cells: ScoredCells[int],
    scores: Iterable[float],
    confidence: float,
    pairs: Sequence[NodePair],
    sentence: str,
    compared_with: str,
    others: Sequence[NodePair] = (),
) -> Anomaly:
    """Return a SLIT mismatch of pairs of nodes; its initiator and target are the first pair.

    The loss is the difference of the `scores`, which a program loses if it places memory by the
    firmware's table. `others` has the pairs with which the `pairs` are compared. If only some pairs
    access memory of nodes without processing units, the advice says so and does not suggest a wrong
    cable.
    """
    kinds = {_is_pair_with_memory_only_node(cells, pair) for pair in (*pairs, *others)}
    worse, better = sorted(scores)
    return Anomaly(
        kind=AnomalyKind.SLIT_MISMATCH,
        initiator=pairs[0][0],
        target=pairs[0][1],
        components=tuple(map(node_name, few_nodes_of_all_pairs(pairs))),
        metric=cells.metric,
        observed=cells.value_of_score(worse),
        expected=cells.value_of_score(better),
        loss_percent=100.0 * lost_share(better - worse, cells.metric),
        loss_percent_low=None,
        loss_percent_high=None,
        confidence=cells.limit_confidence(confidence),
        p_value=1.0 - confidence,
        n=int(cells.n[cells.measured_mask].min()),
        compared_with=compared_with,
        sentence=sentence,
        advice=advice_text("slit" if len(kinds) == 1 else "slit_of_unlike_memory"),
        cells=tuple(pairs),
    )


def few_nodes_of_all_pairs(pairs: Sequence[NodePair]) -> list[int]:
    """Return a few nodes such that each pair has one of them; all nodes if any can be the cause.

    If two nodes are interchanged, each wrong pair contains one of them. Each returned node must be
    in at least three pairs. If no node is, either node of a pair can be the cause.
    """
    remaining = {frozenset(pair) for pair in pairs}
    found = []
    while remaining:
        counts = Counter(chain(*remaining))
        node, number = max(counts.items(), key=lambda each: (each[1], -each[0]))
        if number < _FEWEST_WRONG_PAIRS_OF_CAUSE:
            return sorted(set(chain(*pairs)))
        found.append(node)
        remaining = {pair for pair in remaining if node not in pair}
    return sorted(found)


def _is_pair_with_memory_only_node(cells: ScoredCells[int], pair: NodePair) -> bool:
    """Return whether the target of a pair lacks processing units, but other targets have them."""
    return pair[1] not in cells.rows and bool(set(cells.columns) & set(cells.rows))


def _pairs_to_compare(
    cells: ScoredCells[int], distances: SlitEntries
) -> list[dict[NodePair, Position]]:
    """Return dictionaries pair -> position of its cell, for measured pairs with a SLIT entry.

    Only pairs in one dictionary are compared with each other.
    """
    positions = cell_positions_in_mask(cells.measured_mask)
    named = {cells.initiator_and_target(position): position for position in positions}
    known = {pair: position for pair, position in named.items() if pair in distances}
    if less_is_better(cells.metric):
        return [known]
    return [
        {
            pair: at
            for pair, at in known.items()
            if _is_pair_with_memory_only_node(cells, pair) == other
        }
        for other in (False, True)
    ]


def _anomalies_of_wrong_entries(
    groups: GroupedCells[int], distances: SlitEntries, positions: Mapping[NodePair, Position]
) -> Anomaly | None:
    """Return one anomaly for all pairs that are in another group than that of their distance.

    A pair counts only if its score is nearer to the typical score of its measured group than to
    that of the group of its distance, since a slow path is not an error of the SLIT.
    """
    cells = groups.cells
    positions = {pair: at for pair, at in positions.items() if groups.labels[at] >= 0}
    labels = {pair: int(groups.labels[position]) for pair, position in positions.items()}
    typical = {
        label: float(np.median(cells.log_score[groups.labels == label]))
        for label in set(labels.values())
    }
    group_of = _group_of_each_distance(labels, distances, typical)
    wrong: dict[NodePair, float] = {}  # pair -> difference from its distance's group
    for pair, position in positions.items():
        difference = abs(float(cells.log_score[position]) - typical[group_of[distances[pair]]])
        far_from_group = abs(groups.departures[position]) > max(
            LEAST_REPORTED_DIFFERENCE, difference / 3.0
        )
        if difference > _LEAST_SCORE_DIFFERENCE_IN_SLIT and not far_from_group:
            wrong[pair] = difference
    if not wrong:
        return None
    pairs = sorted(wrong, key=lambda pair: -wrong[pair])
    worst, distance = pairs[0], distances[pairs[0]]
    of_group = [pair for pair in positions if labels[pair] == group_of[distance]]
    others = [pair for pair in of_group if distances[pair] == distance] or of_group
    scores = float(cells.log_score[positions[worst]]), typical[group_of[distance]]
    error = float(np.nanmedian(groups.scatter.own) * np.sqrt(2.0))
    confidence = groups.scatter.confidence_in_loss(wrong[worst], error, len(positions))
    measured, other = (
        format_quantity(cells.metric, cells.value_of_score(score)) for score in scores
    )
    names = ["->".join(map(str, pair)) for pair in pairs]
    sentence = text_of_macro(
        "anomalies",
        "wrong_entries",
        pairs=shorten_list(names, _MOST_NAMED_PAIRS),
        nodes=few_nodes_of_all_pairs(pairs),
        distance=distance,
        measured=measured,
        others="->".join(map(str, others[0])),
        other_distance=distances[others[0]],
        other=other,
    )
    compared_with = f"pairs at distance {distances[others[0]]:g}"
    return _make_slit_mismatch(cells, scores, confidence, pairs, sentence, compared_with, others)


def _group_of_each_distance(
    labels: Mapping[NodePair, int], distances: SlitEntries, typical: Mapping[int, float]
) -> dict[float, int]:
    """Return distance -> group, so that as few pairs as possible are in another group.

    The group of a larger distance is never better than the group of a smaller distance. Groups
    whose difference does not matter count as one group. `typical` has the typical score of each
    group.
    """
    of_distance: dict[float, Counter[int]] = {}
    for pair, label in labels.items():
        of_distance.setdefault(distances[pair], Counter())[label] += 1
    usual = {
        label
        for counts in of_distance.values()
        for label, number in counts.items()
        if number == max(counts.values())
    }
    # Group -> number of right pairs, number of different groups, and groups chosen so far. Of two
    # choices with equally many right pairs, the choice with more groups is taken.
    best: dict[int, tuple[int, int, tuple[int, ...]]] = dict.fromkeys(usual, (0, 0, ()))
    for _, counts in sorted(of_distance.items()):
        right = {
            group: sum(
                number
                for label, number in counts.items()
                if abs(typical[label] - typical[group]) <= LEAST_REPORTED_DIFFERENCE
            )
            for group in usual
        }
        best = {
            group: max(
                (total + right[group], len({*before, group}), (*before, group))
                for last, (total, _, before) in best.items()
                if typical[last] >= typical[group]
            )
            for group in usual
        }
    return dict(zip(sorted(of_distance), max(best.values(), default=(0, 0, ()))[-1], strict=True))
