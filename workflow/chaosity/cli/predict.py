"""``chaosity predict``: what a run left unmeasured, or loads at the same time, predicted."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.fit import read_folder_to_fit
from chaosity.cli.shared_options import EXISTING_FOLDER, JSON_OPTION
from chaosity.cli.terminal_output import borderless_table, print_json, print_rich
from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity

if TYPE_CHECKING:
    from chaosity.prediction.predict_loads import PredictedValue
    from chaosity.records.point_types import Point

# Number of surprising points that the terminal lists. The JSON has all.
_MOST_POINTS = 12
# Number of points that an error names.
_NEAR_NAMES = 3


@click.command("predict")
@click.argument("folder", type=EXISTING_FOLDER)
@click.option(
    "--with",
    "together",
    multiple=True,
    metavar="EXPERIMENT/POINT",
    help="Predict the loads of this point beside those of every other --with, in place of drive "
    "sets.",
)
@JSON_OPTION
def predict_command(folder: Path, together: tuple[str, ...], as_json: bool) -> None:
    """Predict the bandwidth of the drive sets that a run left unmeasured, or loads together.

    FOLDER is results/HOST/CONFIGURATION of a run. Its unmeasured.parquet names the drive sets that
    the budget left out. Writes predictions.parquet, with a 95 % interval and bounds for each set,
    and prints how well measured sets are predicted without their own measurement.

    With --with, fits the model of docs/simulation.md to the measurements, and predicts what each
    load gets while the loads of all named points run at the same time. Writes no file.
    """
    if together:
        _predict_together(folder, together, as_json=as_json)
        return
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


def _predict_together(folder: Path, names: tuple[str, ...], *, as_json: bool) -> None:
    """Print what loads of planned points get while all of them run."""
    from chaosity.prediction.fit_machine import fit_machine
    from chaosity.prediction.measured_cells import ALL
    from chaosity.prediction.predict_loads import (
        joined_loads,
        measured_medians,
        predict_loads,
        undetermined_parameters,
    )

    measured, points, topology = read_folder_to_fit(folder)
    chosen = [_point_of_name(name, points, folder) for name in names]
    loads = joined_loads(chosen, topology)
    alone = [measured_medians(measured, [*chosen, *points], [load]) for load in loads]
    medians = {key: value for own in alone for key, value in own.items()}
    seen = measured_medians(measured, points, loads) if len(loads) > 1 else {}
    fitted = fit_machine(measured, points, topology)
    missing = undetermined_parameters(fitted, topology, loads)
    values = predict_loads(fitted, topology, loads, medians)
    if as_json:
        document = {
            "simulated": measured.is_simulated,
            "not_determined": [each.name for each in missing],
        }
        rows = [
            {**asdict(each), "measured_together": seen.get((each.load, each.metric))}
            for each in values
        ]
        print_json({**document, "predicted": rows})
        return
    if measured.is_simulated:
        click.echo("SIMULATED: this machine does not exist, and nothing was measured.")
    click.echo("What each load gets while all run: predicted by the fitted model, not measured.")
    heads = ["alone", "together", "95 % interval", *(["measured together"] if seen else [])]
    table = borderless_table(["load"], heads)
    for each in values:
        median = seen.get((each.load, each.metric))
        last = [format_quantity(each.metric, median)] if median else []
        table.add_row(each.load, *_columns(each), *last)
    print_rich([table])
    for each in values:
        if each.departs:
            click.echo(
                f"The model does not explain {each.load} alone, perhaps because of a fault. So its "
                "prediction is not above the measured value."
            )
    if len(loads) > 1 and any(each.misfit_of == ALL for each in values):
        click.echo(
            "Few such values are measured, so the intervals assume that the model is as right for "
            "them as for all values; interference and loaded_latency would tell."
        )
    for own in missing:
        click.echo(
            f"No measurement determines {own.name}, so the intervals are wide. Most machines "
            f"need the {own.measured_by} for it; these loads together would do, too."
        )


def _point_of_name(name: str, points: Sequence[Point], folder: Path) -> Point:
    """Return the point ``EXPERIMENT/POINT``.

    Raises:
        UserError: the folder has no such point.
    """
    from chaosity.result_folders import UNMEASURED_FILE
    from chaosity.store.measurements import Measurements

    by_name = {f"{point['experiment']}/{point['point']}": point for point in points}
    if name in by_name:
        return by_name[name]
    if (folder / UNMEASURED_FILE).exists():
        rows = Measurements.read(folder / UNMEASURED_FILE).rows
        if name in set(rows["experiment"] + "/" + rows["point"]):
            remedy = "name measured points with the same loads, or run once without a budget"
            what = "the budget left this point out, so that its loads are not known"
            raise UserError(what, f"--with {name}", remedy)
    near = difflib.get_close_matches(name, by_name, _NEAR_NAMES, 0.3) or [*by_name][:_NEAR_NAMES]
    what = f"{folder / 'points'} has no such point"
    raise UserError(what, f"--with {name}", f"use {' or '.join(near)}")


def _columns(each: PredictedValue) -> list[str]:
    """Return the values of a row of the table."""

    def text(value: float) -> str:
        return format_quantity(each.metric, value)

    alone = text(each.alone if each.measured_alone is None else each.measured_alone)
    if each.measured_alone is None:
        alone = f"predicted {alone}"
    return [alone, text(each.value), f"{text(each.low)} to {text(each.high)}"]
