"""``chaosity fit``: the description of a machine, fitted to what was measured on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from chaosity.cli.shared_options import EXISTING_FOLDER, FILE
from chaosity.cli.terminal_output import borderless_table, echo, print_rich
from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity

if TYPE_CHECKING:
    from chaosity.prediction.fitted_description import FittedMachine, FittedParameter
    from chaosity.records.point_types import Point
    from chaosity.store.measurements import Measurements
    from chaosity.topology.topology_model import Topology

# Number of unexplained medians that the terminal lists.
_MOST_DEPARTURES = 10


@click.command("fit")
@click.argument("folder", type=EXISTING_FOLDER)
@click.option(
    "--output", type=FILE, help="YAML file for the description. Default: only print its numbers."
)
def fit_command(folder: Path, output: Path | None) -> None:
    """Fit the description of a simulated machine to the measurements of a host.

    FOLDER is results/HOST/CONFIGURATION. Prints each capacity and latency with its 95 % interval
    and the number of points that determine it. The file of --output can be simulated: name it as
    chaosity_simulated of an inventory entry.
    """
    import yaml

    from chaosity.checked_yaml_files import validate_document
    from chaosity.prediction.fit_machine import fit_machine
    from chaosity.prediction.fitted_description import named_description
    from chaosity.records.atomic_writes_and_record_files import write_atomically
    from chaosity.simulation.machine_description import KIND

    if output and not re.fullmatch(r"[a-z0-9_]+\.yaml", output.name):
        remedy = "use small letters, digits and underscores, such as my_server.yaml"
        raise UserError("the name of the file cannot name a machine", str(output), remedy)
    measured, points, topology = read_folder_to_fit(folder)
    fitted = fit_machine(measured, points, topology)
    if measured.is_simulated:
        echo("SIMULATED: this machine does not exist.")
    print_rich([_table(fitted), *_sentences(fitted)])
    if output:
        host = folder.resolve()
        document = named_description(
            fitted, output.stem, host.parent.name, host.name, simulated=measured.is_simulated
        )
        validate_document(document, KIND, str(output))
        write_atomically(output, yaml.safe_dump(document, sort_keys=False, default_flow_style=None))
        echo(f"description: {output}")


def read_folder_to_fit(folder: Path) -> tuple[Measurements, list[Point], Topology]:
    """Return the tidy table, the planned points and the topology of a host.

    Raises:
        UserError: the folder is not that of a run.
    """
    from chaosity.result_folders import MEASUREMENTS_FILE
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_from_records import read_points
    from chaosity.topology.topology_json import read_topology

    topology = read_topology(folder / "topology.json")
    if topology is None or not (folder / MEASUREMENTS_FILE).exists():
        remedy = "name a folder results/HOST/CONFIGURATION of a run"
        raise UserError("the folder has no measurements", str(folder), remedy)
    measured = Measurements.read(folder / MEASUREMENTS_FILE)
    return measured, list(read_points(folder / "points")), topology


def _table(fitted: FittedMachine) -> Table:
    """Return the table of all parameters."""
    table = borderless_table(["parameter"], ["value", "95 % interval", "points"])
    for each in fitted.parameters:
        table.add_row(each.parameter.name, *_value_and_interval(each), str(each.points))
    return table


def _value_and_interval(each: FittedParameter) -> tuple[str, str]:
    """Return the value of a parameter and its interval, or what is known without them."""
    key = each.parameter.key
    if each.parameter.fault and each.value is not None:
        unsure = "not determined" if each.low is None or each.high is None else ""
        interval = unsure or f"{100 * (each.low or 0):.1f} to {100 * (each.high or 0):.1f} %"
        return f"{100 * each.value:.1f} % remain", interval
    metric = f"{key}_ns" if each.parameter.is_latency else key
    if each.low is not None and each.high is not None:
        interval = f"{format_quantity(metric, each.low)} to {format_quantity(metric, each.high)}"
        return format_quantity(metric, each.value), interval
    if each.at_least is not None:
        return "not determined", f"at least {format_quantity(metric, each.at_least)}"
    assumed = "" if each.value is None else f"assumed {format_quantity(metric, each.value)}"
    return "not determined", assumed


def _sentences(fitted: FittedMachine) -> Iterator[str]:
    """Yield how well the model fits, and what it does not explain."""
    cells = format_count(fitted.cells, "median")
    yield f"{cells} fitted; they differ from the model by {100 * fitted.scale:.1f} % (1 sigma)."
    faults = sum(bool(each.parameter.fault) for each in fitted.parameters)
    if faults:
        yield f"{format_count(faults, 'single part')} slower than all others of the kind."
    if fitted.departures:
        yield f"No parameter explains {format_count(len(fitted.departures), 'median')}:"
    for place, ratio in list(fitted.departures.items())[:_MOST_DEPARTURES]:
        yield f"{place}: {100 * (ratio - 1):+.0f} % of the model's value"
