"""Results of the analysis: an anomaly, and all findings of one matrix or one host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from chaosity.anomalies import anomaly_text
from chaosity.statistics import less_is_better

SLOW_COMPONENT = "slow_component"
SLOW_PATH = "slow_path"
ASYMMETRY = "asymmetry"
REMOTE_BETTER = "remote_better_than_local"
ADDING_DRIVES = "adding_drives_loses_bandwidth"
CONTENTION = "contention_within_node"
INVERSION = "inversion_with_size"
SLIT_MISMATCH = "slit_mismatch"
KINDS = (
    SLOW_COMPONENT,
    SLOW_PATH,
    ASYMMETRY,
    REMOTE_BETTER,
    ADDING_DRIVES,
    CONTENTION,
    INVERSION,
    SLIT_MISMATCH,
)
CellNames = tuple[int | str, int | str]  # initiator and target
SliceKey = Mapping[str, str | None]  # column of the tidy table -> its value


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A value that is worse than expected, with the evidence.

    Attributes:
        metric: of `observed` and `expected`.
        observed: the measured median, in the metric's unit.
        expected: what comparable cells lead to expect, in the metric's unit.
        loss_percent: how much worse than expected, in per cent of the expected value.
        loss_low, loss_high: 95 % interval of the loss; None when it is unknown.
        confidence: probability that this is not noise, adjusted for all comparisons, 0 to 1.
        n: replicates of `observed`.
    """

    metric: str
    observed: float
    expected: float
    loss_percent: float
    loss_low: float | None
    loss_high: float | None
    confidence: float
    n: int

    def text(self, between: str = "") -> str:
        """Both values and the loss: "30 GB/s instead of 50 GB/s, 40 % less".

        Args:
            between: text between the values and the loss.
        """
        values = anomaly_text.observed_and_expected_text(self.metric, self.observed, self.expected)
        return f"{values}{between}, {anomaly_text.loss_text(self.metric, self.loss_percent)}"


@dataclass(frozen=True, kw_only=True)
class Anomaly(Loss):
    """A departure that is statistically clear and large enough to matter.

    Attributes:
        kind: one of KINDS.
        initiator, target: where it was seen, as a node number or a place name; None when several
            initiators or targets are involved.
        components: names of the suspected components, as in the component files (node3,
            package0); a path is `node1->node3`.
        compared_with: description of the comparable cells.
        sentence: what is wrong, in one sentence.
        advice: what to look at.
        cells: all cells (initiator, target) that it explains.
        where: the slice of the tidy table (experiment, kernel, ...); empty for a matrix.
        also: sentences with further evidence for the same fault.
    """

    kind: str
    initiator: int | str | None
    target: int | str | None
    components: tuple[str, ...]
    compared_with: str
    sentence: str
    advice: str
    cells: tuple[CellNames, ...] = ()
    where: SliceKey = field(default_factory=dict)
    also: tuple[str, ...] = ()

    @classmethod
    def from_loss(
        cls,
        loss: Loss,
        kind: str,
        components: tuple[str, ...],
        cells: tuple[CellNames, ...],
        *,
        sentence: str,
        advice: str,
        compared_with: str,
        seen_at: tuple[int | str | None, int | str | None] | None = None,
        where: SliceKey | None = None,
    ) -> Self:
        """The anomaly with these numbers and attributes.

        `seen_at` is its initiator and target. Default: those that all cells share.
        """
        initiator, target = seen_at or (
            _shared(cell[0] for cell in cells),
            _shared(cell[1] for cell in cells),
        )
        return cls(
            **vars(loss),
            kind=kind,
            initiator=initiator,
            target=target,
            components=components,
            compared_with=compared_with,
            sentence=sentence,
            advice=advice,
            cells=cells,
            where=where or {},
        )

    @property
    def relative_loss(self) -> float:
        """Loss as a share of the better value, so that times and rates have one order."""
        share = self.loss_percent / 100.0
        return share / (1.0 + share) if less_is_better(self.metric) else share

    @property
    def evidence_sentence(self) -> str:
        """Size, interval, confidence and comparison, in a sentence."""
        kind = self.kind.replace("_", " ").capitalize().replace("Slit", "SLIT")
        interval = "no interval"
        if self.loss_low is not None and self.loss_high is not None:
            interval = f"95 % interval {self.loss_low:.1f} to {self.loss_high:.1f} %"
        return (
            f"{kind}: {', '.join(self.components)}; loss {self.loss_percent:.1f} % ({interval}, "
            f"n = {self.n}), {100.0 * self.confidence:.4g} % confidence, adjusted for all "
            f"comparisons; compared with {self.compared_with}."
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values; null for what is unknown."""
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
            "siblings": self.compared_with,
            "sentence": self.sentence,
            "advice": self.advice,
            "cells": [list(cell) for cell in self.cells],
            "where": dict(self.where),
            "also": list(self.also),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        renamed = {
            "loss_percent_low": "loss_low",
            "loss_percent_high": "loss_high",
            "siblings": "compared_with",
        }
        fields = {renamed.get(name, name): value for name, value in values.items()}
        fields["components"] = tuple(fields["components"])
        fields["cells"] = tuple((source, target) for source, target in fields["cells"])
        fields["also"] = tuple(fields["also"])
        return cls(**fields)


def _shared(names: Iterable[int | str]) -> int | str | None:
    """The name that all are, or None."""
    different = set(names)
    return different.pop() if len(different) == 1 else None


def _rounded(value: float | None, digits: int = 7) -> float | None:
    """The value with at most `digits` significant digits; None where it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}") or 0.0  # no negative zero


@dataclass(frozen=True)
class CellGroup:
    """Cells that should be equal on a healthy machine, by its structure.

    Attributes:
        name: such as local, same package, far.
        cells: (initiator, target) of each.
        typical: median over its cells, in the metric's unit.
    """

    name: str
    cells: tuple[tuple[int, int], ...]
    typical: float

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "cells": [list(cell) for cell in self.cells],
            "typical": _rounded(self.typical),
            "n_cells": len(self.cells),
        }


@dataclass(frozen=True)
class Findings:
    """All findings of a matrix or of a host.

    Attributes:
        metric: of a matrix; None for a host, which has several.
        anomalies: the worst first.
        groups: the cell groups of a matrix, the best first; empty for a host.
        structure: description of the structure.
        packages: nodes of each package, as given or learned; None when there are none.
        verdict: the result in one sentence.
        detectable_percent: smallest detectable loss of a single cell (95 % power), in per cent;
            None when it is unknown.
        noise_percent: assumed or measured scatter, in per cent of a value.
        notes: what was not tested and why, and which departures are structural.
        checked: what was tested, a phrase each.
    """

    metric: str | None
    anomalies: tuple[Anomaly, ...]
    groups: tuple[CellGroup, ...]
    structure: str
    packages: tuple[tuple[int, ...], ...] | None
    verdict: str
    detectable_percent: float | None
    noise_percent: float | None
    notes: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "metric": self.metric,
            "verdict": self.verdict,
            "structure": self.structure,
            "packages": None if self.packages is None else [list(p) for p in self.packages],
            "classes": [group.to_json() for group in self.groups],
            "anomalies": [anomaly.to_json() for anomaly in self.anomalies],
            "detectable_loss_percent": _rounded(self.detectable_percent, 3),
            "noise_percent": _rounded(self.noise_percent, 3),
            "notes": list(self.notes),
            "checked": list(self.checked),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`, for the findings of a host, which have no cell groups."""
        packages = values["packages"]
        return cls(
            metric=values["metric"],
            anomalies=tuple(Anomaly.from_json(anomaly) for anomaly in values["anomalies"]),
            groups=(),
            structure=values["structure"],
            packages=None if packages is None else tuple(tuple(nodes) for nodes in packages),
            verdict=values["verdict"],
            detectable_percent=values["detectable_loss_percent"],
            noise_percent=values["noise_percent"],
            notes=tuple(values["notes"]),
            checked=tuple(values["checked"]),
        )
