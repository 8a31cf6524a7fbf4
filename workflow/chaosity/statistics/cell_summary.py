"""Summarise the tidy table: the median, 95 % interval and n of each cell, and its outliers.

A cell is one metric of one load of one point of one experiment on one host in one configuration;
its replicates are the sample. Several loads of one point can have the same name in the experiment
(a latency load on each of eight cores); initiator and target distinguish them.

Outliers are the replicates that do not count for the interval, see `moderated_variances`. Outliers
are marked but not removed: what disturbs a machine is a property of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.records.record_format import FAILED, VALID
from chaosity.statistics.estimates import t_interval
from chaosity.statistics.moderated_variances import (
    FEWEST_TO_JUDGE,
    ReplicateNoise,
    VariancePrior,
    estimate_noise,
    fit_priors_of_kinds,
)
from chaosity.store.measurements import (
    CELL,
    OF_A_REPLICATE,
    Measurements,
    Table,
    as_measurements,
    disturbed_mask,
)
from chaosity.store.tidy_table_from_records import MISSING

# Status of a cell with valid replicates without a value: an optional metric.
UNMEASURED = "unmeasured"

# Cells with equal values in these columns scatter similarly, so they share a prior variance.
KIND = ("host", "configuration", "experiment", "load", "benchmark", "kernel", "metric")
# Columns with the prior of a row's cell, see `VariancePrior`.
PRIOR = ("prior_freedom", "prior_variance", "prior_cells")


def summarise_cells(measurements: Table, by: Sequence[str] = CELL) -> pd.DataFrame:
    """Return the summary of each cell, in the order in which the cells first appear.

    Args:
        measurements: all rows of the cells. Priors are those of `with_variance_priors`; rows
            without priors get priors that are estimated from these cells.
        by: columns that identify a cell; None is a value like any other.

    Returns:
        One row for each cell: the columns that describe it (from its first row; `label` is the
            first that is not null, `file_backed` is true if it is in any row), and:

        - `n`, `n_failed`, `n_missing`: number of replicates by status;
        - `median` with 95 % interval `low`, `high`; `minimum`, `maximum`: in the metric's unit. At
          n = 1 the interval follows from the prior alone, and is NaN without one;
        - `counted`, `mean`, `variance`, `freedom`: the noise from which the interval follows; of
          logarithms where all values are above 0 (`is_positive`), see `ReplicateNoise`;
          `own_variance` is not moderated;
        - `prior_variance`, `prior_freedom`, `prior_cells`: the prior that moderated the variance,
          see `VariancePrior`; NaN, 0 and 0 if the cell has no prior or contradicts it;
        - `standard_deviation`: NaN below n = 2, since the spread is unknown then, not zero;
        - `precision`: half the interval's width as a share of the median, NaN without an interval;
        - `outliers`: number of replicates that do not count, NA below n = 3 or without a prior;
        - `status`: "valid" with at least one value, else "failed" with at least one failed
          replicate, else "unmeasured" with at least one replicate that has a reason for having no
          value, else "missing";
        - `reason`: of the first failed replicate, else of the first without a value, else None.
    """
    tidy = as_measurements(measurements).rows
    sample = _sample(tidy, by)
    codes, valid, noise, prior = sample.codes, sample.valid, sample.noise, sample.prior
    number = len(sample.first_rows)
    columns = [column for column in tidy.columns if column not in OF_A_REPLICATE]
    cells = tidy[columns].iloc[sample.first_rows].reset_index(drop=True)
    # If replicates differ, the cell has the label or the stand-in file of any of them.
    if "label" in tidy:
        cells["label"] = tidy["label"].groupby(codes).first().reindex(range(number))
    if "file_backed" in tidy:
        cells["file_backed"] = tidy["file_backed"].groupby(codes).any().to_numpy(dtype=bool)

    status = tidy["status"].to_numpy(dtype=object)
    own = pd.Series(sample.values).groupby(codes)
    n, median = np.bincount(codes[valid], minlength=number), own.median()
    low, high = t_interval(
        noise.mean, noise.variance, noise.freedom, noise.n, median, sample.is_positive
    )
    cells["n"] = n
    cells["n_failed"] = np.bincount(codes[status == FAILED], minlength=number)
    cells["n_missing"] = np.bincount(codes[status == MISSING], minlength=number)
    cells["median"] = median
    cells["low"], cells["high"] = low, high
    cells["counted"], cells["is_positive"] = noise.n, sample.is_positive
    for name in ("mean", "own_variance", "variance", "freedom"):
        cells[name] = getattr(noise, name)
    for name, without in (("variance", np.nan), ("freedom", 0.0), ("cells", 0.0)):
        cells[f"prior_{name}"] = np.where(noise.moderated, getattr(prior, name), without)
    cells["prior_cells"] = cells["prior_cells"].astype(int)
    cells["minimum"], cells["maximum"] = own.min(), own.max()
    cells["standard_deviation"] = own.std()
    cells["precision"] = (high - low) / (2.0 * median.abs())
    counts = pd.array(n - noise.n, dtype="Int64")
    counts[(n < FEWEST_TO_JUDGE) | (np.asarray(prior.cells) == 0)] = pd.NA
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
            reasons[code] = reasons[code] or (reason if isinstance(reason, str) else None)
    cells["reason"] = reasons
    return cells


def with_variance_priors(measurements: Measurements) -> Measurements:
    """Return the rows with the prior of their cell, estimated from all cells of each kind.

    Any selection of the returned rows has the same intervals.
    """
    sample = _sample(measurements.rows.drop(columns=[*PRIOR], errors="ignore"), CELL)
    columns = zip(PRIOR, vars(sample.prior).values(), strict=True)
    return measurements.with_columns(**{name: own[sample.codes] for name, own in columns})


def replace_values(rows: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Return rows of the tidy table with other values.

    Priors are dropped, because they belong to the old values.
    """
    return rows.drop(columns=[*PRIOR], errors="ignore").assign(value=values)


def compute_outlier_mask(measurements: Table) -> pd.Series:
    """Return, for each row, whether it is a replicate that does not count for its cell."""
    tidy = as_measurements(measurements).rows
    sample = _sample(tidy, CELL)
    outside = np.full(len(tidy), False)
    outside[sample.valid] = ~sample.noise.counted
    return pd.Series(outside, tidy.index, name="outlier")


class _Sample(NamedTuple):
    """The values of each cell's replicates, and their noise."""

    codes: NDArray[np.intp]  # number of each row's cell, by first appearance
    first_rows: NDArray[np.intp]  # the first row of each cell
    values: NDArray[np.float64]  # value of each row, NaN unless it is valid
    valid: NDArray[np.bool_]  # whether each row has a value
    is_positive: NDArray[np.bool_]  # whether each cell has values, all of them above 0
    prior: VariancePrior  # the prior of each cell
    noise: ReplicateNoise  # noise of each cell; of logarithms where `is_positive`


def _sample(tidy: pd.DataFrame, by: Sequence[str]) -> _Sample:
    """Return the sample of rows; priors are those of the rows, or else estimated from them."""
    groups = tidy.groupby(list(by), sort=False, dropna=False, observed=True)
    # pandas may number groups with nulls last; numbers by first appearance keep tables readable.
    codes = pd.factorize(groups.ngroup().to_numpy())[0].astype(np.intp)
    first_rows = np.unique(codes, return_index=True)[1]
    number = len(first_rows)
    values = tidy["value"].to_numpy(dtype=float, na_value=np.nan)
    valid = (tidy["status"].to_numpy(dtype=object) == VALID) & ~np.isnan(values)
    values = np.where(valid, values, np.nan)
    own, scaled = codes[valid], values[valid]
    is_positive = np.bincount(own, minlength=number) > 0
    is_positive[own[scaled <= 0.0]] = False
    # A ratio that is 1 in each replicate is that of a value to itself, so it does not scatter.
    moderable = is_positive & (np.bincount(own, scaled != 1.0, number) > 0)
    if not set(CELL) <= set(by) and set(CELL) <= set(tidy.columns):  # groups of several cells
        of_rows = tidy.groupby(list(CELL), dropna=False, observed=True).ngroup()
        moderable &= (of_rows.groupby(codes).nunique() == 1).to_numpy(dtype=bool)
    scaled = np.where(is_positive[own], np.log(np.where(scaled > 0.0, scaled, 1.0)), scaled)
    cells = tidy.iloc[first_rows]
    if set(PRIOR) <= set(tidy.columns):
        freedom, variance, known = (cells[name].to_numpy(dtype=float) for name in PRIOR)
        prior = VariancePrior(
            np.where(moderable, freedom, 0.0), variance, np.where(moderable, known, 0.0)
        )
    else:
        kind = [column for column in KIND if column in cells]
        kinds = cells.groupby(kind, dropna=False, observed=True).ngroup().to_numpy(np.intp)
        disturbed = disturbed_mask(tidy).to_numpy()[valid]
        prior = _fit_priors(scaled, own, np.where(moderable, kinds, -1), disturbed)
    noise = estimate_noise(scaled, own, number, prior)
    return _Sample(codes, first_rows, values, valid, is_positive, prior, noise)


def _fit_priors(
    values: NDArray[np.float64],
    cells: NDArray[np.intp],
    kinds: NDArray[np.intp],
    disturbed: NDArray[np.bool_],
) -> VariancePrior:
    """Return the prior of each cell, see `fit_priors_of_kinds`.

    A run with a budget repeats points that depart, so half of its cells with two replicates may
    have a disturbed one. Disturbed replicates do not show how much undisturbed replicates scatter.
    """
    prior = fit_priors_of_kinds(values[~disturbed], cells[~disturbed], kinds)
    if not disturbed.any():
        return prior
    with_disturbed = fit_priors_of_kinds(values, cells, kinds)
    is_quiet = np.bincount(cells[~disturbed], minlength=len(kinds)) > 0
    both = zip(vars(prior).values(), vars(with_disturbed).values(), strict=True)
    return VariancePrior(*(np.where(is_quiet, own, other) for own, other in both))
