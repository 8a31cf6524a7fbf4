"""Predict drive sets that were not measured, with bounds and intervals.

A drive set has a lower and an upper bound. The bandwidth of a set is at least the bandwidth of each
subset, since more drives never give less bandwidth. It is at most the bandwidth of each superset,
and at most the sum of the bandwidths of its parts.

Drives that are read together are as fast as alone, unless a measured set shows a limit. Comparable
initiators share their paths to drives. So a set whose path limits one initiator also limits
comparable initiators from which the set was not measured.

Measured sets show the error of predictions: each measured set is predicted from the other sets, and
the prediction is compared with the measurement (conformal prediction: Vovk et al., Algorithmic
Learning in a Random World, 2005). The resulting interval contains the values of at least 95 % of
new sets, if the measured sets were chosen at random among sets of the same kind. So a set does not
count if all sets of its kind, such as all pairs of nodes, were measured from its initiator.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from chaosity.statistics.cell_summary import with_variance_priors
from chaosity.statistics.estimates import LEAST_REPORTED_DIFFERENCE, variance_of_median
from chaosity.store.measurements import (
    PREDICTED,
    PREDICTION_COLUMNS,
    PREDICTION_NUMBERS,
    SLICE_COLUMNS,
    Measurements,
    Table,
    parse_nodes,
)
from chaosity.store.tidy_table_parquet import Row, none_for_missing_values, rows_to_table
from chaosity.topology.topology_model import SAME_NODE, SAME_PACKAGE
from chaosity.units import format_count, format_percent

_DriveNames = frozenset[str]
PartOfSet = TypeVar("PartOfSet", bound=Hashable)
# Number of standard errors above which noise does not explain the difference of two values. A large
# server needs some thousand comparisons, and about one in 400 exceeds this limit by chance.
STANDARD_ERRORS_OF_SIGNIFICANCE = 3.0
DrivesByNode = Mapping[int, frozenset[str]]


class NoisyValue(NamedTuple):
    """A bandwidth and its standard error, which is a share of the bandwidth."""

    value: float
    error: float

    def significant_log_ratio_to(self, other: NoisyValue) -> float:
        """Return the logarithm of the ratio to another value; 0 if noise can explain the ratio."""
        ratio = math.log(self.value / other.value)
        noise = STANDARD_ERRORS_OF_SIGNIFICANCE * math.hypot(self.error, other.error)
        return ratio if abs(ratio) > noise else 0.0

    @classmethod
    def total(cls, parts: Sequence[NoisyValue]) -> NoisyValue:
        """Return the sum of values with independent errors."""
        value = math.fsum(part.value for part in parts)
        return cls(value, math.hypot(*(part.value * part.error for part in parts)) / value)

    @classmethod
    def mean(cls, values: Sequence[NoisyValue]) -> NoisyValue | None:
        """Return the geometric mean of values with independent errors; None without values."""
        if not values:
            return None
        logs = math.fsum(math.log(each.value) for each in values) / len(values)
        return cls(math.exp(logs), math.hypot(*(each.error for each in values)) / len(values))


class _DriveSetBounds(NamedTuple):
    """The bounds that measured drive sets give for another drive set."""

    lower: NoisyValue | None = None  # value of the best subset; None if no subset was measured
    # Lowest sum of the values of measured sets that together contain the drives; None if no sets
    # do.
    upper: NoisyValue | None = None
    # Value of the set if it has only the limits that measured sets show.
    expected: NoisyValue | None = None


def bound_drive_set(
    wanted: _DriveNames,
    measured: Mapping[_DriveNames, NoisyValue],
    node_of: Mapping[str, int],
    raised: Mapping[_DriveNames, NoisyValue],
) -> _DriveSetBounds:
    """Return the bounds of a drive set.

    Args:
        wanted: the drives of the set. If the set itself was measured, this measurement is not used.
        measured: what the initiator gets from each measured set, single drives included.
        node_of: the node of each drive.
        raised: measured set -> higher value, which is used where the set limits other sets, see
            `values_raised_to_best_subset`.
    """
    subsets = [value for own, value in measured.items() if own < wanted]
    nodes = {
        node: frozenset(drive for drive in wanted if node_of[drive] == node)
        for node in {node_of[drive] for drive in wanted}
    }
    # A set of one node is a part of the node's drives; a set of several nodes is a part of all
    # nodes.
    of_node: dict[int, dict[_DriveNames, NoisyValue]] = {node: {} for node in nodes}
    of_nodes: dict[frozenset[int], NoisyValue] = {}
    supersets = []
    for own, value in measured.items():
        own_nodes = {node_of[drive] for drive in own}
        if own == wanted or own_nodes.isdisjoint(nodes):
            continue
        if not own < wanted:
            value = raised.get(own, value)
        if own > wanted:
            supersets.append(value)
        if len(own_nodes) == 1:
            of_node[min(own_nodes)][own] = value
        elif covered := frozenset(node for node, drives in nodes.items() if drives <= own):
            of_nodes[covered] = min(value, of_nodes.get(covered, value))
    for node, drives in nodes.items():
        if (alone := lowest_sum_of_cover(drives, of_node[node])) is not None:
            key = frozenset({node})
            of_nodes[key] = min(alone, of_nodes.get(key, alone))
    upper = lowest_sum_of_cover(frozenset(nodes), of_nodes)
    if upper is None:
        return _DriveSetBounds(max(subsets, default=None))
    # The lowest of several noisy values is on average too low. So all values whose difference noise
    # can explain are averaged.
    alike = [each for each in (*supersets, *subsets) if each.significant_log_ratio_to(upper) == 0.0]
    return _DriveSetBounds(max(subsets, default=None), upper, NoisyValue.mean([*alike, upper]))


def values_raised_to_best_subset(
    measured: Mapping[_DriveNames, NoisyValue],
) -> dict[_DriveNames, NoisyValue]:
    """Return measured set -> value of its best subset, for sets that are slower than a subset.

    If a set is clearly slower than one of its subsets, either its measurement was disturbed, or its
    drives disturb one another. Whether the measurement or the drives are disturbed, the low value
    of the set says nothing about smaller sets.
    """
    raised: dict[_DriveNames, NoisyValue] = {}
    for own, value in measured.items():
        best = max((other for part, other in measured.items() if part < own), default=value)
        if best.significant_log_ratio_to(value) > 0.0:
            raised[own] = best
    return raised


def lowest_sum_of_cover(
    wanted: frozenset[PartOfSet], family: Mapping[frozenset[PartOfSet], NoisyValue]
) -> NoisyValue | None:
    """Return the lowest sum of values of sets that together contain `wanted`; None if none do."""
    parts: dict[frozenset[PartOfSet], NoisyValue] = {}
    for own, value in family.items():
        if part := own & wanted:
            parts[part] = min(value, parts.get(part, value))
    if not wanted <= frozenset[PartOfSet]().union(*parts):
        return None
    single = {part: parts[frozenset({part})] for part in wanted if frozenset({part}) in parts}
    kept: dict[frozenset[PartOfSet], NoisyValue] = {}
    for part in sorted(parts, key=len, reverse=True):
        value, alone = parts[part], [single[each] for each in part if each in single]
        # A set shows no limit if it gives as much as its parts together. A subset of a larger set
        # shows no limit if the larger set has a lower value.
        is_sum = (
            1 < len(part) == len(alone)
            and value.significant_log_ratio_to(NoisyValue.total(alone)) >= 0.0
        )
        if not is_sum and not any(part < other and value >= kept[other] for other in kept):
            kept[part] = value
    return _lowest_sum(wanted, kept, [], None)


def _lowest_sum(
    wanted: frozenset[PartOfSet],
    family: Mapping[frozenset[PartOfSet], NoisyValue],
    begun: list[NoisyValue],
    best: NoisyValue | None,
) -> NoisyValue | None:
    """Return the lower of `best` and the lowest sum of `begun` and sets that cover `wanted`."""
    if begun and best is not None and NoisyValue.total(begun) >= best:
        return best
    if not wanted:
        return NoisyValue.total(begun)
    first = min(wanted, key=lambda part: sum(part in own for own in family))
    for own in sorted((own for own in family if first in own), key=lambda own: -len(own & wanted)):
        best = _lowest_sum(wanted - own, family, [*begun, family[own]], best)
    return best


def drives_by_node_of_sets(
    rows: Measurements, known: Mapping[int, Sequence[str]] | None = None
) -> dict[str, DrivesByNode]:
    """Return drive set -> node -> names of the set's drives at this node.

    Args:
        rows: rows of loads on drives.
        known: node -> names of its drives. If drives were only read together, their names come from
            this mapping, unless the measurement left out some drives of the node.

    A set is left out if its drives are unknown. The drives are unknown if their node is unknown. If
    a set has the first drives of a node, they are also unknown unless the node's single drives or
    all its drives together were measured.
    """
    columns = ["target", "target_kind", "target_nodes", "drives"]
    sets = rows.rows[columns].drop_duplicates("target").sort_values("target")
    names_at = {str(node): sorted(names) for node, names in (known or {}).items()}
    at_node: dict[str, list[str]] = {}
    for name, kind, nodes, _ in sets.itertuples(index=False):
        if kind == "drive":
            at_node.setdefault(str(nodes or ""), []).append(name)
    for _, kind, nodes, number in sets.itertuples(index=False):
        if kind == "all_of_node" and len(at_node.get(str(nodes), [])) < int(number):
            names = names_at.get(str(nodes), [])
            unnamed = [f"{nodes}#{index}" for index in range(int(number))]
            at_node[str(nodes)] = names if len(names) == int(number) else unnamed
    found: dict[str, DrivesByNode] = {}
    for name, kind, nodes, number in sets.itertuples(index=False):
        first = int(number) if kind == "first_of_node" else None
        own = {
            node: frozenset([name] if kind == "drive" else at_node.get(str(node), [])[:first])
            for node in parse_nodes(nodes)
        }
        if sum(map(len, own.values())) == int(number):
            found[name] = own
    return found


_GROUP_COLUMNS = ("host", "configuration", *SLICE_COLUMNS)
_PREDICTION_METHOD = "limits of measured drive sets"
# Assumed standard error, as a share, of values without replicates. Runs of simulated and real
# machines differ by 0.6 to 2 %.
_ASSUMED_NOISE = 0.02
_COVERAGE_OF_INTERVALS = 0.95
# A conformal interval of 95 % needs at least 19 errors.
FEWEST_ERRORS_FOR_INTERVAL = 19
# Number of standard errors by which a bound is widened, because a bound is the extreme of many
# noisy values.
_STANDARD_ERRORS_TO_WIDEN = 5.0
# Largest ratio of the two ends of a prediction interval. A prediction with a wider interval than
# 2/3 to 3/2 of the value says too little.
_MOST_RATIO_OF_ENDS = 1.5**2


class DriveSetCell(NamedTuple):
    """A drive set, read by an initiator."""

    initiator: str
    drives: _DriveNames


class Prediction(NamedTuple):
    """A bandwidth in bytes per second, predicted without the measurement of the set itself."""

    value: float  # the predicted bandwidth
    # low, high: 95 % prediction interval of `value`.
    low: float
    high: float
    bounds: _DriveSetBounds  # bounds from sets of the same initiator


class DriveSetModel:
    """Predicts drive sets from measured drive sets; all rows are of one group of comparable rows.

    Args:
        measured: valid rows of loads that ran alone, on drives.
        unmeasured: rows of the same group that were not measured.
    """

    def __init__(self, measured: pd.DataFrame, unmeasured: pd.DataFrame) -> None:
        rows = pd.concat([measured, unmeasured])
        sets = drives_by_node_of_sets(Measurements(rows))
        self._drives = {name: frozenset[str]().union(*own.values()) for name, own in sets.items()}
        self._node_of = {
            drive: node for own in sets.values() for node, drives in own.items() for drive in drives
        }
        self.missing, self.points = (
            self._row_of_each_cell(unmeasured),
            self._row_of_each_cell(measured),
        )
        self.values = self._measured_values(measured)
        self._raised = {
            name: values_raised_to_best_subset(own) for name, own in self.values.items()
        }
        # Initiator -> its own nodes, and all nodes of its package, as far as they have drives.
        self._own_nodes = _nodes_by_relation(rows, SAME_NODE)
        self._near_nodes = _nodes_by_relation(rows, SAME_NODE, SAME_PACKAGE)
        self._borrowed: dict[str, dict[_DriveNames, NoisyValue]] = {}
        self._predicted: dict[DriveSetCell, NoisyValue | None] = {}

    def _row_of_each_cell(self, rows: pd.DataFrame) -> dict[DriveSetCell, Row]:
        """Return each cell whose drives are known -> one row of this cell."""
        records: list[Row] = none_for_missing_values(rows).to_dict("records")  # type: ignore
        return {
            DriveSetCell(row["initiator"], self._drives[row["target"]]): row
            for row in records
            if row["target"] in self._drives
        }

    def _measured_values(self, rows: pd.DataFrame) -> dict[str, dict[_DriveNames, NoisyValue]]:
        """Return initiator -> drive set -> median of the replicates, and error of this median."""
        rows = with_variance_priors(Measurements(rows)).rows
        rows = rows.assign(log=np.log(rows["value"].to_numpy(float)))
        cells = rows.groupby(["initiator", "target"]).agg(
            {"log": ["median", "count"], "prior_variance": "first"}
        )
        found: dict[str, dict[_DriveNames, NoisyValue]] = {}
        for (initiator, target), middle, n, variance in cells.itertuples():
            noise = _ASSUMED_NOISE if math.isnan(variance) else math.sqrt(variance)
            error = noise * math.sqrt(variance_of_median(n))
            if target in self._drives:
                own = found.setdefault(initiator, {})
                own[self._drives[target]] = NoisyValue(math.exp(middle), error)
        return found

    def bounds_from_other_sets(
        self, cell: DriveSetCell, values: Mapping[_DriveNames, NoisyValue] | None = None
    ) -> _DriveSetBounds:
        """Return the bounds of a cell, by default from the measured sets of its initiator."""
        known = self.values.get(cell.initiator, {}) if values is None else values
        raised = self._raised.get(cell.initiator, {})
        return bound_drive_set(cell.drives, known, self._node_of, raised)

    def expected_value(self, cell: DriveSetCell) -> NoisyValue | None:
        """Return a cell's value that other sets of its initiator predict; None if no set does.

        Sets that were measured only from other initiators are also used, if they contradict the
        value from the sets of this initiator.
        """
        own = self.values.get(cell.initiator, {})
        if cell.initiator not in self._borrowed:
            others = {drives for values in self.values.values() for drives in values} - own.keys()
            cells = (DriveSetCell(cell.initiator, drives) for drives in others)
            self._borrowed[cell.initiator] = {
                each.drives: value
                for each in cells
                if (value := self._value_by_other_initiators(each)) is not None
            }
        return self.bounds_from_other_sets(cell, {**self._borrowed[cell.initiator], **own}).expected

    def _value_by_other_initiators(self, cell: DriveSetCell) -> NoisyValue | None:
        """Return the value of a cell that follows from the sets of other initiators.

        The result is None if the sets of the cell's initiator predict about the same value.
        """
        measured = {
            name: values[cell.drives]
            for name, values in self.values.items()
            if name != cell.initiator and cell.drives in values
        }
        if len(self._nodes_of_cell(cell)) == 1:
            # The drives of one node are equally fast for all initiators, unless a path limits these
            # drives.
            found = max(measured.values(), default=None)
        else:
            near = self._near_nodes[cell.initiator]
            alike = [name for name in measured if self._near_nodes[name] == near]
            limits = (self._value_scaled_from_initiator(name, cell) for name in alike)
            found = NoisyValue.mean([each for each in limits if each is not None])
        bounds = self.bounds_from_other_sets(cell)
        if found and bounds.lower and found.significant_log_ratio_to(bounds.lower) < 0.0:
            found = bounds.lower
        if found and bounds.expected and found.significant_log_ratio_to(bounds.expected) >= 0.0:
            return None
        return found

    def _value_scaled_from_initiator(self, name: str, cell: DriveSetCell) -> NoisyValue | None:
        """Return initiator `name`'s value of the cell's drive set, scaled to the cell's initiator.

        The result is None if the sets that were measured from both initiators explain the value of
        `name`. The value is multiplied by the median ratio of the two initiators over these sets,
        since one initiator can be slow.
        """
        others, own = self.values[name], self.values.get(cell.initiator, {})
        common = {each: others[each] for each in others if each in own and each != cell.drives}
        expected = self.bounds_from_other_sets(DriveSetCell(name, cell.drives), common).expected
        if expected is not None and others[cell.drives].significant_log_ratio_to(expected) == 0.0:
            return None
        ratios = [own[drives].value / value.value for drives, value in common.items()] or [1.0]
        value, error = others[cell.drives]
        return NoisyValue(value * median(ratios), error * math.sqrt(1.0 + 2.0 / len(ratios)))

    def _predicted_value(self, cell: DriveSetCell) -> NoisyValue | None:
        if cell not in self._predicted:
            self._predicted[cell] = self._value_by_other_initiators(cell) or self.expected_value(
                cell
            )
        return self._predicted[cell]

    def unmeasured_neighbours(self, cell: DriveSetCell) -> list[DriveSetCell]:
        """Return unmeasured sets that have all drives of a given set, or one node more or less."""
        nodes = self._nodes_of_cell(cell)
        found = [
            each
            for each in self.missing
            if each.initiator == cell.initiator
            and (each.drives > cell.drives or len(nodes ^ self._nodes_of_cell(each)) == 1)
        ]
        return sorted(found, key=lambda each: len(each.drives ^ cell.drives))

    def _nodes_of_cell(self, cell: DriveSetCell) -> frozenset[int]:
        return frozenset(self._node_of[drive] for drive in cell.drives)

    def shows_limit_of_node_or_package(self, cell: DriveSetCell) -> bool:
        """Return whether a set shows the limit of a node, of a package or of all nodes."""
        nodes = self._nodes_of_cell(cell)
        every = frozenset(self._node_of.values())
        return len(nodes) == 1 or nodes == every or nodes in self._near_nodes.values()

    def kind_of_set(self, cell: DriveSetCell) -> tuple[int, bool, bool]:
        """Return the kind of a set: (number of nodes, is complete, is local).

        More than three nodes count as three. A set of one node is complete if it contains all
        drives of the node. A set of several nodes is complete if it shows the limit of a package or
        of all nodes. Only sets of one node can be local.
        """
        nodes = self._nodes_of_cell(cell)
        if len(nodes) > 1:
            return min(len(nodes), 3), self.shows_limit_of_node_or_package(cell), False
        whole = sum(node in nodes for node in self._node_of.values()) == len(cell.drives)
        return 1, whole, nodes <= self._own_nodes[cell.initiator]

    @cached_property
    def measured_sets_like_unmeasured(self) -> list[DriveSetCell]:
        """Return measured sets whose initiator also has unmeasured sets of the same kind.

        To test predictions, each returned set is predicted without the measurement of this set.
        """
        kinds = {(cell.initiator, self.kind_of_set(cell)) for cell in self.missing}
        return [cell for cell in self.points if (cell.initiator, self.kind_of_set(cell)) in kinds]

    @cached_property
    def errors(self) -> dict[DriveSetCell, float]:
        """Return log(measured / predicted value) of audited sets or, if they are few, all sets."""
        cells = self.measured_sets_like_unmeasured
        if len(cells) < FEWEST_ERRORS_FOR_INTERVAL:
            cells = [cell for cell in self.points if len(cell.drives) > 1]
        values = {cell: self._predicted_value(cell) for cell in cells}
        return {
            cell: math.log(self.values[cell.initiator][cell.drives].value / value.value)
            for cell, value in values.items()
            if value is not None
        }

    def error_quantile(self, cell: DriveSetCell) -> float:
        """Return the conformal quantile of the errors of other sets; infinite for too few sets."""
        others = [each for each in self.errors if each != cell]
        alike = [each for each in others if self.kind_of_set(each) == self.kind_of_set(cell)]
        chosen = alike if len(alike) >= FEWEST_ERRORS_FOR_INTERVAL else others
        errors = sorted(abs(self.errors[each]) for each in chosen)
        rank = math.ceil((len(errors) + 1) * _COVERAGE_OF_INTERVALS)
        return errors[rank - 1] if rank <= len(errors) else math.inf

    def predict(self, cell: DriveSetCell) -> Prediction | None:
        """Return the prediction of a cell; None if it is too uncertain, or if no part was measured.

        A measured larger set does not suffice: one drive of a set of four may give a quarter of the
        bandwidth of the set, or all of it.
        """
        parts = [own for values in self.values.values() for own in values if own <= cell.drives]
        predicted = self._predicted_value(cell)
        if predicted is None or frozenset[str]().union(*parts) != cell.drives:
            return None
        (value, error), bounds = predicted, self.bounds_from_other_sets(cell)
        # The interval is at least as wide as the noise of the values from which the cell is
        # predicted.
        half = max(self.error_quantile(cell), 2.0 * error)
        ends = [value * math.exp(-half), value * math.exp(half)]
        if bounds.lower:
            ends[0] = max(
                ends[0],
                bounds.lower.value * math.exp(-_STANDARD_ERRORS_TO_WIDEN * bounds.lower.error),
            )
        if bounds.upper:
            ends[1] = min(
                ends[1],
                bounds.upper.value * math.exp(_STANDARD_ERRORS_TO_WIDEN * bounds.upper.error),
            )
        low, high = min(ends[0], value), max(ends[1], value)
        return Prediction(value, low, high, bounds) if high <= _MOST_RATIO_OF_ENDS * low else None


def _nodes_by_relation(rows: pd.DataFrame, *relations: str) -> dict[str, frozenset[int]]:
    """Return initiator -> nodes with drives that have a given relation to the initiator."""
    single = rows[rows["target_nodes"].astype(str).str.isdigit() & rows["relation"].isin(relations)]
    nodes = single["target_nodes"].astype(int).groupby(single["initiator"]).agg(frozenset)
    return {name: nodes.get(name, frozenset()) for name in rows["initiator"].unique()}


@dataclass(frozen=True)
class PredictionAudit:
    """How well drive sets were predicted from other sets, compared with their measurements."""

    sets: int  # number of audited sets, see `DriveSetModel.measured_sets_like_unmeasured`
    within: int  # number of audited sets whose value is in its 95 % prediction interval
    # median_error, error_of_95_percent: quantiles of the errors as shares of the prediction; None
    # if no sets were audited.
    median_error: float | None = None
    error_of_95_percent: float | None = None

    @property
    def text(self) -> str:
        """Return a sentence on the audit."""
        if self.median_error is None or self.error_of_95_percent is None:
            return "the error is unknown, since no drive set was chosen at random and measured"
        median, most = map(format_percent, (self.median_error, self.error_of_95_percent))
        return (
            f"{self.within} of {format_count(self.sets, 'audited drive set')} lie in the 95 % "
            f"interval that was predicted without them; their median error is {median}, and 95 % "
            f"of the errors are at most {most}"
        )


@dataclass(frozen=True)
class ContradictedDriveSet:
    """A measured drive set that the other measured sets contradict."""

    # experiment, point: the measured point.
    experiment: str
    point: str
    ratio: float  # measured bandwidth divided by the contradicting bound or prediction
    reason: str  # a text that says what the measurement contradicts
    # Unmeasured points of the same initiator that read all drives of the set, or drives of one node
    # more or less. The most similar point comes first.
    neighbours: tuple[str, ...]


def drive_set_models(measured: Table, unmeasured: Table) -> list[DriveSetModel]:
    """Return the model of each group of comparable drive sets.

    Args:
        measured: the tidy table of a run.
        unmeasured: rows of the cells to predict. Cells without a drive set, cells of several loads,
            and sets with drives that no measured set has, are left out.
    """
    known = _drive_rows(Measurements.from_table(measured).valid_rows()).assign(known=True)
    missing = _drive_rows(Measurements.from_table(unmeasured)).assign(known=False)
    rows = pd.concat([known, missing], ignore_index=True)
    groups = rows.groupby(list(_GROUP_COLUMNS), dropna=False, sort=False)
    return [
        DriveSetModel(part[part["known"]], part[~part["known"]])
        for _, part in groups
        if part["known"].any()
    ]


def predict_drive_sets(models: Iterable[DriveSetModel]) -> pd.DataFrame:
    """Return predicted bandwidths of unmeasured drive sets, with the columns `PREDICTION_COLUMNS`.

    The numbers are in bytes per second: the predicted `value` with its 95 % prediction interval
    `low` to `high`, and `lower_bound` and `upper_bound`, which follow from measured sets of the
    same initiator.
    """
    rows: list[Row] = []
    cells = ((model.predict(cell), row) for model in models for cell, row in model.missing.items())
    for predicted, row in cells:
        if predicted is None:
            continue
        bounds = predicted.bounds
        # Noise can make the lower of two equal bounds the higher one.
        ends = [each.value for each in (bounds.lower, bounds.upper) if each]
        limits = (min(ends) if bounds.lower else None, max(ends) if bounds.upper else None)
        own = dict(zip(PREDICTION_NUMBERS, (*predicted[:3], *limits), strict=True))
        rows.append({**row, **own, "origin": PREDICTED, "method": _PREDICTION_METHOD})
    return rows_to_table(rows, PREDICTION_COLUMNS)


def audit_predictions(models: Iterable[DriveSetModel]) -> PredictionAudit:
    """Return how well measured sets were predicted from other sets.

    The sets are those of `DriveSetModel.measured_sets_like_unmeasured`.
    """
    errors, within = [], 0
    for model in models:
        for cell in model.measured_sets_like_unmeasured:
            if (predicted := model.predict(cell)) is not None:
                value = model.values[cell.initiator][cell.drives].value
                errors.append(abs(value / predicted.value - 1.0))
                within += predicted.low <= value <= predicted.high
    quantiles = map(float, np.quantile(errors, [0.5, 0.95])) if errors else ()
    return PredictionAudit(len(errors), within, *quantiles)


def find_contradicted_drive_sets(models: Iterable[DriveSetModel]) -> list[ContradictedDriveSet]:
    """Return the measured drive sets that the other measured sets contradict.

    A contradicted set is slower than one of its subsets, faster than its parts together, faster
    than a larger set, or below the prediction interval that other sets of the initiator give. Noise
    does not explain the difference.
    """
    found = (_contradiction_of_cell(model, cell) for model in models for cell in model.points)
    return [surprise for surprise in found if surprise is not None]


def _contradiction_of_cell(model: DriveSetModel, cell: DriveSetCell) -> ContradictedDriveSet | None:
    """Return how a measured cell contradicts the other cells; None if it does not."""
    bounds, value = model.bounds_from_other_sets(cell), model.values[cell.initiator][cell.drives]
    if (limit := bounds.lower) and value.significant_log_ratio_to(limit) < 0.0:
        reason = "less than a part of these drives gives"
    elif (limit := bounds.upper) and value.significant_log_ratio_to(limit) > 0.0:
        reason = "more than its parts give together, or than a larger set gives"
    elif (
        (limit := model.expected_value(cell))
        and not model.shows_limit_of_node_or_package(cell)
        and value.significant_log_ratio_to(limit) < 0.0
        and math.log(limit.value / value.value) > model.error_quantile(cell)
    ):
        reason = "less than its prediction interval allows"
    else:
        return None
    row, ratio = model.points[cell], value.value / limit.value
    if abs(ratio - 1.0) < LEAST_REPORTED_DIFFERENCE:
        return None
    neighbours = tuple(model.missing[each]["point"] for each in model.unmeasured_neighbours(cell))
    return ContradictedDriveSet(row["experiment"], row["point"], ratio, reason, neighbours)


def _drive_rows(table: Measurements) -> pd.DataFrame:
    """Return the bandwidth rows of loads that accessed drives and ran alone."""
    rows = table.single_load_rows().rows
    bandwidth = rows["metric"].astype(str).str.endswith("bandwidth_bytes_per_second")
    return rows[bandwidth & (rows["drives"] > 0)]
