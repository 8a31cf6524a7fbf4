"""An anomaly that says that firmware claims something else than what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from chaosity.anomalies.anomaly_model import SLIT_MISMATCH, Anomaly
from chaosity.anomalies.departures import told_confidence
from chaosity.anomalies.scored_cells import ScoredCells, loss_percent

Pair = tuple[int, int]
_ADVICE = (
    "Do not place threads and memory by this table (the kernel's reclaim and balancing do); update "
    "the firmware or report it, look for swapped cables or modules, and use measured values "
    "(chaosity export)."
)


def lie(
    cells: ScoredCells,
    pair: Pair,
    components: tuple[str, ...],
    observed: float,
    expected: float,
    confidence: float,
    pairs: Sequence[Pair],
    sentence: str,
    siblings: str,
) -> Anomaly:
    """The loss is that of who believes it."""
    return Anomaly(
        kind=SLIT_MISMATCH,
        metric=cells.metric,
        initiator=pair[0],
        target=pair[1],
        components=components,
        observed=cells.value(observed),
        expected=cells.value(expected),
        loss_percent=abs(loss_percent(observed - expected, cells.metric)),
        loss_low=None,
        loss_high=None,
        confidence=told_confidence(cells, confidence),
        n=int(cells.n[cells.measured].min()),
        siblings=siblings,
        sentence=sentence,
        advice=_ADVICE,
        cells=tuple(pairs),
    )


def nodes_of(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Components of the nodes of some pairs."""
    return tuple(f"node{node}" for node in sorted({node for pair in pairs for node in pair}))
