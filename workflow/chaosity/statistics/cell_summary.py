"""Summary of the tidy table: the median, 95 % interval and n of each cell, and its outliers.

A cell is one metric of one load of one point of one experiment on one host in one configuration;
its replicates are the sample. Several loads of one point may have one name in the experiment (a
chase on each of eight cores); initiator and target tell them apart.

Outliers are marked and stay in: what disturbs a machine is a property of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from chaosity.records.record_types_and_verdict import FAILED, VALID
from chaosity.statistics.estimates_and_ratios import CONFIDENCE, GroupedSample
from chaosity.store.measurements import CELL, Table, as_measurements
from chaosity.store.tidy_table_from_records import MISSING

# Tukey's fences (Exploratory Data Analysis, 1977) stand 1.5 interquartile ranges outside the
# quartiles. Quartiles of fewer than five values are these values themselves, so nothing stands
# outside.
FENCE = 1.5
OUTLIERS_FROM_N = 5
# Status of a cell with valid replicates without a value: an optional metric, see docs/design.md, 6.
UNMEASURED = "unmeasured"

# Columns that describe a replicate of a cell and not the cell.
_OF_A_REPLICATE = ("replicate", "order", "measured_at", "status", "reason", "value")


def summarise(
    measurements: Table, by: Sequence[str] = CELL, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """The summary of each cell, in the order in which the cells first appear.

    Args:
        measurements: all rows of the cells.
        by: columns that make a cell; None in them is a value like any other.
        confidence: of the interval.

    Returns:
        One row for each cell: the columns that describe it (from its first row; `label` is the
        first that is not null, `file_backed` is true when any row is), and:

        - `n`, `n_failed`, `n_missing`: number of replicates by status;
        - `median`, `low`, `high`, `minimum`, `maximum`: in the metric's unit;
        - `standard_deviation`: NaN below n = 2, since the spread is unknown then, not zero;
        - `precision`: half the interval's width as a share of the median, NaN below n = 2;
        - `outliers`: number of replicates outside Tukey's fences, NA below n = 5;
        - `status`: "valid" with at least one value, else "failed" with at least one failed
          replicate, else "unmeasured" with at least one replicate that has a reason for having no
          value, else "missing";
        - `reason`: of the first failed replicate, else of the first without a value, else None.
    """
    tidy = as_measurements(measurements).rows
    codes, number = _codes(tidy, by)
    first = np.full(number, len(tidy), dtype=np.intp)
    np.minimum.at(first, codes, np.arange(len(tidy)))
    columns = [column for column in tidy.columns if column not in _OF_A_REPLICATE]
    cells = tidy[columns].iloc[first].reset_index(drop=True)
    _combine_descriptions(cells, tidy, codes)

    status = tidy["status"].to_numpy(dtype=object)
    values = tidy["value"].to_numpy(dtype=float)
    valid = (status == VALID) & ~np.isnan(values)
    sample = GroupedSample.of_values(values[valid], codes[valid], number)
    low, high = sample.interval(confidence)
    cells["n"] = sample.n
    cells["n_failed"] = np.bincount(codes[status == FAILED], minlength=number)
    cells["n_missing"] = np.bincount(codes[status == MISSING], minlength=number)
    cells["median"] = sample.quantile(0.5)
    cells["low"], cells["high"] = low, high
    cells["minimum"], cells["maximum"] = sample.quantile(0.0), sample.quantile(1.0)
    cells["standard_deviation"] = sample.mean_and_deviation(sample.values)[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        cells["precision"] = (high - low) / (2.0 * np.abs(cells["median"]))
    outside = _outside_fences(values, codes, sample, valid)
    counts = pd.array(np.bincount(codes[outside], minlength=number), dtype="Int64")
    counts[sample.n < OUTLIERS_FROM_N] = pd.NA
    cells["outliers"] = counts
    without = (status == VALID) & np.isnan(values)
    some_without = np.bincount(codes[without], minlength=number) > 0
    cells["status"] = np.select(
        [sample.n > 0, cells["n_failed"] > 0, some_without], [VALID, FAILED, UNMEASURED], MISSING
    )
    first_of = [_first_reason(tidy, codes, number, rows) for rows in (status == FAILED, without)]
    cells["reason"] = [failed or unmeasured for failed, unmeasured in zip(*first_of, strict=True)]
    return cells


def mark_outliers(measurements: Table, by: Sequence[str] = CELL) -> pd.Series:
    """Whether each row lies outside Tukey's fences of its cell; False for cells below n = 5."""
    tidy = as_measurements(measurements).rows
    codes, number = _codes(tidy, by)
    values = tidy["value"].to_numpy(dtype=float)
    valid = (tidy["status"].to_numpy(dtype=object) == VALID) & ~np.isnan(values)
    sample = GroupedSample.of_values(values[valid], codes[valid], number)
    return pd.Series(_outside_fences(values, codes, sample, valid), tidy.index, name="outlier")


def _codes(tidy: pd.DataFrame, by: Sequence[str]) -> tuple[NDArray[np.intp], int]:
    """The number of each row's cell, by first appearance, and how many cells there are."""
    if tidy.empty:
        return np.zeros(0, dtype=np.intp), 0
    groups = tidy.groupby(list(by), sort=False, dropna=False, observed=True)
    codes = groups.ngroup().to_numpy(dtype=np.intp)
    # pandas may number groups with nulls last; appearance order keeps tables readable.
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.intp)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse], len(first)


def _combine_descriptions(cells: pd.DataFrame, tidy: pd.DataFrame, codes: NDArray[np.intp]) -> None:
    """Replace the columns that differ between replicates: no label or stand-in file gets lost."""
    if "label" in tidy:
        cells["label"] = tidy["label"].groupby(codes).first().reindex(range(len(cells)))
    if "file_backed" in tidy:
        held = tidy["file_backed"].groupby(codes).any()
        cells["file_backed"] = held.to_numpy(dtype=bool)


def _outside_fences(
    values: NDArray[np.float64],
    codes: NDArray[np.intp],
    sample: GroupedSample,
    valid: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Whether each row is valid and outside the fences of a cell with enough replicates."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    lower, upper = sample.quantile(0.25), sample.quantile(0.75)
    reach = FENCE * (upper - lower)
    with np.errstate(invalid="ignore"):
        outside = (values < (lower - reach)[codes]) | (values > (upper + reach)[codes])
    return valid & outside & (sample.n >= OUTLIERS_FROM_N)[codes]


def _first_reason(
    tidy: pd.DataFrame, codes: NDArray[np.intp], number: int, chosen: NDArray[np.bool_]
) -> list[str | None]:
    """The first reason in the chosen rows of each cell."""
    reasons: list[str | None] = [None] * number
    for code, reason in zip(
        codes[chosen], tidy["reason"].to_numpy(dtype=object)[chosen], strict=True
    ):
        if reasons[code] is None and isinstance(reason, str):
            reasons[code] = reason
    return reasons
