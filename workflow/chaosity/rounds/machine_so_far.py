"""The facts about a machine that a run with a budget knows from earlier runs and earlier rounds.

Earlier runs only influence the choice of measurements. Values and intervals in a report come only
from the records of the reported run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host
from chaosity.drive_set_predictions import (
    ContradictedDriveSet,
    DriveSetModel,
    drive_set_models,
    find_contradicted_drive_sets,
    predict_drive_sets,
)
from chaosity.errors import UserError
from chaosity.records.record_format import Point, PointKey, point_key
from chaosity.rounds.budget import (
    OVERHEAD_SECONDS_OF_MEASUREMENT,
    OVERHEAD_SECONDS_OF_ROUND,
    Round,
    replicate_counts,
)
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates import MAD_TO_DEVIATION
from chaosity.store.measurements import CELL_COLUMNS, Measurements, disturbed_mask
from chaosity.store.tidy_table_from_records import (
    MISSING,
    ReplicateOutcome,
    tidy_rows_of_outcome,
)
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, Row, rows_to_table
from chaosity.topology.topology_model import Topology

# The columns that identify the same cell on all equal hosts, so without the name of the host.
_CELL = [name for name in CELL_COLUMNS if name not in ("host", "configuration")]
# Smallest share of the combinations of earlier runs that the plan must contain. Hosts with equal
# nodes and cores have nearly all combinations in common; added or replaced drives change some
# combinations.
_LEAST_COMMON_SHARE_OF_EARLIER_RUNS = 0.5
# A cell departs from earlier runs if it differs from them by more than this number of robust
# standard deviations of the differences of all cells. By chance, about 3 of 1000 undisturbed cells
# differ by more.
_DEVIATIONS_OF_DEPARTING_CELL = 3.0


def cells_of_earlier_runs(
    earlier: Measurements, plan: Collection[PointKey], place: str
) -> pd.DataFrame:
    """Return for each earlier cell: median, n, and variance of the logarithm of one measurement.

    The values of several runs are pooled, so the variance includes the differences between runs.
    `earlier` has the rows of runs of this host, or of equal hosts, in the configuration of `plan`;
    `place` names the host in error messages.

    Raises:
        UserError: fewer than half of the earlier combinations are in the plan.
    """
    points = set(earlier.rows[["experiment", "point"]].itertuples(index=False, name=None))
    shared = len(points & set(plan))
    if not points or shared < _LEAST_COMMON_SHARE_OF_EARLIER_RUNS * len(points):
        raise UserError(
            f"the plan has only {shared} of the {len(points)} combinations of the earlier runs",
            place,
            "name runs of this host, or of hosts with equal nodes and cores, in known_from",
        )
    cells = _quiet_cells(earlier, _CELL)
    return cells[[*_CELL, "median", "n", "variance"]]


def _quiet_cells(measurements: Measurements, by: Collection[str]) -> pd.DataFrame:
    """Return a summary of the cells with values, without percentiles, which vary too much."""
    cells = summarise_cells(measurements.performance_rows().without_percentiles(), list(by))
    return cells[cells["n"] > 0].reset_index(drop=True)


REASON_OF_LEFT_OUT_POINT = "the budget leaves it out"


@dataclass(frozen=True)
class MachineSoFar:
    """What a run with a budget has found out about a machine, and the time of its measurements."""

    # The complete plan: all points with all replicates of a run without a budget.
    points: Sequence[Point]
    topology: Topology  # the topology of the machine
    # Facts that the search for anomalies uses: packages, models and core kinds.
    facts: HostComponentFacts = field(default_factory=HostComponentFacts)
    rounds: Sequence[Round] = ()  # the rounds so far, of which all measurements are done
    # The tidy table of the records so far; empty before the first round.
    measured: Measurements = field(default_factory=lambda: missing_rows_of_points(()))
    # (experiment, point) -> duration in seconds of each record of this point
    record_seconds: Mapping[PointKey, Sequence[float]] = field(default_factory=dict)
    # Cells of earlier runs, see `cells_of_earlier_runs`; None without earlier runs.
    earlier_cells: pd.DataFrame | None = None

    @property
    def spent_seconds(self) -> float:
        """Return the seconds that the rounds of this budget took, including starts of processes."""
        free = replicate_counts(each for each in self.rounds if each.earlier)
        return OVERHEAD_SECONDS_OF_ROUND * sum(not each.earlier for each in self.rounds) + sum(
            sum(listed[free[key] :]) + OVERHEAD_SECONDS_OF_MEASUREMENT * len(listed[free[key] :])
            for key, listed in self.record_seconds.items()
        )

    @cached_property
    def findings(self) -> Findings:
        """Return the findings from all values measured so far."""
        return analyse_host(self.measured, self.facts)

    @cached_property
    def cells_with_known_values(self) -> pd.DataFrame:
        """The summary of the measured cells, with the columns `known_median`, `known_variance`.

        The columns `known_median` and `known_variance` have values of earlier runs, and NaN for
        cells that earlier runs lack. The column `own_variance` is the variance of the logarithm
        over the replicates of the cell in this run. The variance is NaN for a single replicate.
        """
        cells, known = _quiet_cells(self.measured, CELL_COLUMNS), self.earlier_cells
        cells["own_variance"] = (cells["standard_deviation"] / cells["median"]) ** 2
        if known is None:
            return cells.assign(known_median=np.nan, known_variance=np.nan)
        names = {"median": "known_median", "variance": "known_variance"}
        return cells.merge(known.drop(columns="n").rename(columns=names), "left", on=_CELL)

    @property
    def cells_departing_from_earlier_runs(self) -> pd.DataFrame:
        """Return the cells whose median departs from the median of earlier runs.

        The usual difference of two runs is computed from the median absolute deviation of the
        differences of all cells of a metric, which a few changed cells hardly affect. The usual
        difference is at least the usual difference of two measurements of one run.
        """
        cells = self.cells_with_known_values
        difference = pd.Series(np.log(cells["median"] / cells["known_median"]))
        kinds = [cells["experiment"], cells["metric"]]
        centre = difference.groupby(kinds).transform("median")
        spread = (difference - centre).abs().groupby(kinds).transform("median") * MAD_TO_DEVIATION
        least = (2.0 * cells["known_variance"].fillna(0.0)) ** 0.5
        return cells[
            (difference - centre).abs() > _DEVIATIONS_OF_DEPARTING_CELL * np.maximum(spread, least)
        ]

    @property
    def points_with_values(self) -> set[PointKey]:
        """Return the points of which at least one replicate has a valid value."""
        rows = self.measured.valid_rows().rows[["experiment", "point"]].drop_duplicates()
        return set(rows.itertuples(index=False, name=None))

    @property
    def undisturbed_replicates(self) -> Counter[PointKey]:
        """Return point -> number of its replicates with valid values that nothing disturbed."""
        rows = self.measured.valid_rows().rows
        names = [rows[name] for name in ("experiment", "point", "replicate")]
        of_replicates = disturbed_mask(rows).groupby(names).any()
        quiet = of_replicates[~of_replicates].reset_index()
        return Counter(zip(quiet["experiment"], quiet["point"], strict=True))

    @cached_property
    def unmeasured(self) -> Measurements:
        """Return rows of the tidy table, without values, for points that no round measures."""
        done = replicate_counts(self.rounds)
        return missing_rows_of_points(point for point in self.points if not done[point_key(point)])

    @cached_property
    def _drive_sets(self) -> list[DriveSetModel]:
        """Return the models from which values of drive sets are predicted."""
        return drive_set_models(self.measured, self.unmeasured)

    @cached_property
    def predicted(self) -> pd.DataFrame:
        """Return the rows with predicted values for points that no round measures."""
        return predict_drive_sets(self._drive_sets)

    @cached_property
    def surprises(self) -> list[ContradictedDriveSet]:
        """Return the measured drive sets whose values contradict the values of other drive sets."""
        return find_contradicted_drive_sets(self._drive_sets)


def missing_rows_of_points(points: Iterable[Point]) -> Measurements:
    """Return the rows of unmeasured points for the tidy table, with the status "missing"."""
    rows: list[Row] = []
    for point in points:
        rows += tidy_rows_of_outcome(point, 1, ReplicateOutcome(MISSING, REASON_OF_LEFT_OUT_POINT))
    return Measurements.from_table(rows_to_table(rows, COLUMN_TYPES))


class SecondsOfPoints:
    """Expected time of one measurement of each point, in seconds.

    For a measured point, this is the median time of its measurements. For another point, it is the
    estimate in the plan, times the typical ratio of measured to estimated time in the experiment of
    the point. `record_seconds` is (experiment, point) -> duration of each record of this point.
    """

    def __init__(
        self, points: Iterable[Point], record_seconds: Mapping[PointKey, Sequence[float]]
    ) -> None:
        estimates = {point_key(point): point["estimated_seconds"] for point in points}
        measured = {
            key: float(np.median(listed))
            for key, listed in record_seconds.items()
            if listed and key in estimates
        }
        ratios: dict[str, list[float]] = defaultdict(list)
        for key, seconds in measured.items():
            ratios[key[0]].append(seconds / estimates[key])
        typical = {name: float(np.median(own)) for name, own in ratios.items()}
        expected = {key: each * typical.get(key[0], 1.0) for key, each in estimates.items()}
        self._seconds = {
            key: each + OVERHEAD_SECONDS_OF_MEASUREMENT
            for key, each in {**expected, **measured}.items()
        }

    def total_of(self, keys: Iterable[PointKey]) -> float:
        """Return the sum of the expected times of one measurement of each given point."""
        return sum(self._seconds[key] for key in keys)
