"""``chaosity predict``: what a run left unmeasured, predicted from what it measured."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FOLDER, JSON_OPTION
from chaosity.cli.terminal_output import print_json
from chaosity.errors import UserError
from chaosity.units import format_count

# Number of surprising points that the terminal lists. The JSON has all.
_MOST_POINTS = 12


@click.command("predict")
@click.argument("folder", type=EXISTING_FOLDER)
@JSON_OPTION
def predict_command(folder: Path, as_json: bool) -> None:
    """Predict the bandwidth of the drive sets that a run left unmeasured.

    FOLDER is results/HOST/CONFIGURATION of a run. Its unmeasured.parquet names the drive sets that
    the budget left out. Writes predictions.parquet, with a 95 % interval and bounds for each set,
    and prints how well measured sets are predicted without their own measurement.
    """
    from chaosity.prediction.predict_drive_sets import (
        audit_predictions,
        predict_drive_sets,
        violated_bounds,
    )
    from chaosity.result_folders import MEASUREMENTS_FILE, PREDICTIONS_FILE, UNMEASURED_FILE
    from chaosity.store.left_out_points import PREDICTION_COLUMNS
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_parquet import write_parquet_table

    if not (folder / MEASUREMENTS_FILE).exists():
        remedy = "name a folder results/HOST/CONFIGURATION of a run"
        raise UserError(f"{MEASUREMENTS_FILE} is missing", str(folder), remedy)
    measured = Measurements.read(folder / MEASUREMENTS_FILE)
    left_out = folder / UNMEASURED_FILE
    rows = Measurements.read(left_out).rows if left_out.exists() else measured.rows[:0]
    unmeasured = Measurements(rows)
    predictions = predict_drive_sets(measured, unmeasured)
    audit = audit_predictions(measured, unmeasured)
    predictions["method"] += f"; {audit.text}"
    write_parquet_table(predictions, folder / PREDICTIONS_FILE, PREDICTION_COLUMNS)
    surprises = violated_bounds(measured, unmeasured)
    if as_json:
        document = {"predicted": len(predictions), "unmeasured": len(unmeasured)}
        print_json({**document, "audit": asdict(audit), "surprises": [*map(asdict, surprises)]})
        return
    if measured.is_simulated:
        click.echo("SIMULATED: this machine does not exist, and nothing was measured.")
    number = format_count(len(predictions), "value")
    click.echo(f"{number} predicted, of {len(unmeasured)} left out: {folder / PREDICTIONS_FILE}")
    click.echo(f"Audit: {audit.text}.")
    for each in surprises[:_MOST_POINTS]:
        click.echo(
            f"{each.experiment} {each.point}: {each.reason}, {each.ratio:.2f} times as much."
        )
    if len(surprises) > _MOST_POINTS:
        click.echo(f"{len(surprises) - _MOST_POINTS} more such points are in the JSON (--json).")
