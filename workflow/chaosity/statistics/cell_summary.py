"""Summarise the tidy table: the median, 95 % interval and n of each cell, and its outliers.

A cell is one metric of one load of one point of one experiment on one host in one configuration;
its replicates are the sample. Several loads of one point can have the same name in the experiment
(a latency load on each of eight cores); initiator and target distinguish them.

Outliers are marked but not removed: what disturbs a machine is a property of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.records.record_types_and_verdict import FAILED, VALID
from chaosity.statistics.estimates_and_ratios import t_interval
from chaosity.statistics.moderated_variances import CellPriors
from chaosity.store.measurements import CELL, Measurements, Table, as_measurements
from chaosity.store.tidy_table_from_records import MISSING

# Tukey's fences (Exploratory Data Analysis, 1977) stand 1.5 interquartile ranges outside the
# quartiles. Quartiles of fewer than five values are these values themselves, so nothing stands
# outside.
FENCE = 1.5
OUTLIERS_FROM_N = 5
# Status of a cell with valid replicates without a value: an optional metric, see docs/design.md, 6.
UNMEASURED = "unmeasured"

# Cells with equal values in these columns scatter similarly, so they share a prior variance.
_KIND = ("host", "configuration", "experiment", "load", "benchmark", "kernel", "metric")
# Columns with the prior of a row's cell, see `CellPriors`.
PRIOR = ("prior_variance", "prior_freedom", "prior_cells")

# Columns that describe a replicate of a cell and not the cell.
_OF_A_REPLICATE = ("replicate", "order", "measured_at", "status", "reason", "value", "remarks")


def summarise_cells(measurements: Table, by: Sequence[str] = CELL) -> pd.DataFrame:
    """Return the summary of each cell, in the order in which the cells first appear.

    Args:
        measurements: all rows of the cells. Priors are those of `with_variance_priors`, else they
            are estimated from these cells.
        by: columns that identify a cell; None is a value like any other.

    Returns:
        One row for each cell: the columns that describe it (from its first row; `label` is the
            first that is not null, `file_backed` is true if it is in any row), and:

        - `n`, `n_failed`, `n_missing`: number of replicates by status;
        - `median` with 95 % interval `low`, `high`; `minimum`, `maximum`: in the metric's unit. At
          n = 1 the interval follows from the prior alone, and is NaN without one;
        - `prior_variance`, `prior_freedom`, `prior_cells`: the prior with which the interval was
          computed, see `CellPriors`; NaN, 0 and 0 for Student's t;
        - `standard_deviation`: NaN below n = 2, since the spread is unknown then, not zero;
        - `precision`: half the interval's width as a share of the median, NaN without an interval;
        - `outliers`: number of replicates outside Tukey's fences, NA below n = 5;
        - `status`: "valid" with at least one value, else "failed" with at least one failed
          replicate, else "unmeasured" with at least one replicate that has a reason for having no
          value, else "missing";
        - `reason`: of the first failed replicate, else of the first without a value, else None.
    """
    tidy = as_measurements(measurements).rows
    codes, valid, samples = _samples_by_cell(tidy, by)
    number = len(samples)
    columns = [column for column in tidy.columns if column not in _OF_A_REPLICATE]
    first = np.unique(codes, return_index=True)[1]
    cells = tidy[columns].iloc[first].reset_index(drop=True)
    # If replicates differ, the cell has the label or the stand-in file of any of them.
    if "label" in tidy:
        cells["label"] = tidy["label"].groupby(codes).first().reindex(range(number))
    if "file_backed" in tidy:
        cells["file_backed"] = tidy["file_backed"].groupby(codes).any().to_numpy(dtype=bool)

    status = tidy["status"].to_numpy(dtype=object)
    priors = _prior_of_each_cell(cells, samples, _is_one_cell(tidy, codes, by))
    variance, freedom, moderated = priors.moderate_variances(
        samples["variance"].to_numpy(), samples["freedom"].to_numpy()
    )
    n, median = samples["n"], samples["median"]
    low, high = t_interval(samples["mean"], variance, freedom, n, median, samples["is_positive"])
    cells["n"] = n
    cells["n_failed"] = np.bincount(codes[status == FAILED], minlength=number)
    cells["n_missing"] = np.bincount(codes[status == MISSING], minlength=number)
    cells["median"] = median
    cells["low"], cells["high"] = low, high
    cells["prior_variance"] = np.where(moderated, priors.variance, np.nan)
    cells["prior_freedom"] = np.where(moderated, priors.freedom, 0.0)
    cells["prior_cells"] = np.where(moderated, priors.cells, 0.0).astype(int)
    for name in ("minimum", "maximum", "standard_deviation"):
        cells[name] = samples[name]
    cells["precision"] = (high - low) / (2.0 * median.abs())
    outside = _outside_fences(tidy, codes, valid, samples)
    counts = pd.array(np.bincount(codes[outside], minlength=number), dtype="Int64")
    counts[(n < OUTLIERS_FROM_N).to_numpy()] = pd.NA
    cells["outliers"] = counts
    without = (status == VALID) & ~valid
    some_without = np.bincount(codes[without], minlength=number) > 0
    cells["status"] = np.select(
        [n > 0, cells["n_failed"] > 0, some_without], [VALID, FAILED, UNMEASURED], MISSING
    )
    reasons: list[str | None] = [None] * number
    texts = tidy["reason"].to_numpy(dtype=object)
    for rows in (status == FAILED, without):
        for code, reason in zip(codes[rows], texts[rows], strict=True):
            if not reasons[code] and isinstance(reason, str):
                reasons[code] = reason
    cells["reason"] = reasons
    return cells


def with_variance_priors(measurements: Measurements) -> Measurements:
    """Return the rows with the prior of their cell, estimated from all cells of each kind.

    Any selection of these rows then has the same intervals.
    """
    codes, _, samples = _samples_by_cell(measurements.rows, CELL)
    first = np.unique(codes, return_index=True)[1]
    cells = measurements.rows.iloc[first].drop(columns=[*PRIOR], errors="ignore")
    priors = _prior_of_each_cell(cells, samples, np.full(len(first), True))
    columns = (priors.variance, priors.freedom, priors.cells)
    rows = {name: prior[codes] for name, prior in zip(PRIOR, columns, strict=True)}
    return measurements.with_columns(**rows)


def replace_values(rows: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Return rows of the tidy table with other values, so without the priors of their values."""
    return rows.drop(columns=[*PRIOR], errors="ignore").assign(value=values)


def _is_one_cell(
    tidy: pd.DataFrame, codes: NDArray[np.intp], by: Sequence[str]
) -> NDArray[np.bool_]:
    """Return, for each group of rows, whether all its rows are of one cell."""
    number = int(codes.max(initial=-1)) + 1
    if set(CELL) <= set(by) or not set(CELL) <= set(tidy.columns):
        return np.full(number, True)
    of_rows = tidy.groupby(list(CELL), dropna=False, observed=True).ngroup()
    counts = of_rows.groupby(codes).nunique().reindex(range(number))
    return np.asarray(counts == 1, dtype=bool)


def _prior_of_each_cell(
    cells: pd.DataFrame, samples: pd.DataFrame, single: NDArray[np.bool_]
) -> CellPriors:
    """Return the prior of each cell; `single` is false for samples that mix several cells."""
    lowest, highest, variance, freedom = (
        samples[name].to_numpy() for name in ("minimum", "maximum", "variance", "freedom")
    )
    # A ratio that is 1 in each replicate is that of a value to itself, so it does not scatter.
    moderable = single & (lowest > 0.0) & ~((lowest == 1.0) & (highest == 1.0))
    if set(PRIOR) <= set(cells.columns):
        known, weight, number = (cells[name].to_numpy(dtype=float) for name in PRIOR)
        return CellPriors(known, weight, np.where(moderable, number, 0.0))
    kind = [column for column in _KIND if column in cells]
    kinds = cells.groupby(kind, dropna=False, observed=True).ngroup().to_numpy(dtype=np.intp)
    return CellPriors.of_kinds(variance, freedom, np.where(moderable, kinds, -1))


def compute_outlier_mask(measurements: Table) -> pd.Series:
    """Return, for each row, whether it is outside Tukey's fences of its cell; False below n = 5."""
    tidy = as_measurements(measurements).rows
    outside = _outside_fences(tidy, *_samples_by_cell(tidy, CELL))
    return pd.Series(outside, tidy.index, name="outlier")


def _outside_fences(
    tidy: pd.DataFrame, codes: NDArray[np.intp], valid: NDArray[np.bool_], samples: pd.DataFrame
) -> NDArray[np.bool_]:
    """Return, for each row, whether it is valid and outside the fences of a large enough cell."""
    lower, upper, n = (samples[name].to_numpy()[codes] for name in ("lower", "upper", "n"))
    reach = FENCE * (upper - lower)
    values = tidy["value"].to_numpy(dtype=float)
    outside: NDArray[np.bool_] = (values < lower - reach) | (values > upper + reach)
    return outside & valid & np.asarray(n >= OUTLIERS_FROM_N)


def _samples_by_cell(
    tidy: pd.DataFrame, by: Sequence[str]
) -> tuple[NDArray[np.intp], NDArray[np.bool_], pd.DataFrame]:
    """Return each row's cell number (by first appearance), the mask of valid values, and samples.

    The sample of each cell has `n`, `minimum`, `lower` quartile, `median`, `upper` quartile,
    `maximum` and `standard_deviation`; and `mean`, `variance` and its degrees of `freedom`, which
    are those of logarithms where all values are above 0 (`is_positive`).
    """
    groups = tidy.groupby(list(by), sort=False, dropna=False, observed=True)
    # pandas may number groups with nulls last; appearance order keeps tables readable.
    codes = pd.factorize(groups.ngroup().to_numpy())[0].astype(np.intp)
    values = tidy["value"].astype(float).reset_index(drop=True)
    valid = (tidy["status"].to_numpy(dtype=object) == VALID) & values.notna().to_numpy()
    values = values.where(valid)
    own = values.groupby(codes)
    n, minimum = own.count(), own.min()
    is_positive = minimum > 0.0
    logs = pd.Series(np.log(values.where(values > 0.0)))
    scaled = logs.where(is_positive.to_numpy()[codes], values).groupby(codes)
    samples = {
        "n": n,
        "minimum": minimum,
        "lower": own.quantile(0.25),
        "median": own.median(),
        "upper": own.quantile(0.75),
        "maximum": own.max(),
        "standard_deviation": own.std(),
        "is_positive": is_positive,
        "mean": scaled.mean(),
        "variance": scaled.var(),
        "freedom": (n - 1.0).clip(lower=0.0),
    }
    return codes, valid, pd.DataFrame(samples)
