"""Results of the analysis: an anomaly, and all findings of one matrix or one host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
import pandas as pd

from chaosity.store.measurements import SLICE, Measurements, less_is_better
from chaosity.text_templates import write_text


class AnomalyKind(StrEnum):
    """The kinds of anomalies, as in findings.json."""

    SLOW_COMPONENT = "slow_component"
    SLOW_PATH = "slow_path"
    REMOTE_BETTER = "remote_better_than_local"
    ADDING_DRIVES = "adding_drives_loses_bandwidth"
    CONTENTION = "contention_within_node"
    INVERSION = "inversion_with_size"
    SLIT_MISMATCH = "slit_mismatch"


CellNames = tuple[int | str, int | str]  # initiator and target
SliceKey = Mapping[str, str | None]  # column of the tidy table -> its value


# Names in JSON of attributes that have another name in Python.
_JSON_NAMES = {
    "compared_with": "siblings",
    "groups": "classes",
    "detectable_percent": "detectable_loss_percent",
}
# Significant digits in JSON.
_DIGITS = {
    **{"loss_percent": 4, "loss_percent_low": 4, "loss_percent_high": 4, "confidence": 6},
    "p_value": 3,
    **{"detectable_percent": 3, "noise_percent": 3},
}
_DEFAULT_DIGITS = 7


def _json_value(value: Any, digits: int = _DEFAULT_DIGITS) -> Any:
    """Return a JSON value: tuples as lists, numbers rounded, null if a number is not finite."""
    if isinstance(value, _JsonResult):
        return value.to_json()
    if isinstance(value, tuple):
        return [_json_value(part, digits) for part in value]
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, float):
        return value
    return (float(f"{value:.{digits}g}") or 0.0) if math.isfinite(value) else None  # no -0.0


def _frozen(value: Any) -> Any:
    """Return a JSON value with tuples for lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


class _JsonResult:
    """A dataclass that can be written as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as JSON values; an unknown value is null."""
        return {
            _JSON_NAMES.get(name, name): _json_value(value, _DIGITS.get(name, _DEFAULT_DIGITS))
            for name, value in vars(self).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the result from the JSON values that `to_json` returned."""
        python_names = {renamed: name for name, renamed in _JSON_NAMES.items()}
        return cls(**{python_names.get(name, name): _frozen(each) for name, each in values.items()})


@dataclass(frozen=True, kw_only=True)
class Anomaly(_JsonResult):
    """A loss that is statistically clear and large enough to matter, with the evidence."""

    kind: str  # an `AnomalyKind`
    # initiator, target: where the loss was seen, as a node number or a place name; None when
    # several initiators or targets are involved.
    initiator: int | str | None
    target: int | str | None
    # Names of the suspected components, as in the component files (node3, package0); a path is
    # `node1->node3`.
    components: tuple[str, ...]
    metric: str  # name of the metric of `observed` and `expected`
    observed: float  # the measured median, in the metric's unit
    expected: float  # the value that follows from comparable cells, in the metric's unit
    loss_percent: float  # how much worse the observed value is, in per cent of the expected value
    # loss_percent_low, loss_percent_high: 95 % interval of the loss; None when it is unknown.
    loss_percent_low: float | None
    loss_percent_high: float | None
    # Probability that this is not noise, adjusted for all comparisons, 0 to 1. Those of a host are
    # all comparisons of all its tests.
    confidence: float
    p_value: float = 1.0  # probability that noise alone shows this anywhere in its own test
    n: int  # replicates of `observed`
    compared_with: str  # description of the comparable cells
    sentence: str  # what is wrong, in one sentence
    advice: str  # what to look at
    cells: tuple[CellNames, ...] = ()  # all cells (initiator, target) that the anomaly explains
    # The slice of the tidy table (experiment, kernel, ...); empty for a matrix.
    where: SliceKey = field(default_factory=dict)
    also: tuple[str, ...] = ()  # sentences with further evidence for the same fault
    doubt: str = ""  # why it is only a suspicion, as a sentence; empty for a finding

    @property
    def loss_as_share_of_better_value(self) -> float:
        """Loss as a share of the better value, so that times and rates can be sorted together."""
        share = self.loss_percent / 100.0
        return share / (1.0 + share) if less_is_better(self.metric) else share

    @property
    def evidence_sentence(self) -> str:
        """Sentence with the loss, its interval, the confidence and the comparable cells."""
        return write_text("anomalies", "evidence", anomaly=self)

    def rows_of_cells(self, measurements: Measurements) -> pd.DataFrame:
        """Return the rows of a host's table that belong to the cells."""
        known = {name: self.where[name] for name in SLICE if self.where.get(name) is not None}
        rows = measurements.where(**known).rows
        cells = {(str(initiator), str(target)) for initiator, target in self.cells}
        # A cell of a matrix of nodes has the numbers of the nodes, another cell the names.
        places = rows[["initiator", "target", "initiator_nodes", "target_nodes"]].astype(str)
        own = [bool(cells & {(i, t), (m, n)}) for i, t, m, n in places.itertuples(index=False)]
        return rows[np.array(own, dtype=bool)]


def shared_initiator_and_target(
    cells: Iterable[CellNames],
) -> tuple[int | str | None, int | str | None]:
    """Return the initiator and the target of all cells; None for the one in which cells differ."""
    ends: tuple[set[int | str], ...] = tuple(map(set, zip(*cells, strict=True)))
    initiator, target = (names.pop() if len(names) == 1 else None for names in ends)
    return initiator, target


@dataclass(frozen=True)
class CellGroup(_JsonResult):
    """Cells that should be equal on a healthy machine, because of the machine's structure."""

    name: str  # name of the group, such as local, same package, far
    cells: tuple[tuple[int, int], ...]  # (initiator, target) of each cell
    typical: float  # median over the cells, in the metric's unit

    def to_json(self) -> dict[str, Any]:
        """Return the attributes and `n_cells`, the number of cells."""
        return {**super().to_json(), "n_cells": len(self.cells)}


def no_problems_text(
    checked: Sequence[str], untested: Sequence[str], detectable_percent: float | None
) -> str:
    """Return the sentences for a host without findings: what was tested and what was not.

    `detectable_percent` is the smallest loss that each of the tests detects, None if unknown.
    """
    values = {"checked": checked, "untested": untested, "loss": detectable_percent}
    return write_text("anomalies", "no_problems", **values)


@dataclass(frozen=True)
class Findings(_JsonResult):
    """All findings of a matrix or of a host."""

    metric: str | None  # name of the matrix's metric; None for a host, which has several metrics
    verdict: str  # the result in one sentence
    structure: str  # description of which cells should be equal
    # Nodes of each package, as given or learned; None without packages.
    packages: tuple[tuple[int, ...], ...] | None
    groups: tuple[CellGroup, ...]  # the cell groups of a matrix, the best first; empty for a host
    anomalies: tuple[Anomaly, ...]  # those with the largest product of loss and certainty first
    # Smallest detectable loss of a single cell in per cent (95 % power), or None.
    detectable_percent: float | None
    noise_percent: float | None  # assumed or measured scatter, in per cent of a value
    notes: tuple[str, ...] = ()  # what was not tested and why, and which departures are structural
    checked: tuple[str, ...] = ()  # names of the tests that were made
    suspicions: tuple[Anomaly, ...] = ()  # anomalies of a host with a doubt, sorted as `anomalies`
    untested: tuple[str, ...] = ()  # kinds of places of a host that no test covers
    unusable: str = ""  # why the results are useless and what to do; empty if they are not

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return a host's findings from the values that `to_json` returned, without cell groups."""
        parts = {
            name: [Anomaly.from_json(each) for each in values.get(name, ())]
            for name in ("anomalies", "suspicions")
        }
        return super().from_json({**values, **parts})
