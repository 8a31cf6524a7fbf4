"""Predict the drive sets that a run left unmeasured, and find measured sets that surprise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from chaosity.prediction.drive_set_model import DriveSetCell, DriveSetModel
from chaosity.statistics.significance_tests import MATTERS
from chaosity.store.left_out_points import PREDICTED, PREDICTION_COLUMNS, PREDICTION_NUMBERS
from chaosity.store.measurements import SLICE, Measurements, Table
from chaosity.store.tidy_table_parquet import Row, rows_to_table
from chaosity.units import format_count, format_percent

_GROUP = ("host", "configuration", *SLICE)
_METHOD = "limits of measured drive sets"


@dataclass(frozen=True)
class PredictionAudit:
    """How well measured drive sets were predicted without their own measurement."""

    sets: int  # number of audited sets: of their kind the initiator has unmeasured sets, too
    within: int  # how many of them lie within their 95 % prediction interval
    # median_error, error_of_95_percent: quantiles of the errors as shares of the prediction; None
    # without such sets.
    median_error: float | None = None
    error_of_95_percent: float | None = None

    @property
    def text(self) -> str:
        """Return the audit in words."""
        if self.median_error is None or self.error_of_95_percent is None:
            return "the error is unknown, since no drive set was chosen at random and measured"
        median, most = map(format_percent, (self.median_error, self.error_of_95_percent))
        return (
            f"{self.within} of {format_count(self.sets, 'audited drive set')} lie in the 95 % "
            f"interval that was predicted without them; their median error is {median}, and 95 % "
            f"of the errors are at most {most}"
        )


@dataclass(frozen=True)
class Surprise:
    """A measured drive set that the other measured sets contradict."""

    # experiment, point: the measured point.
    experiment: str
    point: str
    ratio: float  # measured bandwidth : that of the violated bound or prediction
    reason: str  # what is violated, in words
    # Unmeasured points of the same initiator with all drives of the set, or with one node more or
    # less; the most similar first.
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
    groups = rows.groupby(list(_GROUP), dropna=False, sort=False)
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
    for model in models:
        for cell, row in model.missing.items():
            if (predicted := model.predict(cell)) is None:
                continue
            value, low, high, bounds = predicted
            # Noise can exchange bounds that are equal.
            ends = [each.value for each in (bounds.lower, bounds.upper) if each]
            lower = min(ends) if bounds.lower else None
            upper = max(ends) if bounds.upper else None
            numbers = zip(PREDICTION_NUMBERS, (value, low, high, lower, upper), strict=True)
            rows.append({**row, **dict(numbers), "origin": PREDICTED, "method": _METHOD})
    return rows_to_table(rows, PREDICTION_COLUMNS)


def audit_predictions(models: Iterable[DriveSetModel]) -> PredictionAudit:
    """Return how many randomly chosen measured sets lie in the interval predicted without them."""
    errors, within = [], 0
    for model in models:
        for cell in model.audited:
            if (predicted := model.predict(cell)) is not None:
                value = model.values[cell.initiator][cell.drives].value
                errors.append(abs(value / predicted.value - 1.0))
                within += predicted.low <= value <= predicted.high
    quantiles = map(float, np.quantile(errors, [0.5, 0.95])) if errors else ()
    return PredictionAudit(len(errors), within, *quantiles)


def violated_bounds(models: Iterable[DriveSetModel]) -> list[Surprise]:
    """Return the measured drive sets that the other measured sets contradict.

    Noise does not explain that such a set gives less than one of its subsets, more than its parts
    or a larger set, or less than the prediction interval that the other sets of the initiator let
    expect.
    """
    return [
        surprise
        for model in models
        for cell in model.points
        if (surprise := _surprise(model, cell)) is not None
    ]


def _surprise(model: DriveSetModel, cell: DriveSetCell) -> Surprise | None:
    """Return in what a measured cell contradicts the others; None if it does not."""
    bounds, expected = model.bounds(cell), model.expected(cell)
    value = model.values[cell.initiator][cell.drives]
    if bounds.lower and value.log_ratio_to(bounds.lower) < 0.0:
        limit, reason = bounds.lower, "less than a part of these drives gives"
    elif bounds.upper and value.log_ratio_to(bounds.upper) > 0.0:
        limit, reason = (
            bounds.upper,
            "more than its parts give together, or than a larger set gives",
        )
    elif (
        expected
        and not model.limits_others(cell)
        and value.log_ratio_to(expected) < 0.0
        and math.log(expected.value / value.value) > model.error_quantile(cell)
    ):
        limit, reason = expected, "less than its prediction interval allows"
    else:
        return None
    row, ratio = model.points[cell], value.value / limit.value
    if abs(ratio - 1.0) < MATTERS:
        return None
    neighbours = tuple(model.missing[each]["point"] for each in model.neighbours(cell))
    return Surprise(row["experiment"], row["point"], ratio, reason, neighbours)


def _drive_rows(table: Measurements) -> pd.DataFrame:
    """Return the rows of bandwidths of loads alone on drives."""
    rows = table.single_load_rows().rows
    bandwidth = rows["metric"].astype(str).str.endswith("bandwidth_bytes_per_second")
    return rows[bandwidth & (rows["drives"] > 0)]
