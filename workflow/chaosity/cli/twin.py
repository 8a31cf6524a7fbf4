"""``chaosity fit`` and ``predict``: fit a model to a host, and predict unmeasured values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    CONFIG_OPTION,
    EXISTING_FILE,
    FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    TOPOLOGY_OF_MACHINE_OPTION,
    echo,
    print_json,
    print_line,
    print_table,
    print_that_nothing_was_measured,
    print_that_results_are_unusable,
    print_what_is_not_determined,
    refuse_options_without_effect,
)
from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity, interval_hidden_by_rounding

if TYPE_CHECKING:
    from chaosity.records.record_format import Load, Point
    from chaosity.topology.topology_model import Topology
    from chaosity.twin.fitted_description import FittedMachine, FittedParameter
    from chaosity.twin.model_values import PredictedValue, ValueKey


# Largest number of medians that the terminal lists if no parameter explains them.
_MOST_LISTED_DEPARTURES = 10
# Largest number of surprising points that the terminal lists; the JSON has all of them.
_MOST_LISTED_POINTS = 12
# Largest number of points with similar names that an error message names.
_MOST_SIMILAR_NAMES = 3


@click.command("fit")
@click.argument("folder", type=RESULTS_FOLDER)
@click.option(
    "--output", type=FILE, help="YAML file for the description. Default: only print its numbers."
)
def fit_command(folder: Path, output: Path | None) -> None:
    """Fit the description of a simulated machine to the measurements of a host.

    FOLDER is results/HOST/CONFIGURATION. The command prints each capacity and latency with its 95 %
    interval and the number of points that determine this value. To simulate the machine, give a
    host of an inventory the file of --output as chaosity_simulated.

    Example: chaosity fit results/demo/paper_server --output my_server.yaml
    """
    import yaml

    from chaosity.documents.checked_yaml import check_document
    from chaosity.documents.machines import MachineFile
    from chaosity.records.record_files import write_atomically
    from chaosity.twin.fit_results import ResultsToFit
    from chaosity.twin.fitted_description import named_description

    if output and not re.fullmatch(r"[a-z0-9_]+\.yaml", output.name):
        remedy = "use small letters, digits and underscores, such as my_server.yaml"
        raise UserError("the name of the file cannot name a machine", str(output), remedy)
    if output and not output.parent.is_dir():  # a fit of a large host takes minutes
        raise UserError("there is no folder for the file", str(output.parent), "create it first")
    results = ResultsToFit.read(folder)
    fitted, is_simulated = results.fit(), results.measured.is_simulated
    if is_simulated:
        print_line("SIMULATED: this machine does not exist.")
    print_that_results_are_unusable(results.unusable)
    _print_fitted(fitted)
    if output:
        host = folder.resolve()
        document = named_description(
            fitted, output.stem, host.parent.name, host.name, simulated=is_simulated
        )
        check_document(document, MachineFile, str(output))
        write_atomically(output, yaml.safe_dump(document, sort_keys=False, default_flow_style=None))
        echo(f"description: {output}")


def _print_fitted(fitted: FittedMachine) -> None:
    """Print the parameters of a fitted model, and how well the model fits the measured medians."""
    rows = [
        (each.parameter.name, *_value_and_interval(each), each.points) for each in fitted.parameters
    ]
    print_table(rows, ["parameter"], ["value", "95 % interval", "points"])
    medians = format_count(fitted.cells, "median")
    scale = f"{100 * fitted.scale:.1f} % (1 sigma)"
    print_line(f"{medians} fitted; they differ from the model by {scale}.")
    if faults := sum(1 for each in fitted.parameters if each.parameter.fault):
        print_line(f"{format_count(faults, 'single part')} slower than other parts of the kind.")
    if fitted.departures:
        departures = format_count(len(fitted.departures), "median")
        print_line(f"No parameter explains {departures}:")
        for place, ratio in [*fitted.departures.items()][:_MOST_LISTED_DEPARTURES]:
            print_line(f"{place}: {100 * (ratio - 1):+.0f} % of the model's value")


def _value_and_interval(each: FittedParameter) -> tuple[str, str]:
    """Return the value of a parameter and its interval as two texts.

    The text for a value that no measurement determines is "not determined", "at most ...", "at
    least ..." or "assumed ...".
    """
    metric = each.parameter.metric_of_unit
    if each.parameter.fault and each.value is not None:
        value = f"{100 * each.value:.1f} % remain"
        if each.low is None or each.high is None:  # the speed of healthy components is unknown
            return f"at most {value}", "not determined"
        return value, f"{100 * each.low:.1f} to {100 * each.high:.1f} %"
    if each.value is not None and each.low is not None and each.high is not None:
        return format_quantity(metric, each.value), _ends(metric, each.value, each.low, each.high)
    if each.at_least is not None:
        return "not determined", f"at least {format_quantity(metric, each.at_least)}"
    assumed = "" if each.value is None else f"assumed {format_quantity(metric, each.value)}"
    return "not determined", assumed


def _ends(metric: str, value: float, low: float, high: float) -> str:
    """Return both ends of an interval as text, or its width if both ends would look equal."""
    hidden = interval_hidden_by_rounding(metric, value, low, high)
    return hidden or f"{format_quantity(metric, low)} to {format_quantity(metric, high)}"


@click.command("predict")
@click.argument("folder", type=RESULTS_FOLDER, required=False)
@click.option(
    "--with",
    "together",
    multiple=True,
    metavar="EXPERIMENT/POINT",
    help="Predict the loads of this point while the loads of every other --with run, instead of "
    "drive sets.",
)
@click.option(
    "--machine",
    type=EXISTING_FILE,
    help="Predict from this description of a simulated machine, in place of FOLDER.",
)
@TOPOLOGY_OF_MACHINE_OPTION
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
    """Predict drive sets that a run left unmeasured, or loads that run at the same time.

    FOLDER is results/HOST/CONFIGURATION of a run. The file unmeasured.parquet of the run names the
    drive sets that the budget left out. The command writes predictions.parquet, with a 95 %
    interval and bounds for each set. As a test, the command also predicts measured sets from all
    other measurements, and prints how close these predictions are.

    With --with, the command fits a model of the machine to the measurements, and predicts the
    values of each load while the loads of all named points run at the same time. With --with, the
    command writes no file.

    With --machine, the command uses the numbers of a description, such as the output of chaosity
    fit, and the points that the config plans for the topology. Intervals follow from the key
    `fitted` of the description.

    Example: chaosity predict results/demo/paper_server
    --with memory_bandwidth/memory=node0+node4+triad
    --with memory_bandwidth/memory=node1+node4+triad
    """
    if machine is None:
        refuse_options_without_effect("without --machine", "topology", "config_file")
    elif folder or not topology or not together:
        what = "--machine needs --topology and --with, and no FOLDER"
        remedy = f"chaosity predict --machine {machine} --topology FILE.xml --with ..."
        raise UserError(what, remedy=remedy)
    else:
        print_predictions_on_described_machine(
            machine, topology, together, config_file, as_json=as_json
        )
        return
    if folder is None:
        raise UserError("no FOLDER is named", remedy="name results/HOST/CONFIGURATION of a run")
    if together:
        print_predicted_loads_of_points(folder, together, as_json=as_json)
    else:
        _predict_drive_sets(folder, as_json=as_json)


def _predict_drive_sets(folder: Path, *, as_json: bool) -> None:
    """Predict unmeasured drive sets, and print how well known values of sets are predicted."""
    from chaosity.drive_set_predictions import (
        audit_predictions,
        drive_set_models,
        find_contradicted_drive_sets,
        predict_drive_sets,
    )
    from chaosity.result_folders import PREDICTIONS_FILE, UNMEASURED_FILE, existing_tidy_table
    from chaosity.store.measurements import PREDICTION_COLUMNS, Measurements
    from chaosity.store.tidy_table_parquet import write_parquet_table

    measured = Measurements.read(existing_tidy_table(folder))
    left_out = folder / UNMEASURED_FILE
    rows = Measurements.read(left_out).rows if left_out.exists() else measured.rows[:0]
    unmeasured = Measurements(rows)
    models = drive_set_models(measured, unmeasured)
    predictions, audit = predict_drive_sets(models), audit_predictions(models)
    predictions["method"] += f"; {audit.text}"
    write_parquet_table(predictions, folder / PREDICTIONS_FILE, PREDICTION_COLUMNS)
    surprises = find_contradicted_drive_sets(models)
    if as_json:
        document = {"predicted": len(predictions), "unmeasured": len(unmeasured)}
        print_json({**document, "audit": asdict(audit), "surprises": [*map(asdict, surprises)]})
        return
    if measured.is_simulated:
        print_that_nothing_was_measured()
    number = format_count(len(predictions), "value")
    echo(f"{number} predicted, of {len(unmeasured)} left out: {folder / PREDICTIONS_FILE}")
    echo(f"Audit: {audit.text}.")
    for each in surprises[:_MOST_LISTED_POINTS]:
        echo(f"{each.experiment} {each.point}: {each.reason}, {each.ratio:.2f} times as much.")
    if len(surprises) > _MOST_LISTED_POINTS:
        echo(f"{len(surprises) - _MOST_LISTED_POINTS} more such points are in the JSON (--json).")


def print_predicted_loads_of_points(folder: Path, names: tuple[str, ...], *, as_json: bool) -> None:
    """Predict and print the value of each load of the named points while all these loads run."""
    from chaosity.twin.fit_results import ResultsToFit
    from chaosity.twin.model_values import loads_at_the_same_time, measured_medians

    results = ResultsToFit.read(folder)
    measured, points, topology = results.measured, results.points, results.topology
    chosen = [_point_of_name(name, points, str(folder / "points"), folder) for name in names]
    loads = loads_at_the_same_time(chosen, topology)
    alone = [measured_medians(measured, [*chosen, *points], [load]) for load in loads]
    medians = {key: value for own in alone for key, value in own.items()}
    seen = measured_medians(measured, points, loads) if len(loads) > 1 else {}
    _print_together(
        *(results.fit(), topology, loads, medians, seen),
        is_simulated=measured.is_simulated,
        unusable=results.unusable,
        as_json=as_json,
    )


def print_predictions_on_described_machine(
    machine: Path, topology_file: Path, names: tuple[str, ...], config_file: Path, *, as_json: bool
) -> None:
    """Predict and print the values of loads of the named points on a described machine."""
    from chaosity.design.host_plan import PlannedHost, plan_host
    from chaosity.documents.config import read_config
    from chaosity.topology.topology_model import configuration_name
    from chaosity.twin.fit_results import read_described_machine
    from chaosity.twin.model_values import loads_at_the_same_time

    fitted, topology = read_described_machine(machine, topology_file)
    experiments = [*dict.fromkeys(name.partition("/")[0] for name in names)]
    host = PlannedHost(machine.stem, configuration_name(topology), topology)
    points = plan_host(host, read_config(config_file), experiments).points
    chosen = [_point_of_name(name, points, f"the plan of {topology_file}") for name in names]
    loads = loads_at_the_same_time(chosen, topology)
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
    unusable: str = "",
) -> None:
    """Predict the values of loads that run at the same time, and print these values."""
    from chaosity.twin.machine_parameters import sorted_parameters
    from chaosity.twin.model_values import (
        ALL_KINDS_OF_VALUES,
        predict_loads,
        undetermined_parameters,
    )

    # The table also shows the value of each load alone, which is predicted if it was not measured.
    alone = [
        [load]
        for load in loads
        if any((load["name"], metric) not in medians for metric in load["metrics"])
    ]
    missing = sorted_parameters(
        {
            own
            for group in (loads, *alone)
            for own in undetermined_parameters(fitted, topology, group)
        }
    )
    values = predict_loads(fitted, topology, loads, medians)
    if as_json:
        document = {
            "simulated": is_simulated,
            "unusable": unusable,
            "not_determined": [each.name for each in missing],
        }
        rows = [
            {**asdict(each), "measured_together": seen.get((each.load, each.metric))}
            for each in values
        ]
        print_json({**document, "predicted": rows})
        return
    if is_simulated:
        print_that_nothing_was_measured()
    print_that_results_are_unusable(unusable)
    print_line("Values of each load while all loads run: predicted by the model, not measured.")
    has_intervals = bool(fitted.parameters)
    heads = ["alone", "together"] + ["95 % interval"] * has_intervals
    heads += ["measured together"] * bool(seen)
    print_table([_cells_of_load(each, seen) for each in values], ["load"], heads)
    if not has_intervals:
        print_line("No intervals: the description does not say how sure its numbers are.")
    for each in values:
        if each.departs:
            print_line(
                f"The model does not explain {each.load} alone, perhaps because of a fault. "
                "So the prediction for this load is at most the measured value."
            )
    if (
        has_intervals
        and len(loads) > 1
        and any(each.misfit_of == ALL_KINDS_OF_VALUES for each in values)
    ):
        print_line(
            "Few loads were measured together, so the intervals assume that the model is as right "
            "for these values as for all others. Measure interference and loaded_latency first."
        )
    for parameter in missing:
        print_what_is_not_determined(parameter.name, parameter.measured_by, "these loads together")


def _cells_of_load(each: PredictedValue, seen: dict[ValueKey, float]) -> list[str]:
    """Return the cells of a load's row: values alone and together, interval, measured value."""
    alone = each.alone if each.measured_alone is None else each.measured_alone
    cells = [
        each.load,
        "predicted " * (each.measured_alone is None) + format_quantity(each.metric, alone),
        format_quantity(each.metric, each.value),
    ]
    if each.low is not None and each.high is not None:
        cells.append(_ends(each.metric, each.value, each.low, each.high))
    if median := seen.get((each.load, each.metric)):
        cells.append(format_quantity(each.metric, median))
    return cells


def _point_of_name(
    name: str, points: Sequence[Point], where: str, folder: Path | None = None
) -> Point:
    """Return the point that has the name ``EXPERIMENT/POINT``.

    Raises:
        UserError: no point with this name is planned, or the budget left the point out.
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
    near = (
        difflib.get_close_matches(name, by_name, _MOST_SIMILAR_NAMES, 0.3)
        or [*by_name][:_MOST_SIMILAR_NAMES]
    )
    what = f"{where} has no such point"
    raise UserError(what, f"--with {name}", f"use {' or '.join(near)}")
