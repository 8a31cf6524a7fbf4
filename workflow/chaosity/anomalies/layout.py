"""Whether what the firmware says of the machine's layout agrees with what was measured.

The distance table (ACPI's SLIT) and the packages are claims. The structure that the matrix shows by
itself is set against them: an entry lies when it puts a pair of nodes among pairs that were
measured to be another class, or when the nearer was measured to be clearly worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from chaosity.anomalies import wording
from chaosity.anomalies.cells import Cells, loss_percent
from chaosity.anomalies.departures import (
    MATTERS,
    MOST_CONFIDENCE,
    MOST_CONFIDENCE_OF_ONE,
    Scatter,
    clear,
    scatter,
)
from chaosity.anomalies.model import TABLE_LIES, Anomaly
from chaosity.anomalies.structure import (
    NONE,
    PACKAGES,
    Packages,
    Structure,
    cost,
    learn,
    nearer_within,
    residuals,
)
from chaosity.units import quantity

Pair = tuple[int, int]
# Two classes count as different to a table when they differ by so much: what a distance table can
# say at all, since it is in steps of a tenth of the local distance.
_STEP = 0.1
# The cost of a class more, and of one cell that departs.
_NO_MATTER_OF_TASTE = 20.0
# So many pairs are named in a sentence.
_MOST_NAMED = 6
_ADVICE = (
    "Do not place threads and memory by this table (the kernel's reclaim and balancing do); update "
    "the firmware or report it, look for swapped cables or modules, and use measured values "
    "(chaosity export)."
)


@dataclass(frozen=True)
class Layout:
    """What came of it.

    Attributes:
        anomalies: of kind distance_table_lies.
        structure: what to take for the machine's structure instead; None to keep it.
        notes: what was seen and is no anomaly.
    """

    anomalies: tuple[Anomaly, ...] = ()
    structure: Structure | None = None
    notes: tuple[str, ...] = ()


def table_anomalies(
    cells: Cells,
    structure: Structure,
    packages: Packages | None,
    distances: Mapping[Pair, float] | None,
) -> Layout:
    """Set claims against the measured structure.

    Args:
        cells: the matrix.
        structure: as learned, the claims among its hypotheses.
        packages: as given.
        distances: as given.
    """
    own = learn(cells)
    found: list[Anomaly] = []
    notes: list[str] = []
    instead = None
    if packages is not None and own.kind == PACKAGES and _differ(own.packages, packages):
        # The given ones were not taken, or only with steps that contradict them.
        belied = structure.kind != PACKAGES or not nearer_within(cells, structure)
        if belied or cost(cells, own) + _NO_MATTER_OF_TASTE < cost(cells, structure):
            instead = own
            found += _wrong_packages(cells, own, packages)
    if distances:
        seen = own if instead is not None or own.kind != NONE else structure
        missing = [pair for pair in _pairs(cells) if pair not in distances]
        if missing:
            first = f"{missing[0][0]}->{missing[0][1]}"
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            notes.append(f"The distance table has no entry for {first}{more}.")
        if own.kind == NONE and len({distances[p] for p in _pairs(cells) if p in distances}) > 1:
            notes.append(
                "The distance table tells nodes apart that were measured to be alike, as when "
                "memory is interleaved below the operating system."
            )
        else:
            entries = _wrong_entries(cells, seen, distances)
            found += entries or _wrong_order(cells, seen, distances)
    return Layout(tuple(found), instead, tuple(notes))


def _differ(one: Packages | None, other: Packages) -> bool:
    return {frozenset(nodes) for nodes in one or ()} != {frozenset(nodes) for nodes in other}


def _pairs(cells: Cells) -> list[Pair]:
    return [cells.cell(int(r), int(c)) for r, c in zip(*np.nonzero(cells.measured), strict=True)]  # type: ignore[misc]


def _confidence(cells: Cells, confidence: float) -> float:
    return min(confidence, MOST_CONFIDENCE if cells.freedom else MOST_CONFIDENCE_OF_ONE)


def _wrong_packages(cells: Cells, own: Structure, packages: Packages) -> list[Anomaly]:
    """Pairs that are said to share a package and were measured not to."""
    of = {node: index for index, nodes in enumerate(own.packages or ()) for node in nodes}
    said = [pair for nodes in packages for pair in combinations(sorted(nodes), 2)]
    apart = [pair for pair in said if of.get(pair[0]) != of.get(pair[1])]
    together = [pair for nodes in own.packages or () for pair in combinations(sorted(nodes), 2)]
    values = {pair: _both_ways(cells, pair) for pair in [*apart, *together]}
    observed = float(np.median([values[pair] for pair in apart]))
    expected = float(np.median([values[pair] for pair in together]))
    measured = " | ".join(",".join(map(str, nodes)) for nodes in own.packages or ())
    given = " | ".join(",".join(map(str, nodes)) for nodes in packages)
    return [
        _anomaly(
            cells, apart[0], _nodes(apart), observed, expected, 0.999, apart,
            f"The packages are said to be {given}, but the nodes were measured to be neighbours as "
            f"{measured}.",
            "the packages that were given",
        )
    ]  # fmt: skip


def _both_ways(cells: Cells, pair: Pair) -> float:
    places = [
        (cells.rows.index(a), cells.columns.index(b))
        for a, b in (pair, pair[::-1])
        if a in cells.rows and b in cells.columns
    ]
    return float(np.nanmedian([cells.goodness[place] for place in places]))


def _anomaly(
    cells: Cells,
    pair: Pair,
    components: tuple[str, ...],
    observed: float,
    expected: float,
    confidence: float,
    pairs: Sequence[Pair],
    sentence: str,
    siblings: str,
) -> Anomaly:
    """A lie; the loss is that of who believes it."""
    return Anomaly(
        kind=TABLE_LIES,
        metric=cells.metric,
        initiator=pair[0],
        target=pair[1],
        components=components,
        observed=cells.value(observed),
        expected=cells.value(expected),
        loss_percent=abs(loss_percent(observed - expected, cells.metric)),
        loss_low=None,
        loss_high=None,
        confidence=_confidence(cells, confidence),
        n=int(cells.n[cells.measured].min()),
        siblings=siblings,
        sentence=sentence,
        advice=_ADVICE,
        cells=tuple(pairs),
    )


def _scatter(cells: Cells, seen: Structure) -> Scatter:
    return scatter(cells, residuals(cells, seen), seen.labels)


def _remote(cells: Cells, distances: Mapping[Pair, float]) -> dict[Pair, tuple[int, int]]:
    """Places of the remote pairs that the table has an entry for."""
    return {
        (source, sink): (i, j)
        for i, source in enumerate(cells.rows)
        for j, sink in enumerate(cells.columns)
        if source != sink and cells.measured[i, j] and (source, sink) in distances
    }  # type: ignore[misc]


def _wrong_entries(cells: Cells, seen: Structure, distances: Mapping[Pair, float]) -> list[Anomaly]:
    """Pairs of another class than most pairs at their distance, one anomaly for all of them.

    A pair counts only when it was measured to be nearer to its own class than to the usual one of
    its distance: a slow path is no lie of the table.
    """
    places = _remote(cells, distances)
    departures = residuals(cells, seen)
    usual = _usual({pair: int(seen.labels[at]) for pair, at in places.items()}, distances)
    wrong: list[_Wrong] = []
    for pair, at in places.items():
        label = usual[distances[pair]]
        expected = float(np.median(cells.goodness[seen.labels == label]))
        step = abs(cells.goodness[at] - expected)
        if seen.labels[at] == label or abs(departures[at]) > max(MATTERS, step / 3.0):
            continue
        if step > _STEP:
            wrong.append(_Wrong(pair, float(cells.goodness[at]), expected))
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
        _anomaly(cells, worst.pair, _nodes(pairs), worst.observed, worst.expected, confidence,
                 pairs, sentence, f"pairs at distance {distances[worst.pair]:g}")
    ]  # fmt: skip


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
    """A pair of another class than most at its distance: its goodness and theirs."""

    pair: Pair
    observed: float
    expected: float


def _flat(cells: Cells, seen: Structure, worst: _Wrong) -> str:
    less, more = sorted((worst.observed, worst.expected))
    apart = abs(loss_percent(less - more, cells.metric))
    return (
        f"The distance table makes no difference between {wording.listed(list(seen.names[1:]))} "
        f"nodes, though one {wording.verb(cells.metric)} {wording.worse(cells.metric, apart)} than "
        "another."
    )


def _lie(cells: Cells, pairs: Sequence[Pair], worst: _Wrong, distance: float, told: str) -> str:
    named = [f"{source}->{sink}" for source, sink in pairs[:_MOST_NAMED]]
    if len(pairs) > _MOST_NAMED:
        named.append(f"{len(pairs) - _MOST_NAMED} more")
    source, sink = worst.pair
    return (
        f"The distance table lies about {wording.listed(named)}: it gives {source}->{sink} the "
        f"distance {distance:g}, at which others have {_value(cells, worst.expected)}, and "
        f"{_value(cells, worst.observed)} was measured, that of {told} nodes."
    )


def _nodes(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(f"node{node}" for node in sorted({node for pair in pairs for node in pair}))


@dataclass(frozen=True)
class _Level:
    """What was measured at a distance of the table; `goodness` is typical of its pairs."""

    distance: float
    goodness: float
    pairs: tuple[Pair, ...]


def _wrong_order(cells: Cells, seen: Structure, distances: Mapping[Pair, float]) -> list[Anomaly]:
    """Distances of which the nearer was measured to be clearly worse.

    Nothing is nearer to a node than the node itself, nor as near.
    """
    remote = _levels(cells, distances, _remote(cells, distances))
    local = _levels(cells, distances, _local(cells, distances))
    orders = list(combinations(remote, 2))
    orders += [(one, own) for one in remote for own in local if one.distance <= own.distance]
    scattered = _scatter(cells, seen)
    error = float(np.nanmedian(scattered.own)) * np.sqrt(2.0)
    wrong = []
    for near, far in orders:
        gain = far.goodness - near.goodness
        sure, confidence = clear(gain, error, scattered, len(orders))
        if sure:
            wrong.append((gain, confidence, near, far))
    if not wrong:
        return []
    _, confidence, near, far = max(wrong, key=lambda one: one[0])
    at = ", of a node to itself," if far in local else ""
    sentence = (
        f"The distance table has the order wrong: at distance {near.distance:g} "
        f"{_value(cells, near.goodness)} was measured, and at {far.distance:g}{at} "
        f"{_value(cells, far.goodness)}."
    )
    pairs = list(near.pairs)
    return [
        _anomaly(cells, pairs[0], _nodes(pairs), near.goodness, far.goodness, confidence, pairs,
                 sentence, f"pairs at distance {far.distance:g}")
    ]  # fmt: skip


def _levels(
    cells: Cells, distances: Mapping[Pair, float], places: Mapping[Pair, tuple[int, int]]
) -> list[_Level]:
    """Pairs by distance, the nearest first."""
    by: dict[float, list[Pair]] = {}
    for pair in places:
        by.setdefault(distances[pair], []).append(pair)
    return [
        _Level(distance, float(np.median([cells.goodness[places[p]] for p in pairs])), tuple(pairs))
        for distance, pairs in sorted(by.items())
    ]


def _local(cells: Cells, distances: Mapping[Pair, float]) -> dict[Pair, tuple[int, int]]:
    """Places of the nodes' own memory that the table has an entry for."""
    return {
        (node, node): (i, cells.columns.index(node))
        for i, node in enumerate(cells.rows)
        if node in cells.columns
        and cells.measured[i, cells.columns.index(node)]
        and (node, node) in distances
    }  # type: ignore[misc]


def _value(cells: Cells, goodness: float) -> str:
    return quantity(cells.metric, cells.value(goodness))
