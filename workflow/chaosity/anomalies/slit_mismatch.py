"""Whether the firmware's distance table (ACPI's SLIT) agrees with what was measured.

An entry lies when it puts a pair of nodes among pairs that were measured to be another class; the
table lies when the nearer was measured to be clearly worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from chaosity.anomalies import anomaly_text
from chaosity.anomalies.anomaly_model import Anomaly
from chaosity.anomalies.departures import MATTERS, Scatter, clear, scatter
from chaosity.anomalies.matrix_structure import Structure, residuals
from chaosity.anomalies.mismatch_anomaly import Pair, lie, nodes_of
from chaosity.anomalies.scored_cells import ScoredCells, loss_percent
from chaosity.units import format_quantity

# Two classes count as different to a table when they differ by so much: what a distance table can
# say at all, since it is in steps of a tenth of the local distance.
_STEP = 0.1
# So many pairs are named in a sentence.
_MOST_NAMED = 6


def table_lies(
    cells: ScoredCells, seen: Structure, distances: Mapping[Pair, float]
) -> list[Anomaly]:
    """Entries of the table that lie, else its order where that is wrong.

    Args:
        cells: the matrix.
        seen: its structure as measured.
        distances: (initiator, target) -> the table's entry.
    """
    return _wrong_entries(cells, seen, distances) or _wrong_order(cells, seen, distances)


def _scatter(cells: ScoredCells, seen: Structure) -> Scatter:
    return scatter(cells, residuals(cells, seen), seen.labels)


def _places(
    cells: ScoredCells, distances: Mapping[Pair, float], *, local: bool
) -> dict[Pair, tuple[int, int]]:
    """Places of the local or of the remote pairs that the table has an entry for."""
    return {
        (source, sink): (i, j)
        for i, source in enumerate(cells.rows)
        for j, sink in enumerate(cells.columns)
        if (source == sink) == local and cells.measured[i, j] and (source, sink) in distances
    }  # type: ignore[misc]


def _wrong_entries(
    cells: ScoredCells, seen: Structure, distances: Mapping[Pair, float]
) -> list[Anomaly]:
    """Pairs of another class than most pairs at their distance, one anomaly for all of them.

    A pair counts only when it was measured to be nearer to its own class than to the usual one of
    its distance: a slow path is no lie of the table.
    """
    places = _places(cells, distances, local=False)
    departures = residuals(cells, seen)
    usual = _usual({pair: int(seen.labels[at]) for pair, at in places.items()}, distances)
    wrong: list[_Wrong] = []
    for pair, at in places.items():
        label = usual[distances[pair]]
        expected = float(np.median(cells.log_score[seen.labels == label]))
        step = abs(cells.log_score[at] - expected)
        if seen.labels[at] == label or abs(departures[at]) > max(MATTERS, step / 3.0):
            continue
        if step > _STEP:
            wrong.append(_Wrong(pair, float(cells.log_score[at]), expected))
    if not wrong:
        return []
    worst = max(wrong, key=lambda one: abs(one.observed - one.expected))
    own = _scatter(cells, seen)
    error = float(np.nanmedian(own.own)) * np.sqrt(2.0)
    _, confidence = clear(abs(worst.observed - worst.expected), error, own, len(places))
    pairs = [one.pair for one in wrong]
    if len({distances[pair] for pair in places}) == 1:
        sentence = _flat(cells, seen, worst)
    else:
        told = seen.names[seen.labels[places[worst.pair]]]
        sentence = _lie(cells, pairs, worst, distances[worst.pair], told)
    return [
        lie(
            cells,
            worst.pair,
            nodes_of(pairs),
            worst.observed,
            worst.expected,
            confidence,
            pairs,
            sentence,
            f"pairs at distance {distances[worst.pair]:g}",
        )
    ]


def _usual(labels: Mapping[Pair, int], distances: Mapping[Pair, float]) -> dict[float, int]:
    """The class of most pairs at each distance.

    Of as many the one that an honest table would have there: classes are numbered from the best to
    the worst, so the nearest pairs are of the first.
    """
    by: dict[float, list[int]] = {}
    for pair in sorted(labels, key=distances.__getitem__):
        by.setdefault(distances[pair], []).append(labels[pair])
    ranked = sorted(labels.values())
    usual, start = {}, 0
    for distance, here in by.items():
        honest = ranked[start + len(here) // 2]
        ranks = {one: (here.count(one), -abs(one - honest)) for one in sorted(set(here))}
        usual[distance] = max(ranks, key=ranks.__getitem__)
        start += len(here)
    return usual


@dataclass(frozen=True)
class _Wrong:
    """A pair of another class than most at its distance: its log_score and theirs."""

    pair: Pair
    observed: float
    expected: float


def _flat(cells: ScoredCells, seen: Structure, worst: _Wrong) -> str:
    less, more = sorted((worst.observed, worst.expected))
    apart = abs(loss_percent(less - more, cells.metric))
    return (
        f"The distance table makes no difference between {anomaly_text.listed(list(seen.names[1:]))} "
        f"nodes, though one {anomaly_text.verb(cells.metric)} {anomaly_text.worse(cells.metric, apart)} than "
        "another."
    )


def _lie(
    cells: ScoredCells, pairs: Sequence[Pair], worst: _Wrong, distance: float, told: str
) -> str:
    named = [f"{source}->{sink}" for source, sink in pairs[:_MOST_NAMED]]
    if len(pairs) > _MOST_NAMED:
        named.append(f"{len(pairs) - _MOST_NAMED} more")
    source, sink = worst.pair
    return (
        f"The distance table lies about {anomaly_text.listed(named)}: it gives {source}->{sink} the "
        f"distance {distance:g}, at which others have {_value(cells, worst.expected)}, and "
        f"{_value(cells, worst.observed)} was measured, that of {told} nodes."
    )


@dataclass(frozen=True)
class _Level:
    """What was measured at a distance of the table; `log_score` is typical of its pairs."""

    distance: float
    log_score: float
    pairs: tuple[Pair, ...]


def _wrong_order(
    cells: ScoredCells, seen: Structure, distances: Mapping[Pair, float]
) -> list[Anomaly]:
    """Distances of which the nearer was measured to be clearly worse.

    Nothing is nearer to a node than the node itself, nor as near.
    """
    remote = _levels(cells, distances, _places(cells, distances, local=False))
    local = _levels(cells, distances, _places(cells, distances, local=True))
    orders = list(combinations(remote, 2))
    orders += [(one, own) for one in remote for own in local if one.distance <= own.distance]
    scattered = _scatter(cells, seen)
    error = float(np.nanmedian(scattered.own)) * np.sqrt(2.0)
    wrong = []
    for near, far in orders:
        gain = far.log_score - near.log_score
        sure, confidence = clear(gain, error, scattered, len(orders))
        if sure:
            wrong.append((gain, confidence, near, far))
    if not wrong:
        return []
    _, confidence, near, far = max(wrong, key=lambda one: one[0])
    at = ", of a node to itself," if far in local else ""
    sentence = (
        f"The distance table has the order wrong: at distance {near.distance:g} "
        f"{_value(cells, near.log_score)} was measured, and at {far.distance:g}{at} "
        f"{_value(cells, far.log_score)}."
    )
    pairs = list(near.pairs)
    return [
        lie(
            cells,
            pairs[0],
            nodes_of(pairs),
            near.log_score,
            far.log_score,
            confidence,
            pairs,
            sentence,
            f"pairs at distance {far.distance:g}",
        )
    ]


def _levels(
    cells: ScoredCells, distances: Mapping[Pair, float], places: Mapping[Pair, tuple[int, int]]
) -> list[_Level]:
    """Pairs by distance, the nearest first."""
    by: dict[float, list[Pair]] = {}
    for pair in places:
        by.setdefault(distances[pair], []).append(pair)
    return [
        _Level(
            distance, float(np.median([cells.log_score[places[p]] for p in pairs])), tuple(pairs)
        )
        for distance, pairs in sorted(by.items())
    ]


def _value(cells: ScoredCells, log_score: float) -> str:
    return format_quantity(cells.metric, cells.value(log_score))
