"""What earlier runs say about a machine: the values to expect, and how much they scatter.

Earlier runs only steer what is measured. Values and intervals of a report come from the records of
its own run.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from chaosity.errors import UserError
from chaosity.rounds.round_types import PointKey
from chaosity.statistics.cell_summary import summarise_cells
from chaosity.statistics.estimates import MAD_TO_DEVIATION
from chaosity.store.measurements import CELL, Measurements, is_percentile

# The columns that identify a cell on all equal hosts, so without the name of the host.
_CELL = [name for name in CELL if name not in ("host", "configuration")]
# Least share of the earlier runs' combinations that the plan must have, too. Hosts with equal nodes
# and cores have nearly all in common; added or replaced drives change some.
_LEAST_SHARED = 0.5
# A cell departs from earlier runs if it differs from them by more than this many robust standard
# deviations of such differences. By chance, about 3 of 1000 undisturbed cells differ so much.
_DEPARTURE = 3.0


def cells_of_earlier_runs(
    earlier: Measurements, plan: Collection[PointKey], place: str
) -> pd.DataFrame:
    """Return for each earlier cell: median, n, and variance of the logarithm of one measurement.

    The values of several runs count together, so the variance contains how much runs differ.
    `earlier` has the rows of runs of this host, or of equal hosts, in the configuration of `plan`;
    `place` says in error messages which host this is.

    Raises:
        UserError: fewer than half of the earlier combinations are in the plan.
    """
    points = set(earlier.rows[["experiment", "point"]].itertuples(index=False, name=None))
    shared = len(points & set(plan))
    if not points or shared < _LEAST_SHARED * len(points):
        raise UserError(
            f"the plan has only {shared} of the {len(points)} combinations of the earlier runs",
            place,
            "name runs of this host, or of hosts with equal nodes and cores, in known_from",
        )
    cells = _quiet_cells(earlier, _CELL)
    return cells[[*_CELL, "median", "n", "variance"]]


def cells_with_known_values(measured: Measurements, known: pd.DataFrame | None) -> pd.DataFrame:
    """Return the summary of the measured cells, with the columns `known_median`, `known_variance`.

    These two are from `known`, and NaN for cells that `known` lacks. The column `own_variance` has
    the variance of the logarithm over the cell's own replicates; NaN for one replicate.
    """
    cells = _quiet_cells(measured, CELL)
    cells["own_variance"] = (cells["standard_deviation"] / cells["median"]) ** 2
    if known is None:
        return cells.assign(known_median=np.nan, known_variance=np.nan)
    names = {"median": "known_median", "variance": "known_variance"}
    return cells.merge(known.drop(columns="n").rename(columns=names), "left", on=_CELL)


def departs_from_earlier_runs(cells: pd.DataFrame) -> pd.Series:
    """Return whether the median of each cell departs from the median of earlier runs.

    `cells` is the result of `cells_with_known_values`.

    How much two runs usually differ is the median absolute deviation of the differences of all
    cells of a metric, since few changed cells hardly move it. Two runs differ at least as much as
    two measurements of one run.
    """
    difference = pd.Series(np.log(cells["median"] / cells["known_median"]))
    kinds = [cells["experiment"], cells["metric"]]
    centre = difference.groupby(kinds).transform("median")
    spread = (difference - centre).abs().groupby(kinds).transform("median") * MAD_TO_DEVIATION
    least = (2.0 * cells["known_variance"].fillna(0.0)) ** 0.5
    return pd.Series((difference - centre).abs() > _DEPARTURE * np.maximum(spread, least))


def _quiet_cells(measurements: Measurements, by: Collection[str]) -> pd.DataFrame:
    """Return the summary of the cells with values, but not of percentiles, which vary much."""
    rows = measurements.performance_rows()
    of_few = rows.rows["metric"].map(is_percentile).astype(bool)
    cells = summarise_cells(rows.select(~of_few), list(by))
    return cells[cells["n"] > 0].reset_index(drop=True)
