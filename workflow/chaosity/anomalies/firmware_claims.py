"""Whether what the firmware says of the machine's layout agrees with what was measured.

The distance table (ACPI's SLIT) and the packages are claims. The structure that the matrix shows by
itself is set against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from chaosity.anomalies.anomaly_model import Anomaly
from chaosity.anomalies.matrix_structure import (
    ENOUGH_CELLS,
    NONE,
    PACKAGES,
    PackageNodes,
    Structure,
    cost,
    learn,
    nearer_within,
)
from chaosity.anomalies.mismatch_anomaly import Pair, lie, nodes_of
from chaosity.anomalies.scored_cells import ScoredCells
from chaosity.anomalies.slit_mismatch import table_lies

# The cost of a class more, and of one cell that departs.
_NO_MATTER_OF_TASTE = 20.0


@dataclass(frozen=True)
class Layout:
    """What came of it.

    Attributes:
        anomalies: of kind slit_mismatch.
        structure: what to take for the machine's structure instead; None to keep it.
        notes: what was seen and is no anomaly.
    """

    anomalies: tuple[Anomaly, ...] = ()
    structure: Structure | None = None
    notes: tuple[str, ...] = ()


def table_anomalies(
    cells: ScoredCells,
    structure: Structure,
    packages: PackageNodes | None,
    distances: Mapping[Pair, float] | None,
) -> Layout:
    """Set claims against the measured structure.

    Args:
        cells: the matrix.
        structure: as learned, the claims among its hypotheses.
        packages: as given.
        distances: as given.
    """
    if not packages and not distances:
        return Layout()
    if cells.measured.mean() < ENOUGH_CELLS:
        few = "Too few cells were measured to say whether packages and distances are right."
        return Layout(notes=(few,))
    own = learn(cells)
    found: list[Anomaly] = []
    notes: list[str] = []
    instead = None
    if packages and own.kind == PACKAGES and _differ(own.packages, packages):
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
            found += table_lies(cells, seen, distances)
    return Layout(tuple(found), instead, tuple(notes))


def _differ(one: PackageNodes | None, other: PackageNodes) -> bool:
    """Whether the same nodes are packed in another way."""
    if {node for nodes in one or () for node in nodes} != {n for nodes in other for n in nodes}:
        return False
    return {frozenset(nodes) for nodes in one or ()} != {frozenset(nodes) for nodes in other}


def _pairs(cells: ScoredCells) -> list[Pair]:
    return [cells.cell(int(r), int(c)) for r, c in zip(*np.nonzero(cells.measured), strict=True)]  # type: ignore[misc]


def _wrong_packages(cells: ScoredCells, own: Structure, packages: PackageNodes) -> list[Anomaly]:
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
        lie(
            cells,
            apart[0],
            nodes_of(apart),
            observed,
            expected,
            0.999,
            apart,
            f"The packages are said to be {given}, but the nodes were measured to be neighbours as "
            f"{measured}.",
            "the packages that were given",
        )
    ]


def _both_ways(cells: ScoredCells, pair: Pair) -> float:
    places = [
        (cells.rows.index(a), cells.columns.index(b))
        for a, b in (pair, pair[::-1])
        if a in cells.rows and b in cells.columns
    ]
    return float(np.nanmedian([cells.log_score[place] for place in places]))
