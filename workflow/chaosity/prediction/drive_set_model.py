"""A model of the drive sets of a host, with errors that are known from measured sets.

Drives together give what they give alone, until a measured set limits them. Comparable initiators
share their paths to drives. So a set that limits one of them also limits the others that did not
measure it.

The error is that of measured sets, each predicted from the others (conformal prediction: Vovk et
al., Algorithmic Learning in a Random World, 2005). The interval then holds at least 95 % of new
sets, if the measured sets were chosen at random among the same kind of sets. So sets do not count
if their initiator measured all of their kind, such as all pairs of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from chaosity.cpusets import parse_cpu_list
from chaosity.prediction.drive_set_bounds import (
    Drives,
    DriveSetBounds,
    NoisyValue,
    bound_drive_set,
    raise_to_best_subset,
)
from chaosity.prediction.drives_of_sets import drives_by_node_of_sets
from chaosity.statistics.moderated_variances import fit_variance_prior
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_model import SAME_NODE, SAME_PACKAGE

# Runs of simulated and real machines differ by 0.6 to 2 %. Without replicates it is the largest.
_UNKNOWN_NOISE = 0.02
_COVERAGE = 0.95
# A conformal interval of 95 % needs at least 19 errors.
FEWEST_ERRORS = 19
# A bound is the extreme of many noisy values, so it is widened by so many standard errors.
_OF_BOUNDS = 5.0
# Kinds of sets that are measured because they limit others: less than the parts is expected.
LIMITING_KINDS = ("package", "all")


class DriveSetCell(NamedTuple):
    """A drive set, read by an initiator."""

    initiator: str
    drives: Drives


class Prediction(NamedTuple):
    """A predicted bandwidth in bytes per second, without the set's own measurement.

    Attributes:
        value: the prediction.
        low, high: its 95 % prediction interval.
        bounds: bounds by sets of the same initiator.
        by_analogy: whether comparable initiators changed the prediction.
    """

    value: float
    low: float
    high: float
    bounds: DriveSetBounds
    by_analogy: bool


class DriveSetModel:
    """Predicts drive sets from measured ones; all rows are of one group of comparable rows.

    Args:
        measured: valid rows of loads alone on drives.
        unmeasured: rows of the same group that were not measured.
    """

    def __init__(self, measured: pd.DataFrame, unmeasured: pd.DataFrame) -> None:
        rows = pd.concat([measured, unmeasured])
        self.sets = drives_by_node_of_sets(Measurements(rows))
        self._drives = {
            name: frozenset[str]().union(*own.values()) for name, own in self.sets.items()
        }
        self._node_of = {
            drive: node
            for own in self.sets.values()
            for node, drives in own.items()
            for drive in drives
        }
        self.missing, self.points = self._cells(unmeasured), self._cells(measured)
        self.values = self._measured_values(measured)
        self._raised = {name: raise_to_best_subset(own) for name, own in self.values.items()}
        self._nodes_of_package, self._comparable = _packages_and_comparable_initiators(rows)
        places = rows[["initiator", "initiator_nodes"]].drop_duplicates().itertuples(index=False)
        self._own_nodes = {name: set(parse_cpu_list(str(nodes or ""))) for name, nodes in places}
        self._whole_nodes = {
            frozenset(drive for drive in self._node_of if self._node_of[drive] == node)
            for node in self._node_of.values()
        }
        self._borrowed: dict[str, dict[Drives, NoisyValue]] = {}
        self._expectations: dict[DriveSetCell, tuple[NoisyValue | None, bool]] = {}

    def _cells(self, rows: pd.DataFrame) -> dict[DriveSetCell, tuple[str, str]]:
        """Return the cell of each row whose drives are known -> its experiment and point."""
        places = rows[["initiator", "target", "experiment", "point"]].itertuples(index=False)
        return {
            cell: (experiment, point)
            for initiator, target, experiment, point in places
            if (cell := self.cell(initiator, target)) is not None
        }

    def cell(self, initiator: str, target: str) -> DriveSetCell | None:
        """Return the cell of an initiator and a drive set; None if its drives are unknown."""
        return DriveSetCell(initiator, self._drives[target]) if target in self._drives else None

    def _measured_values(self, rows: pd.DataFrame) -> dict[str, dict[Drives, NoisyValue]]:
        """Return initiator -> drive set -> median of the replicates with its error."""
        logs = rows.assign(log=np.log(rows["value"].to_numpy(float)))
        cells = logs.groupby(["initiator", "target"])["log"].agg(["median", "count", "var"])
        several = cells[cells["count"] > 1]
        noise = _UNKNOWN_NOISE
        if len(several) >= FEWEST_ERRORS:
            freedom = several["count"].to_numpy(float) - 1.0
            prior = fit_variance_prior(several["var"].to_numpy(float), freedom)
            noise = math.sqrt(prior.variance)
        found: dict[str, dict[Drives, NoisyValue]] = {}
        for (initiator, target), median, n, _ in cells.itertuples():
            # The variance of a median of more than two values is larger than that of their mean.
            error = noise * math.sqrt((math.pi / 2.0 if n > 2 else 1.0) / n)
            if target in self._drives:
                own = found.setdefault(initiator, {})
                own[self._drives[target]] = NoisyValue(math.exp(median), error)
        return found

    def bounds(self, cell: DriveSetCell) -> DriveSetBounds:
        """Return the bounds of a cell by other sets that its initiator measured."""
        return self._bounds(cell, self.values.get(cell.initiator, {}))

    def _bounds(self, cell: DriveSetCell, values: Mapping[Drives, NoisyValue]) -> DriveSetBounds:
        raised = self._raised.get(cell.initiator, {})
        return bound_drive_set(cell.drives, values, self._node_of, raised)

    def expected(self, cell: DriveSetCell) -> NoisyValue | None:
        """Return what its initiator's other sets let expect of a cell; None without such sets.

        Sets that other initiators measured, but this one did not, count too if they differ from
        what its own sets let expect.
        """
        own = self.values.get(cell.initiator, {})
        if cell.initiator not in self._borrowed:
            others = {drives for values in self.values.values() for drives in values} - own.keys()
            cells = (DriveSetCell(cell.initiator, drives) for drives in others)
            self._borrowed[cell.initiator] = {
                each.drives: value for each in cells if (value := self._analogy(each)) is not None
            }
        borrowed = self._borrowed[cell.initiator]
        return self._bounds(cell, {**borrowed, **own}).expected

    def _analogy(self, cell: DriveSetCell) -> NoisyValue | None:
        """Return what other initiators let expect of a cell; None if its own sets say the same."""
        measured = {
            name: values[cell.drives]
            for name, values in self.values.items()
            if name != cell.initiator and cell.drives in values
        }
        if len(self._nodes(cell)) == 1:
            # What drives of one node give to any initiator, they give to all if the path permits.
            found = max(measured.values(), default=None)
        else:
            group = self._comparable[cell.initiator]
            comparable = [name for name in measured if self._comparable[name] == group]
            found = _geometric_mean([self._adapted(cell, name) for name in comparable])
        bounds = self.bounds(cell)
        if found and bounds.lower and found.log_ratio_to(bounds.lower) < 0.0:
            found = bounds.lower
        if found and bounds.expected and found.log_ratio_to(bounds.expected) >= 0.0:
            return None
        return found

    def _adapted(self, cell: DriveSetCell, name: str) -> NoisyValue:
        """Return what another initiator gets from a set, for the initiator of the cell.

        Both are compared by what the sets that both measured let expect, if there are such sets.
        """
        others, own = self.values[name], self.values.get(cell.initiator, {})
        value = others[cell.drives]
        of_own = self._bounds(cell, {each: own[each] for each in own if each in others}).expected
        common = {each: others[each] for each in own if each in others}
        of_other = self._bounds(DriveSetCell(name, cell.drives), common).expected
        if of_own is None or of_other is None:
            return value
        error = math.hypot(value.error, of_own.error, of_other.error)
        return NoisyValue(value.value * of_own.value / of_other.value, error)

    def _predicted_value(self, cell: DriveSetCell) -> tuple[NoisyValue | None, bool]:
        """Return the predicted value of a cell, and whether it is by analogy."""
        if cell not in self._expectations:
            analogy = self._analogy(cell)
            value = self.expected(cell) if analogy is None else analogy
            self._expectations[cell] = value, analogy is not None
        return self._expectations[cell]

    def neighbours(self, cell: DriveSetCell) -> list[DriveSetCell]:
        """Return the unmeasured sets with the drives of a set, or with one node more or less."""
        nodes = self._nodes(cell)
        found = [
            each
            for each in self.missing
            if each.initiator == cell.initiator
            and (each.drives > cell.drives or len(nodes ^ self._nodes(each)) == 1)
        ]
        return sorted(found, key=lambda each: len(each.drives ^ cell.drives))

    def _nodes(self, cell: DriveSetCell) -> frozenset[int]:
        return frozenset(self._node_of[drive] for drive in cell.drives)

    def kind(self, cell: DriveSetCell) -> str:
        """Return the kind of a drive set by its nodes and by whether they are the initiator's."""
        nodes = self._nodes(cell)
        if len(nodes) == 1:
            near = "own" if nodes <= self._own_nodes[cell.initiator] else "other"
            return f"{'node' if cell.drives in self._whole_nodes else 'drives'} of {near} node"
        if len(nodes) == 2:
            return "pair"
        if nodes == frozenset(self._node_of.values()):
            return "all"
        return "package" if nodes in self._nodes_of_package else "other"

    @cached_property
    def audited(self) -> list[DriveSetCell]:
        """The measured sets of kinds of which the same initiator has unmeasured sets, too."""
        kinds = {(cell.initiator, self.kind(cell)) for cell in self.missing}
        return [cell for cell in self.points if (cell.initiator, self.kind(cell)) in kinds]

    @cached_property
    def errors(self) -> dict[DriveSetCell, float]:
        """The logarithm of measured : predicted value of each audited set.

        If too few sets are audited, all measured sets count.
        """
        cells = self.audited
        if len(cells) < FEWEST_ERRORS:
            cells = [cell for cell in self.points if len(cell.drives) > 1]
        values = {cell: self._predicted_value(cell)[0] for cell in cells}
        return {
            cell: math.log(self.values[cell.initiator][cell.drives].value / value.value)
            for cell, value in values.items()
            if value is not None
        }

    def error_quantile(self, cell: DriveSetCell) -> float:
        """Return the conformal quantile of the errors of other sets; infinite if too few."""
        others = [each for each in self.errors if each != cell]
        alike = [each for each in others if self.kind(each) == self.kind(cell)]
        chosen = alike if len(alike) >= FEWEST_ERRORS else others
        errors = sorted(abs(self.errors[each]) for each in chosen)
        rank = math.ceil((len(errors) + 1) * _COVERAGE)
        return errors[rank - 1] if rank <= len(errors) else math.inf

    def predict(self, cell: DriveSetCell) -> Prediction | None:
        """Return the prediction of a cell; None if other sets do not contain its drives."""
        bounds, (predicted, by_analogy) = self.bounds(cell), self._predicted_value(cell)
        if predicted is None:
            return None
        value, error = predicted
        # The interval is at least as wide as the noise of what it was predicted from.
        half = max(self.error_quantile(cell), 2.0 * error)
        ends = [value * math.exp(-half), value * math.exp(half)]
        if bounds.lower:
            ends[0] = max(ends[0], bounds.lower.times(-_OF_BOUNDS * bounds.lower.error).value)
        if bounds.upper:
            ends[1] = min(ends[1], bounds.upper.times(_OF_BOUNDS * bounds.upper.error).value)
        return Prediction(value, min(ends[0], value), max(ends[1], value), bounds, by_analogy)


def _geometric_mean(values: Sequence[NoisyValue]) -> NoisyValue | None:
    """Return the geometric mean of values with independent errors; None without values."""
    if not values:
        return None
    mean = math.exp(math.fsum(math.log(each.value) for each in values) / len(values))
    return NoisyValue(mean, math.hypot(*(each.error for each in values)) / len(values))


def _packages_and_comparable_initiators(
    rows: pd.DataFrame,
) -> tuple[set[frozenset[int]], dict[str, str]]:
    """Return the nodes of each package, and initiator -> a text equal for comparable initiators.

    Initiators are comparable if the drives of each node are as near to both: in the same package,
    or in another.
    """
    single = rows[rows["target_nodes"].astype(str).str.isdigit()]
    near = single["relation"].replace(SAME_NODE, SAME_PACKAGE).fillna("")
    places = single.assign(near=near).drop_duplicates(["initiator", "target_nodes"])
    seen = places.pivot(index="initiator", columns="target_nodes", values="near").fillna("")
    packages: dict[str, set[int]] = {}
    for node, column in seen.items():
        packages.setdefault(" ".join(column), set()).add(int(str(node)))
    texts = dict(zip(map(str, seen.index), map(" ".join, seen.to_numpy()), strict=True))
    comparable = {name: texts.get(name, name) for name in rows["initiator"]}
    return set(map(frozenset, packages.values())), comparable
