"""What the analysis says: an anomaly, and all that was found in one table or matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SLOW_COMPONENT = "slow_component"
SLOW_PATH = "slow_path"
ASYMMETRY = "asymmetry"
REMOTE_BETTER = "remote_better_than_local"
ADDING_DRIVES = "adding_drives_loses_bandwidth"
CONTENTION = "contention_within_node"
INVERSION = "inversion_with_size"
SLIT_MISMATCH = "slit_mismatch"
KINDS = (
    *(SLOW_COMPONENT, SLOW_PATH, ASYMMETRY, REMOTE_BETTER),
    *(ADDING_DRIVES, CONTENTION, INVERSION, SLIT_MISMATCH),
)


@dataclass(frozen=True)
class Anomaly:
    """A departure that is statistically clear and large enough to matter.

    Attributes:
        kind: one of KINDS.
        metric: of `observed` and `expected`; None where these are no values of a metric.
        initiator, target: where it is seen: a node's number, or a name; None when it is seen from,
            or in, several.
        components: names of the suspects, as in the component files (node3, package0); a path is
            `node1->node3`.
        observed: the median that was measured, in the metric's unit.
        expected: what the siblings make one expect.
        loss_percent: how much worse than expected, in per cent of it.
        loss_low, loss_high: 95 % interval of the loss; None when it cannot be said.
        confidence: chance that this is no noise, adjusted for all comparisons that were made, from
            0 to 1.
        n: replicates behind `observed`.
        siblings: what it was compared with, in words.
        sentence: what is wrong, in one sentence.
        advice: what to look at.
        cells: all cells (initiator, target) that it explains.
        where: what of a tidy table it was seen in (experiment, kernel, ...); empty for a matrix.
        also: sentences on further evidence for the same fault.
    """

    kind: str
    metric: str | None
    initiator: int | str | None
    target: int | str | None
    components: tuple[str, ...]
    observed: float
    expected: float
    loss_percent: float
    loss_low: float | None
    loss_high: float | None
    confidence: float
    n: int
    siblings: str
    sentence: str
    advice: str
    cells: tuple[tuple[int | str, int | str], ...] = ()
    where: Mapping[str, str | None] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """How large, how sure, compared with what; a sentence."""
        kind = self.kind.replace("_", " ").capitalize()
        interval = "no interval"
        if self.loss_low is not None and self.loss_high is not None:
            interval = f"95 % interval {self.loss_low:.1f} to {self.loss_high:.1f} %"
        return (
            f"{kind}: {', '.join(self.components)}; loss {self.loss_percent:.1f} % ({interval}, "
            f"n = {self.n}), {100.0 * self.confidence:.4g} % confidence after all comparisons; "
            f"compared with {self.siblings}."
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; null for what is not known."""
        return {
            "kind": self.kind,
            "initiator": self.initiator,
            "target": self.target,
            "components": list(self.components),
            "metric": self.metric,
            "observed": _rounded(self.observed),
            "expected": _rounded(self.expected),
            "loss_percent": _rounded(self.loss_percent, 4),
            "loss_percent_low": _rounded(self.loss_low, 4),
            "loss_percent_high": _rounded(self.loss_high, 4),
            "confidence": _rounded(self.confidence, 6),
            "n": self.n,
            "siblings": self.siblings,
            "sentence": self.sentence,
            "advice": self.advice,
            "cells": [list(cell) for cell in self.cells],
            "where": dict(self.where),
            "also": list(self.also),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Anomaly:
        """The inverse of `to_json`."""
        named = {
            **values,
            "loss_low": values["loss_percent_low"],
            "loss_high": values["loss_percent_high"],
        }
        del named["loss_percent_low"], named["loss_percent_high"]
        return cls(
            **{
                **named,
                "components": tuple(named["components"]),
                "cells": tuple((source, sink) for source, sink in named["cells"]),
                "also": tuple(named["also"]),
            }
        )


def _rounded(value: float | None, digits: int = 7) -> float | None:
    """Without digits that no measurement has."""
    if value is None or not math.isfinite(value) or value == 0.0:
        return 0.0 if value == 0.0 else None
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class CellGroup:
    """ScoredCells that a machine's structure makes equal.

    Attributes:
        name: such as local, same package, far.
        cells: (initiator, target) of each.
        typical: median over its cells, in the metric's unit.
    """

    name: str
    cells: tuple[tuple[int, int], ...]
    typical: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "cells": [list(cell) for cell in self.cells],
            "typical": _rounded(self.typical),
            "n_cells": len(self.cells),
        }


@dataclass(frozen=True)
class Findings:
    """What was found in a matrix or in a tidy table.

    Attributes:
        metric: of a matrix; None for a table, which has several.
        anomalies: the worst first.
        classes: what a matrix' structure was taken to be, the best first; empty for a table.
        structure: the structure in words.
        packages: the nodes of each package, as given or learned; None when there are none.
        verdict: all of it in one sentence.
        detectable_percent: the smallest loss of a single cell that would have been found in 19 of
            20 cases; None when it cannot be said.
        noise_percent: scatter that was reckoned with, as a share of a value.
        notes: what cannot be said and why, and what was taken for normal.
        checked: what was looked at, a clause each.
    """

    metric: str | None
    anomalies: tuple[Anomaly, ...]
    classes: tuple[CellGroup, ...]
    structure: str
    packages: tuple[tuple[int, ...], ...] | None
    verdict: str
    detectable_percent: float | None
    noise_percent: float | None
    notes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "structure": self.structure,
            "packages": None if self.packages is None else [list(p) for p in self.packages],
            "classes": [one.to_json() for one in self.classes],
            "anomalies": [one.to_json() for one in self.anomalies],
            "detectable_loss_percent": _rounded(self.detectable_percent, 3),
            "noise_percent": _rounded(self.noise_percent, 3),
            "notes": list(self.notes),
            "checked": list(self.checked),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Findings:
        """The inverse of `to_json`, for a table's findings, which have no classes."""
        packages = values["packages"]
        return cls(
            metric=values["metric"],
            anomalies=tuple(Anomaly.from_json(one) for one in values["anomalies"]),
            classes=(),
            structure=values["structure"],
            packages=None if packages is None else tuple(tuple(nodes) for nodes in packages),
            verdict=values["verdict"],
            detectable_percent=values["detectable_loss_percent"],
            noise_percent=values["noise_percent"],
            notes=tuple(values["notes"]),
            checked=tuple(values["checked"]),
        )
