"""The points that a budget left out: their rows, and what was predicted for them.

Predictions are in a file of their own, so that nobody who reads the tidy table can take a
prediction for a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import pandas as pd

from chaosity.result_folders import PREDICTIONS_FILE, UNMEASURED_FILE
from chaosity.store.measurements import CELL, OF_A_REPLICATE, POINT, Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from chaosity.units import group_thousands

PREDICTED = "predicted"
# Status of a cell that was neither measured nor predicted, since the budget was too short.
LEFT_OUT = "left_out"
PREDICTION_NUMBERS = ("value", "low", "high", "lower_bound", "upper_bound")
PREDICTION_COLUMNS = {
    **{name: kind for name, kind in COLUMNS.items() if name not in OF_A_REPLICATE},
    **dict.fromkeys(PREDICTION_NUMBERS, "Float64"),
    "origin": "string",
    "method": "string",
}
_CELL = list(CELL)


@dataclass(frozen=True, eq=False)
class LeftOutPoints:
    """The points that a budget left out."""

    # A row for each load and metric, as in the tidy table, with the status "missing".
    rows: Measurements
    # The cells of these rows that were predicted, with the columns `PREDICTION_COLUMNS`.
    predictions: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the points that ``results/<host>/<configuration>`` lists; None without a list.

        Raises:
            UserError: a file is not a table of this version.
        """
        if not (folder / UNMEASURED_FILE).exists():
            return None
        rows = Measurements.read(folder / UNMEASURED_FILE)
        file = folder / PREDICTIONS_FILE
        if file.exists():
            return cls(rows, Measurements.read(file, PREDICTION_COLUMNS).rows)
        return cls(rows, rows.rows[:0].assign(**dict.fromkeys(PREDICTION_NUMBERS, 0.0)))

    def predicted_only(self) -> Self:
        """Return only the points with a prediction."""
        places = pd.MultiIndex.from_frame(self.rows.rows[_CELL])
        known = places.isin(pd.MultiIndex.from_frame(self.predictions[_CELL]))
        return replace(self, rows=Measurements(self.rows.rows[known]))

    def appended_to_measured(self, measured: Measurements) -> Measurements:
        """Return the measured rows, and after them the rows of the points that were left out."""
        if not len(self.rows):
            return measured
        return Measurements(pd.concat([measured.rows, self.rows.rows], ignore_index=True))

    def add_predictions_to_cells(self, cells: pd.DataFrame) -> pd.DataFrame:
        """Return cells of `summarise_cells` with predictions and the status of left-out cells.

        The status is `PREDICTED` or `LEFT_OUT` where a point was left out. The columns
        "predicted_value", "predicted_low", ... are NaN where nothing is predicted.
        """
        known = self.predictions.drop_duplicates(_CELL).set_index(_CELL)[[*PREDICTION_NUMBERS]]
        places = pd.MultiIndex.from_frame(cells[_CELL])
        numbers = known.reindex(places).set_axis(cells.index)
        cells = cells.assign(
            **{f"{PREDICTED}_{name}": numbers[name].astype(float) for name in PREDICTION_NUMBERS}
        )
        out = places.isin(pd.MultiIndex.from_frame(self.rows.rows[_CELL])) & (cells["n"] == 0)
        predicted = out & numbers["value"].notna().to_numpy()
        status = cells["status"].mask(out, LEFT_OUT).mask(predicted, PREDICTED)
        return cells.assign(status=status)

    def coverage_text(self, measured: Measurements) -> str | None:
        """Return how many points were measured, how many predicted, and how many have no value.

        The result is None if the budget left out no point.
        """
        tables = (measured.valid_rows().rows, measured.rows, self.rows.rows, self.predictions)
        done, planned, missing, guessed = (len(rows[[*POINT]].drop_duplicates()) for rows in tables)
        if not missing:
            return None
        total = planned + missing
        parts = [f"{group_thousands(done)} of {group_thousands(total)} combinations measured"]
        numbers = {"predicted": guessed, "without a value": total - done - guessed}
        parts += [f"{group_thousands(number)} {text}" for text, number in numbers.items() if number]
        return ", ".join(parts)

    def prediction_method_texts(self) -> list[str]:
        """Return how the predictions were made and how well they agree with measured values."""
        if self.predictions.empty:
            return []
        methods = "; ".join(self.predictions["method"].drop_duplicates())
        return [
            f"Predicted values follow from measured ones: {methods}. Figures draw them hatched. No "
            "finding, comparison or export uses them."
        ]
