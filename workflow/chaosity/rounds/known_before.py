"""What earlier runs say about a machine: the values to expect, and how much they scatter.

This only steers what is measured. Values and intervals of a report come from the run's own records.
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

# Equal hosts have other names.
_CELL = [name for name in CELL if name not in ("host", "configuration")]
# Share of the earlier runs' combinations that the plan must have, too. Hosts of equal nodes and
# cores share nearly all; drives that were added or replaced change some.
_LEAST_SHARED = 0.5
# Robust standard deviations of all differences between two runs that chance does not explain:
# of 1000 quiet cells, about 3 differ so much.
_DEPARTURE = 3.0


def known_cells(earlier: Measurements, plan: Collection[PointKey], place: str) -> pd.DataFrame:
    """Return median, n and variance of the logarithm of one measurement of each earlier cell.

    The values of several runs count together, so the variance contains how much runs differ.
    `earlier` are rows of runs of the host, or of equal hosts, in the configuration of the `plan`;
    `place` says where they come from, for error messages.

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
    """Return the summary of the measured cells, with `known_median` and `known_variance`.

    `own_variance` is the variance of the logarithm from the cell's own replicates. All three are
    NaN where they are not known.
    """
    cells = _quiet_cells(measured, CELL)
    cells["own_variance"] = (cells["standard_deviation"] / cells["median"]) ** 2
    if known is None:
        return cells.assign(known_median=np.nan, known_variance=np.nan)
    names = {"median": "known_median", "variance": "known_variance"}
    return cells.merge(known.drop(columns="n").rename(columns=names), "left", on=_CELL)


def departs_from_known(cells: pd.DataFrame) -> pd.Series:
    """Return whether the median of each cell departs from the earlier median.

    `cells` are those of `cells_with_known_values`.

    The differences of all cells of a metric show how much two runs differ: their median absolute
    deviation, which the few cells that changed hardly move. Two runs differ at least by the scatter
    of two measurements.
    """
    difference = pd.Series(np.log(cells["median"] / cells["known_median"]))
    kinds = [cells["experiment"], cells["metric"]]
    centre = difference.groupby(kinds).transform("median")
    spread = (difference - centre).abs().groupby(kinds).transform("median") * MAD_TO_DEVIATION
    least = (2.0 * cells["known_variance"].fillna(0.0)) ** 0.5
    return pd.Series((difference - centre).abs() > _DEPARTURE * np.maximum(spread, least))


def _quiet_cells(measurements: Measurements, by: Collection[str]) -> pd.DataFrame:
    """Return the summary of the cells with values, without percentiles of few accesses."""
    rows = measurements.performance_rows()
    of_few = rows.rows["metric"].map(is_percentile).astype(bool)
    cells = summarise_cells(rows.select(~of_few), list(by))
    return cells[cells["n"] > 0].reset_index(drop=True)
