"""``chaosity predict``: what a run left unmeasured, or loads at the same time, predicted."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.fit import fit_results, read_folder_to_fit
from chaosity.cli.shared_options import (
    CONFIG_OPTION,
    EXISTING_FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    refuse_without_effect,
)
from chaosity.cli.terminal_output import echo, print_json, print_template
from chaosity.errors import UserError
from chaosity.units import format_count

if TYPE_CHECKING:
    from chaosity.records.point_types import Load, Point
    from chaosity.topology.topology_model import Topology
    from chaosity.twin.fitted_description import FittedMachine
    from chaosity.twin.predict_loads import ValueKey

# Number of surprising points that the terminal lists. The JSON has all.
_MOST_POINTS = 12
# Number of points that an error names.
_NEAR_NAMES = 3


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
        _predict_of_description(machine, topology, together, config_file, as_json=as_json)
        return
    if folder is None:
        raise UserError("no FOLDER is named", remedy="name results/HOST/CONFIGURATION of a run")
    if together:
        _predict_together(folder, together, as_json=as_json)
        return
    from chaosity.prediction.predict_drive_sets import (
        audit_predictions,
        drive_set_models,
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
        echo("SIMULATED: this machine does not exist, and nothing was measured.")
    number = format_count(len(predictions), "value")
    echo(f"{number} predicted, of {len(unmeasured)} left out: {folder / PREDICTIONS_FILE}")
    echo(f"Audit: {audit.text}.")
    for each in surprises[:_MOST_POINTS]:
        echo(f"{each.experiment} {each.point}: {each.reason}, {each.ratio:.2f} times as much.")
    if len(surprises) > _MOST_POINTS:
        echo(f"{len(surprises) - _MOST_POINTS} more such points are in the JSON (--json).")


def _predict_together(folder: Path, names: tuple[str, ...], *, as_json: bool) -> None:
    """Print what loads of planned points get while all of them run."""
    from chaosity.twin.predict_loads import joined_loads, measured_medians

    measured, points, topology = read_folder_to_fit(folder)
    chosen = [_point_of_name(name, points, str(folder / "points"), folder) for name in names]
    loads = joined_loads(chosen, topology)
    alone = [measured_medians(measured, [*chosen, *points], [load]) for load in loads]
    medians = {key: value for own in alone for key, value in own.items()}
    seen = measured_medians(measured, points, loads) if len(loads) > 1 else {}
    fitted = fit_results(folder, measured, points, topology)
    _print_together(
        *(fitted, topology, loads, medians, seen),
        is_simulated=measured.is_simulated,
        as_json=as_json,
    )


def _predict_of_description(
    machine: Path, topology_file: Path, names: tuple[str, ...], config_file: Path, *, as_json: bool
) -> None:
    """Print what loads of planned points get on a described machine while all of them run."""
    from chaosity.design.host_plan import PlannedHost, plan_host
    from chaosity.documents.check_config import read_config
    from chaosity.simulation.machine_description import read_machine_description
    from chaosity.topology.configuration_names import configuration_name
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.twin.fitted_description import read_fitted
    from chaosity.twin.predict_loads import joined_loads

    topology = discover_topology(str(topology_file))
    fitted = read_fitted(read_machine_description(machine, topology), str(machine))
    experiments = [*dict.fromkeys(name.partition("/")[0] for name in names)]
    host = PlannedHost(machine.stem, configuration_name(topology), topology)
    points = plan_host(host, read_config(config_file), experiments).points
    chosen = [_point_of_name(name, points, f"the plan of {topology_file}") for name in names]
    loads = joined_loads(chosen, topology)
    _print_together(fitted, topology, loads, {}, {}, is_simulated=True, as_json=as_json)


def _print_together(
    fitted: FittedMachine,
    topology: Topology,
    loads: Sequence[Load],
    medians: dict[ValueKey, float],
    seen: dict[ValueKey, float],
    *,
    is_simulated: bool,
    as_json: bool,
) -> None:
    """Print the predicted values of loads at the same time.

    Args:
        fitted: the machine.
        topology: its topology.
        loads: the loads.
        medians: measured medians of each load alone.
        seen: measured medians of the loads together.
        is_simulated: whether the values are those of a machine that does not exist.
        as_json: whether to print JSON.
    """
    from chaosity.twin.model_values import ALL
    from chaosity.twin.predict_loads import predict_loads, undetermined_parameters

    missing = undetermined_parameters(fitted, topology, loads)
    values = predict_loads(fitted, topology, loads, medians)
    if as_json:
        document = {
            "simulated": is_simulated,
            "not_determined": [each.name for each in missing],
        }
        rows = [
            {**asdict(each), "measured_together": seen.get((each.load, each.metric))}
            for each in values
        ]
        print_json({**document, "predicted": rows})
        return
    has_intervals = bool(fitted.parameters)
    unlike = has_intervals and len(loads) > 1 and any(each.misfit_of == ALL for each in values)
    print_template(
        "predict",
        is_simulated=is_simulated,
        has_intervals=has_intervals,
        has_seen=bool(seen),
        values=[(each, seen.get((each.load, each.metric))) for each in values],
        is_unlike_measured=unlike,
        missing=missing,
    )


def _point_of_name(
    name: str, points: Sequence[Point], where: str, folder: Path | None = None
) -> Point:
    """Return the point ``EXPERIMENT/POINT``.

    Args:
        name: of the point.
        points: all points.
        where: where these points are, for the error.
        folder: of a run, which lists the points that a budget left out.

    Raises:
        UserError: there is no such point.
    """
    from chaosity.result_folders import UNMEASURED_FILE
    from chaosity.store.measurements import Measurements

    by_name = {f"{point['experiment']}/{point['point']}": point for point in points}
    if name in by_name:
        return by_name[name]
    if folder and (folder / UNMEASURED_FILE).exists():
        rows = Measurements.read(folder / UNMEASURED_FILE).rows
        if name in set(rows["experiment"] + "/" + rows["point"]):
            remedy = "name measured points with the same loads, or run once without a budget"
            what = "the budget left this point out, so that its loads are not known"
            raise UserError(what, f"--with {name}", remedy)
    near = difflib.get_close_matches(name, by_name, _NEAR_NAMES, 0.3) or [*by_name][:_NEAR_NAMES]
    what = f"{where} has no such point"
    raise UserError(what, f"--with {name}", f"use {' or '.join(near)}")
