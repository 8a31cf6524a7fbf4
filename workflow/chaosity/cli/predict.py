"""``chaosity predict``: what a run left unmeasured, or loads at the same time, predicted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from chaosity.cli.predict_together import predict_loads_of_points, predict_on_described_machine
from chaosity.cli.shared_options import (
    CONFIG_OPTION,
    EXISTING_FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    refuse_without_effect,
)
from chaosity.cli.terminal_output import (
    echo,
    print_json,
    print_that_nothing_was_measured,
)
from chaosity.errors import UserError
from chaosity.units import format_count

# Number of surprising points that the terminal lists. The JSON has all.
_MOST_POINTS = 12


@click.command("predict")
@click.argument("folder", type=RESULTS_FOLDER, required=False)
@click.option(
    "--with",
    "together",
    multiple=True,
    metavar="EXPERIMENT/POINT",
    help="Predict the loads of this point beside those of every other --with, in place of drive "
    "sets.",
)
@click.option(
    "--machine",
    type=EXISTING_FILE,
    help="Predict from this description of a simulated machine, in place of FOLDER.",
)
@click.option(
    "--topology", type=EXISTING_FILE, help="With --machine: its topology, an hwloc XML file."
)
@CONFIG_OPTION
@JSON_OPTION
def predict_command(
    folder: Path | None,
    together: tuple[str, ...],
    machine: Path | None,
    topology: Path | None,
    config_file: Path,
    as_json: bool,
) -> None:
    """Predict the bandwidth of the drive sets that a run left unmeasured, or loads together.

    FOLDER is results/HOST/CONFIGURATION of a run. Its unmeasured.parquet names the drive sets that
    the budget left out. Writes predictions.parquet, with a 95 % interval and bounds for each set,
    and prints how well measured sets are predicted without their own measurement.

    With --with, fits the model of docs/simulation.md to the measurements, and predicts what each
    load gets while the loads of all named points run at the same time. Writes no file.

    With --machine, takes the numbers of a description, such as the output of chaosity fit, and the
    points that the config plans for the topology. Intervals follow from the key fitted of the file.
    """
    if machine is None:
        refuse_without_effect("without --machine", "topology", "config_file")
    elif folder or not topology or not together:
        what = "--machine needs --topology and --with, and no FOLDER"
        remedy = f"chaosity predict --machine {machine} --topology FILE.xml --with ..."
        raise UserError(what, remedy=remedy)
    else:
        predict_on_described_machine(machine, topology, together, config_file, as_json=as_json)
        return
    if folder is None:
        raise UserError("no FOLDER is named", remedy="name results/HOST/CONFIGURATION of a run")
    if together:
        predict_loads_of_points(folder, together, as_json=as_json)
    else:
        _predict_drive_sets(folder, as_json=as_json)


def _predict_drive_sets(folder: Path, *, as_json: bool) -> None:
    """Predict the drive sets that a run left unmeasured, and print how good the predictions are."""
    from chaosity.prediction.predict_drive_sets import (
        audit_predictions,
        drive_set_models,
        predict_drive_sets,
        violated_bounds,
    )
    from chaosity.result_folders import PREDICTIONS_FILE, UNMEASURED_FILE, measured_table
    from chaosity.store.left_out_points import PREDICTION_COLUMNS
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_parquet import write_parquet_table

    measured = Measurements.read(measured_table(folder))
    left_out = folder / UNMEASURED_FILE
    rows = Measurements.read(left_out).rows if left_out.exists() else measured.rows[:0]
    unmeasured = Measurements(rows)
    models = drive_set_models(measured, unmeasured)
    predictions, audit = predict_drive_sets(models), audit_predictions(models)
    predictions["method"] += f"; {audit.text}"
    write_parquet_table(predictions, folder / PREDICTIONS_FILE, PREDICTION_COLUMNS)
    surprises = violated_bounds(models)
    if as_json:
        document = {"predicted": len(predictions), "unmeasured": len(unmeasured)}
        print_json({**document, "audit": asdict(audit), "surprises": [*map(asdict, surprises)]})
        return
    if measured.is_simulated:
        print_that_nothing_was_measured()
    number = format_count(len(predictions), "value")
    echo(f"{number} predicted, of {len(unmeasured)} left out: {folder / PREDICTIONS_FILE}")
    echo(f"Audit: {audit.text}.")
    for each in surprises[:_MOST_POINTS]:
        echo(f"{each.experiment} {each.point}: {each.reason}, {each.ratio:.2f} times as much.")
    if len(surprises) > _MOST_POINTS:
        echo(f"{len(surprises) - _MOST_POINTS} more such points are in the JSON (--json).")
