"""Summary of the tidy table: per cell the median, a 95 % interval, n, and what stands out.

A cell is one metric of one load of one point of one experiment on one host in one configuration;
its replicates are the sample. Several loads of one point may have one name in the experiment (a
chase on each of eight cores); initiator and target tell them apart.

Why Student's t and not order statistics, which would fit the median better: the widest interval
that order statistics can give for the median runs from the smallest to the largest replicate and
covers it with probability 1 - 2^(1 - n), that is 75 % at n = 3 and 93.8 % at n = 5. Below n = 6
there is no 95 % interval to be had, and a machine is rarely measured more often. Positive
quantities are treated on a logarithmic scale: disturbances multiply (a share of the bandwidth is
lost, not a fixed number of bytes), intervals become intervals of ratios, and none is negative.
There the median and the geometric mean estimate the same centre when the noise is symmetric; the
median is reported because one disturbed replicate moves it little.

Outliers are marked and stay in: what disturbs a machine is a property of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

CELL = (
    *("host", "configuration", "experiment", "point"),
    *("load", "initiator", "target", "metric"),
)
CONFIDENCE = 0.95
# Tukey's fences (Exploratory Data Analysis, 1977) stand 1.5 interquartile ranges outside the
# quartiles. Quartiles of fewer than five values are these values themselves, so nothing stands
# outside.
FENCE = 1.5
OUTLIERS_FROM_N = 5
VALID, FAILED, MISSING = "valid", "failed", "missing"
# A cell whose replicates are valid but without a value: optional metrics, see docs/design.md, 6.
UNMEASURED = "unmeasured"

# Columns that do not describe a cell but one of its replicates.
_OF_A_REPLICATE = ("replicate", "order", "measured_at", "status", "reason", "value")


@dataclass(frozen=True)
class Estimate:
    """A median with its interval.

    Attributes:
        median: of the replicates, NaN when there is none.
        low: lower end of the interval; None for fewer than two replicates.
        high: upper end; None for fewer than two replicates.
        n: number of replicates.
    """

    median: float
    low: float | None
    high: float | None
    n: int


def less_is_better(metric: str) -> bool:
    """Times are better when they are short, everything else when there is more of it."""
    return metric.endswith(("_ns", "_seconds"))


def is_performance(metric: str) -> bool:
    """Whether a metric says how well hardware does: a rate or a time.

    Counts and shares are neither good nor bad by themselves, and a ratio to another row of the
    table says again what the two rows say.
    """
    return less_is_better(metric) or metric.endswith("_per_second")


def plain(tidy: pd.DataFrame) -> pd.DataFrame:
    """The table in numpy's types: None for a missing text, NaN for a missing number.

    The store keeps pandas' nullable types, whose NA is neither true nor false in a comparison.
    """
    if all(isinstance(kind, np.dtype) for kind in tidy.dtypes):
        return tidy
    columns = {}
    for name, column in tidy.items():
        if pd.api.types.is_bool_dtype(column.dtype):
            columns[name] = column.fillna(False).astype(bool)
        elif pd.api.types.is_numeric_dtype(column.dtype):
            columns[name] = column.to_numpy(float, na_value=np.nan)
            if pd.api.types.is_integer_dtype(column.dtype) and not column.isna().any():
                columns[name] = column.to_numpy(np.int64)
        else:
            columns[name] = column.astype(object).where(column.notna(), None)
    return pd.DataFrame(columns, index=tidy.index)


@dataclass(frozen=True)
class _Sample:
    """Values sorted within groups that are numbered 0 to groups - 1."""

    values: NDArray[np.float64]
    groups: NDArray[np.intp]
    n: NDArray[np.intp]
    start: NDArray[np.intp]

    @classmethod
    def of(cls, values: NDArray[np.float64], groups: NDArray[np.intp], number: int) -> _Sample:
        order = np.lexsort((values, groups))
        n = np.bincount(groups, minlength=number)
        return cls(values[order], groups[order], n, np.cumsum(n) - n)

    def quantile(self, share: float) -> NDArray[np.float64]:
        """Quantile of each group by linear interpolation; NaN for an empty group."""
        result = np.full(len(self.n), np.nan)
        some = self.n > 0
        position = share * (self.n[some] - 1)
        below = np.floor(position).astype(np.intp)
        above = np.ceil(position).astype(np.intp)
        low = self.values[self.start[some] + below]
        high = self.values[self.start[some] + above]
        result[some] = low + (high - low) * (position - below)
        return result

    def mean_and_deviation(
        self, values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and sample standard deviation of each group; the latter NaN below n = 2."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(self.groups, values, len(self.n)) / self.n
            squares = np.bincount(self.groups, (values - mean[self.groups]) ** 2, len(self.n))
            deviation = np.sqrt(squares / (self.n - 1.0))
        return mean, np.where(self.n > 1, deviation, np.nan)

    def interval(self, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ends of the t interval of each group, on logs where every value is positive."""
        positive = self.quantile(0.0) > 0.0
        logs = positive[self.groups]
        scaled = np.where(logs, np.log(np.where(logs, self.values, 1.0)), self.values)
        mean, deviation = self.mean_and_deviation(scaled)
        with np.errstate(invalid="ignore", divide="ignore"):
            half = stats.t.ppf(0.5 + confidence / 2.0, self.n - 1.0) * deviation / np.sqrt(self.n)
            low, high = mean - half, mean + half
            low, high = np.where(positive, np.exp(low), low), np.where(positive, np.exp(high), high)
        # With n >= 8 and a lopsided sample the median can lie outside an interval of the mean.
        # The interval then reaches to it: too wide is honest, an estimate outside is not.
        median = self.quantile(0.5)
        return np.fmin(low, np.where(self.n > 1, median, np.nan)), np.fmax(
            high, np.where(self.n > 1, median, np.nan)
        )


def estimate(values: ArrayLike, confidence: float = CONFIDENCE) -> Estimate:
    """Median and t interval of one sample; NaN are no values."""
    array = np.asarray(values, dtype=float).ravel()
    array = array[~np.isnan(array)]
    sample = _Sample.of(array, np.zeros(len(array), dtype=np.intp), 1)
    low, high = sample.interval(confidence)
    n = len(array)
    return Estimate(
        median=float(sample.quantile(0.5)[0]),
        low=float(low[0]) if n > 1 else None,
        high=float(high[0]) if n > 1 else None,
        n=n,
    )


def summarise(
    tidy: pd.DataFrame, by: Sequence[str] = CELL, confidence: float = CONFIDENCE
) -> pd.DataFrame:
    """One row a cell, in the order in which the cells first appear.

    Args:
        tidy: rows of the tidy table.
        by: columns that make a cell; None in them is a value like any other.
        confidence: of the interval.

    Returns:
        The cell's columns and those that describe it (from its first row; `label` is the first
        that is not null, `file_backed` holds when it does for any), and:

        - `n`, `n_failed`, `n_missing`: replicates by status;
        - `median`, `low`, `high`, `minimum`, `maximum`: in the metric's unit;
        - `standard_deviation`: NaN below n = 2, for spread is unknown then, not zero;
        - `precision`: half the interval's width as a share of the median, NaN below n = 2;
        - `outliers`: number of replicates outside Tukey's fences, NA below n = 5;
        - `status`: "valid" with at least one value, else "failed" with at least one failed
          replicate, else "unmeasured" with at least one that has a reason for having no value, else
          "missing";
        - `reason`: of the first failed replicate, else of the first without a value, else None.
    """
    tidy = plain(tidy)
    codes, number = _codes(tidy, by)
    first = np.full(number, len(tidy), dtype=np.intp)
    np.minimum.at(first, codes, np.arange(len(tidy)))
    columns = [column for column in tidy.columns if column not in _OF_A_REPLICATE]
    cells = tidy[columns].iloc[first].reset_index(drop=True)
    _combine_descriptions(cells, tidy, codes)

    status = tidy["status"].to_numpy(dtype=object)
    values = tidy["value"].to_numpy(dtype=float)
    valid = (status == VALID) & ~np.isnan(values)
    sample = _Sample.of(values[valid], codes[valid], number)
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


def mark_outliers(tidy: pd.DataFrame, by: Sequence[str] = CELL) -> pd.Series:
    """True for each row that lies outside Tukey's fences of its cell (never below n = 5)."""
    tidy = plain(tidy)
    codes, number = _codes(tidy, by)
    values = tidy["value"].to_numpy(dtype=float)
    valid = (tidy["status"].to_numpy(dtype=object) == VALID) & ~np.isnan(values)
    sample = _Sample.of(values[valid], codes[valid], number)
    return pd.Series(_outside_fences(values, codes, sample, valid), tidy.index, name="outlier")


def _codes(tidy: pd.DataFrame, by: Sequence[str]) -> tuple[NDArray[np.intp], int]:
    """Number of each row's cell, cells counted as they first appear."""
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
    """Replace what may differ between replicates: a label or a stand-in file must not be lost."""
    if "label" in tidy:
        cells["label"] = tidy["label"].groupby(codes).first().reindex(range(len(cells)))
    if "file_backed" in tidy:
        held = tidy["file_backed"].groupby(codes).any()
        cells["file_backed"] = held.to_numpy(dtype=bool)


def _outside_fences(
    values: NDArray[np.float64],
    codes: NDArray[np.intp],
    sample: _Sample,
    valid: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Which rows are valid and outside the fences of a cell with enough replicates."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    lower, upper = sample.quantile(0.25), sample.quantile(0.75)
    reach = FENCE * (upper - lower)
    with np.errstate(invalid="ignore"):
        outside = (values < (lower - reach)[codes]) | (values > (upper + reach)[codes])
    return valid & outside & (sample.n >= OUTLIERS_FROM_N)[codes]


def _first_reason(
    tidy: pd.DataFrame, codes: NDArray[np.intp], number: int, failed: NDArray[np.bool_]
) -> list[str | None]:
    """The first reason given for a failure, of each cell."""
    reasons: list[str | None] = [None] * number
    for code, reason in zip(
        codes[failed], tidy["reason"].to_numpy(dtype=object)[failed], strict=True
    ):
        if reasons[code] is None and isinstance(reason, str):
            reasons[code] = reason
    return reasons
