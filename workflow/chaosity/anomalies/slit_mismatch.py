"""Whether the firmware's distances (ACPI's SLIT) and packages agree with the measurements.

The structure that the matrix shows without these claims is compared with them. An entry of the SLIT
is wrong when it puts a pair of nodes among pairs that were measured to be in another group. The
order of the SLIT is wrong when pairs at the smaller distance were measured to be clearly worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_results import SLIT_MISMATCH, Anomaly, Loss
from chaosity.anomalies.cell_groups import departures_from_groups
from chaosity.anomalies.departure_significance import (
    MATTERS,
    Scatter,
    estimate_scatter,
    is_significant_and_large,
    limit_confidence,
)
from chaosity.anomalies.matrix_structure import (
    ENOUGH_CELLS,
    NONE,
    PACKAGES,
    NodePair,
    PackageNodes,
    SlitEntries,
    Structure,
    learn_structure,
    nearer_within_packages,
    structure_cost,
)
from chaosity.anomalies.scored_cells import Position, ScoredCells, loss_percent, positions_of
from chaosity.place_names import node_name
from chaosity.units import format_quantity, join_with_and

# The given packages are rejected when they cost this much more than the learned structure: the
# cost of one more group and of one departing cell.
_CLEARLY_WORSE = 20.0
# Difference of two groups that a SLIT can express: its entries are in steps of a tenth of the local
# distance.
_SLIT_STEP = 0.1
# Most pairs that a sentence names.
_MAX_NAMED = 6
_ADVICE = (
    "Do not place threads and memory by this table (the kernel's reclaim and balancing do). "
    "Update the firmware or report the error, look for swapped cables or modules, and use measured "
    "values (chaosity export)."
)


@dataclass(frozen=True)
class ClaimCheck:
    """Result of the check of the firmware's claims.

    Attributes:
        anomalies: of kind slit_mismatch.
        structure: structure to use instead of the given one; None to keep it.
        notes: observations that are not anomalies.
    """

    anomalies: tuple[Anomaly, ...] = ()
    structure: Structure | None = None
    notes: tuple[str, ...] = ()


def check_firmware_claims(
    cells: ScoredCells[int],
    structure: Structure,
    packages: PackageNodes | None,
    distances: SlitEntries | None,
) -> ClaimCheck:
    """Compare the given packages and distances with the measured structure.

    Args:
        cells: the matrix.
        structure: as learned with these claims among the hypotheses.
        packages: nodes of each package, as given.
        distances: entries of the SLIT, as given.
    """
    if not packages and not distances:
        return ClaimCheck()
    if cells.measured_mask.mean() < ENOUGH_CELLS:
        few = "Too few cells were measured to check the packages and the SLIT."
        return ClaimCheck(notes=(few,))
    measured = learn_structure(cells)
    anomalies: list[Anomaly] = []
    notes: list[str] = []
    instead = None
    if packages and measured.kind == PACKAGES and _differ(measured.packages, packages):
        # The given packages were not selected, or only with steps that contradict them.
        rejected = structure.kind != PACKAGES or not nearer_within_packages(cells, structure)
        gain = structure_cost(cells, structure) - structure_cost(cells, measured)
        if rejected or gain > _CLEARLY_WORSE:
            instead = measured
            anomalies.append(_wrong_packages(cells, measured, packages))
    if distances:
        seen = measured if instead is not None or measured.kind != NONE else structure
        pairs = [cells.names_at(position) for position in positions_of(cells.measured_mask)]
        missing = [pair for pair in pairs if pair not in distances]
        if missing:
            first = f"{missing[0][0]}->{missing[0][1]}"
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            notes.append(f"The SLIT has no entry for {first}{more}.")
        if measured.kind == NONE and len({distances[p] for p in pairs if p in distances}) > 1:
            notes.append(
                "The SLIT distinguishes nodes that were measured to be equal, as when memory is "
                "interleaved below the operating system."
            )
        else:
            anomalies += _find_slit_mismatches(cells, seen, distances)
    return ClaimCheck(tuple(anomalies), instead, tuple(notes))


def _differ(learned: PackageNodes | None, given: PackageNodes) -> bool:
    """Whether the same nodes are in other packages."""
    learned = learned or ()
    if {node for nodes in learned for node in nodes} != {n for nodes in given for n in nodes}:
        return False
    return {frozenset(nodes) for nodes in learned} != {frozenset(nodes) for nodes in given}


def _wrong_packages(
    cells: ScoredCells[int], measured: Structure, packages: PackageNodes
) -> Anomaly:
    """Pairs of nodes in a given package that were measured to be in different packages."""
    learned = measured.packages or ()
    package = {node: index for index, nodes in enumerate(learned) for node in nodes}
    given_pairs = [pair for nodes in packages for pair in combinations(sorted(nodes), 2)]
    apart = [pair for pair in given_pairs if package.get(pair[0]) != package.get(pair[1])]
    together = [pair for nodes in learned for pair in combinations(sorted(nodes), 2)]
    score = {pair: _both_directions(cells, pair) for pair in [*apart, *together]}
    texts = [" | ".join(",".join(map(str, nodes)) for nodes in p) for p in (packages, learned)]
    sentence = (
        f"The given packages are {texts[0]}, but by the measurement the packages are {texts[1]}."
    )
    observed, expected = (
        float(np.median([score[pair] for pair in pairs])) for pairs in (apart, together)
    )
    given = "the given packages"
    return _mismatch(cells, apart[0], observed, expected, 0.999, apart, sentence, given)


def _both_directions(cells: ScoredCells[int], pair: NodePair) -> float:
    """Median score of both directions between two nodes."""
    positions = [
        (cells.rows.index(source), cells.columns.index(target))
        for source, target in (pair, pair[::-1])
        if source in cells.rows and target in cells.columns
    ]
    return float(np.nanmedian([cells.log_score[position] for position in positions]))


def _mismatch(
    cells: ScoredCells[int],
    pair: NodePair,
    observed: float,
    expected: float,
    confidence: float,
    pairs: Sequence[NodePair],
    sentence: str,
    compared_with: str,
) -> Anomaly:
    """An anomaly of the firmware's claims.

    The loss is what a program pays that places memory by the firmware's table.
    """
    nodes = sorted({node for both in pairs for node in both})
    loss = Loss(
        metric=cells.metric,
        observed=cells.value_of_score(observed),
        expected=cells.value_of_score(expected),
        loss_percent=abs(loss_percent(observed - expected, cells.metric)),
        loss_low=None,
        loss_high=None,
        confidence=limit_confidence(cells, confidence),
        n=int(cells.n[cells.measured_mask].min()),
    )
    return Anomaly.from_loss(
        loss,
        SLIT_MISMATCH,
        tuple(map(node_name, nodes)),
        tuple(pairs),
        sentence=sentence,
        advice=_ADVICE,
        compared_with=compared_with,
        seen_at=pair,
    )


def _find_slit_mismatches(
    cells: ScoredCells[int], structure: Structure, distances: SlitEntries
) -> list[Anomaly]:
    """Wrong entries of the SLIT; if there are none, its order where that is wrong.

    Args:
        cells: the matrix.
        structure: as measured.
        distances: entries of the SLIT.
    """
    return _wrong_entries(cells, structure, distances) or _wrong_order(cells, structure, distances)


def _scatter(cells: ScoredCells[int], structure: Structure) -> Scatter:
    departures = departures_from_groups(cells, structure.labels)
    return estimate_scatter(cells, departures, structure.labels)


def _positions(
    cells: ScoredCells[int], distances: SlitEntries, *, local: bool
) -> dict[NodePair, Position]:
    """Positions of the local, or of the remote, measured pairs with an entry in the SLIT."""
    return {
        (source, target): (i, j)
        for i, source in enumerate(cells.rows)
        for j, target in enumerate(cells.columns)
        if (source == target) == local
        and cells.measured_mask[i, j]
        and (source, target) in distances
    }


@dataclass(frozen=True)
class _WrongPair:
    """A pair in another group than most pairs at its distance: its score and theirs."""

    pair: NodePair
    observed: float
    expected: float

    @property
    def difference(self) -> float:
        """Absolute difference of the scores."""
        return abs(self.observed - self.expected)


def _wrong_entries(
    cells: ScoredCells[int], structure: Structure, distances: SlitEntries
) -> list[Anomaly]:
    """Pairs in another group than most pairs at their distance, as one anomaly.

    A pair counts only when it was measured to be nearer to its own group than to the usual group of
    its distance: a slow path is not an error of the SLIT.
    """
    positions = _positions(cells, distances, local=False)
    departures = departures_from_groups(cells, structure.labels)
    labels = {pair: int(structure.labels[position]) for pair, position in positions.items()}
    usual = _usual_groups(labels, distances)
    wrong: list[_WrongPair] = []
    for pair, position in positions.items():
        label = usual[distances[pair]]
        expected = float(np.median(cells.log_score[structure.labels == label]))
        entry = _WrongPair(pair, float(cells.log_score[position]), expected)
        far_from_group = abs(departures[position]) > max(MATTERS, entry.difference / 3.0)
        if labels[pair] != label and not far_from_group and entry.difference > _SLIT_STEP:
            wrong.append(entry)
    if not wrong:
        return []
    worst = max(wrong, key=lambda entry: entry.difference)
    scatter = _scatter(cells, structure)
    error = float(np.nanmedian(scatter.own)) * np.sqrt(2.0)
    _, confidence = is_significant_and_large(worst.difference, error, scatter, len(positions))
    pairs = [entry.pair for entry in wrong]
    distance = distances[worst.pair]
    if len({distances[pair] for pair in positions}) == 1:
        sentence = _flat_table_text(cells, structure, worst)
    else:
        sentence = _entries_text(cells, pairs, worst, distance, structure.names[labels[worst.pair]])
    scores, compared_with = (worst.observed, worst.expected), f"pairs at distance {distance:g}"
    return [_mismatch(cells, worst.pair, *scores, confidence, pairs, sentence, compared_with)]


def _usual_groups(labels: Mapping[NodePair, int], distances: SlitEntries) -> dict[float, int]:
    """Distance -> group of most pairs at this distance.

    Of several groups with as many pairs, it is the group that a correct table would have there:
    groups are numbered from the best to the worst, so the nearest pairs are in the first.
    """
    by_distance: dict[float, list[int]] = {}
    for pair in sorted(labels, key=distances.__getitem__):
        by_distance.setdefault(distances[pair], []).append(labels[pair])
    ranked = sorted(labels.values())
    usual, start = {}, 0
    for distance, here in by_distance.items():
        correct = ranked[start + len(here) // 2]
        ranks = {label: (here.count(label), -abs(label - correct)) for label in sorted(set(here))}
        usual[distance] = max(ranks, key=ranks.__getitem__)
        start += len(here)
    return usual


def _flat_table_text(cells: ScoredCells[int], structure: Structure, worst: _WrongPair) -> str:
    less, more = sorted((worst.observed, worst.expected))
    apart = abs(loss_percent(less - more, cells.metric))
    names = join_with_and(list(structure.names[1:]))
    return (
        f"The SLIT does not distinguish {names} nodes, but some pairs "
        f"{anomaly_text.verb_for_metric(cells.metric)[:-1]} "
        f"{anomaly_text.loss_text(cells.metric, apart)} than others."
    )


def _entries_text(
    cells: ScoredCells[int],
    pairs: Sequence[NodePair],
    worst: _WrongPair,
    distance: float,
    group: str,
) -> str:
    named = anomaly_text.shorten_list([f"{source}->{sink}" for source, sink in pairs], _MAX_NAMED)
    source, sink = worst.pair
    entries = "entry" if len(pairs) == 1 else "entries"
    contradict = "contradicts" if len(pairs) == 1 else "contradict"
    return (
        f"SLIT {entries} {join_with_and(named)} {contradict} the measurement: "
        f"{source}->{sink} has distance {distance:g}, and other pairs at this distance have "
        f"{_value_text(cells, worst.expected)}, but it was measured at "
        f"{_value_text(cells, worst.observed)}, like {group} nodes."
    )


@dataclass(frozen=True)
class _DistanceLevel:
    """The pairs at a distance of the SLIT and their median score."""

    distance: float
    log_score: float
    pairs: tuple[NodePair, ...]


def _wrong_order(
    cells: ScoredCells[int], structure: Structure, distances: SlitEntries
) -> list[Anomaly]:
    """The pair of distances with the clearest wrong order: the nearer is worse.

    A node's own memory has to be nearer than all other memory.
    """
    remote = _distance_levels(cells, distances, _positions(cells, distances, local=False))
    local = _distance_levels(cells, distances, _positions(cells, distances, local=True))
    orders = list(combinations(remote, 2))
    orders += [(level, own) for level in remote for own in local if level.distance <= own.distance]
    scatter = _scatter(cells, structure)
    error = float(np.nanmedian(scatter.own)) * np.sqrt(2.0)
    wrong = []
    for near, far in orders:
        gain = far.log_score - near.log_score
        clear, confidence = is_significant_and_large(gain, error, scatter, len(orders))
        if clear:
            wrong.append((gain, confidence, near, far))
    if not wrong:
        return []
    _, confidence, near, far = max(wrong, key=lambda entry: entry[0])
    own = " (a node's own memory)" if far in local else ""
    sentence = (
        f"The SLIT has the wrong order: {_value_text(cells, near.log_score)} was measured at "
        f"distance {near.distance:g}, and {_value_text(cells, far.log_score)} at distance "
        f"{far.distance:g}{own}."
    )
    pair, compared_with = near.pairs[0], f"pairs at distance {far.distance:g}"
    scores = near.log_score, far.log_score
    return [_mismatch(cells, pair, *scores, confidence, near.pairs, sentence, compared_with)]


def _distance_levels(
    cells: ScoredCells[int], distances: SlitEntries, positions: Mapping[NodePair, Position]
) -> list[_DistanceLevel]:
    """Pairs by distance, the nearest first."""
    by_distance: dict[float, list[NodePair]] = {}
    for pair in positions:
        by_distance.setdefault(distances[pair], []).append(pair)
    levels = []
    for distance, pairs in sorted(by_distance.items()):
        typical = float(np.median([cells.log_score[positions[pair]] for pair in pairs]))
        levels.append(_DistanceLevel(distance, typical, tuple(pairs)))
    return levels


def _value_text(cells: ScoredCells[int], log_score: float) -> str:
    return format_quantity(cells.metric, cells.value_of_score(log_score))
