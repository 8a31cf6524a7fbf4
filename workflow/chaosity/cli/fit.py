"""``chaosity fit``: the description of a machine, fitted to what was measured on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.anomalies import analyse_results
from chaosity.cli.shared_options import FILE, RESULTS_FOLDER
from chaosity.cli.terminal_output import echo, print_line, print_table
from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity

if TYPE_CHECKING:
    from chaosity.records.point_types import Point
    from chaosity.store.measurements import Measurements
    from chaosity.topology.topology_model import Topology
    from chaosity.twin.fitted_description import FittedMachine, FittedParameter

# Number of medians that no parameter explains and that the terminal lists.
_MOST_DEPARTURES = 10


@click.command("fit")
@click.argument("folder", type=RESULTS_FOLDER)
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

    from chaosity.documents.check_document import check_document
    from chaosity.documents.machines import MachineFile
    from chaosity.records.atomic_writes_and_record_files import write_atomically
    from chaosity.twin.fitted_description import named_description

    if output and not re.fullmatch(r"[a-z0-9_]+\.yaml", output.name):
        remedy = "use small letters, digits and underscores, such as my_server.yaml"
        raise UserError("the name of the file cannot name a machine", str(output), remedy)
    measured, points, topology = read_folder_to_fit(folder)
    fitted = fit_results(folder, measured, points, topology)
    if measured.is_simulated:
        print_line("SIMULATED: this machine does not exist.")
    _print_fitted(fitted)
    if output:
        host = folder.resolve()
        document = named_description(
            fitted, output.stem, host.parent.name, host.name, simulated=measured.is_simulated
        )
        check_document(document, MachineFile, str(output))
        write_atomically(output, yaml.safe_dump(document, sort_keys=False, default_flow_style=None))
        echo(f"description: {output}")


def _print_fitted(fitted: FittedMachine) -> None:
    """Print the parameters of a machine, and how well it fits."""
    rows = [
        (each.parameter.name, *_value_and_interval(each), each.points) for each in fitted.parameters
    ]
    print_table(rows, ["parameter"], ["value", "95 % interval", "points"])
    medians = format_count(fitted.cells, "median")
    scale = f"{100 * fitted.scale:.1f} % (1 sigma)"
    print_line(f"{medians} fitted; they differ from the model by {scale}.")
    if faults := sum(1 for each in fitted.parameters if each.parameter.fault):
        print_line(f"{format_count(faults, 'single part')} slower than all others of the kind.")
    if fitted.departures:
        departures = format_count(len(fitted.departures), "median")
        print_line(f"No parameter explains {departures}:")
        for place, ratio in [*fitted.departures.items()][:_MOST_DEPARTURES]:
            print_line(f"{place}: {100 * (ratio - 1):+.0f} % of the model's value")


def _value_and_interval(each: FittedParameter) -> tuple[str, str]:
    """Return the value of a parameter and its interval, or what is known without them."""
    metric = each.parameter.key + "_ns" * each.parameter.is_latency
    if each.parameter.fault and each.value is not None:
        value = f"{100 * each.value:.1f} % remain"
        if each.low is None or each.high is None:
            return value, "not determined"
        return value, f"{100 * each.low:.1f} to {100 * each.high:.1f} %"
    low, high = (format_quantity(metric, end) for end in (each.low, each.high))
    if each.low is not None and each.high is not None:
        return format_quantity(metric, each.value), f"{low} to {high}"
    if each.at_least is not None:
        return "not determined", f"at least {format_quantity(metric, each.at_least)}"
    assumed = "" if each.value is None else f"assumed {format_quantity(metric, each.value)}"
    return "not determined", assumed


def read_folder_to_fit(folder: Path) -> tuple[Measurements, list[Point], Topology]:
    """Return the tidy table, the planned points and the topology of a host.

    Raises:
        UserError: the folder is not that of a run.
    """
    from chaosity.result_folders import measured_table
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_from_records import read_points
    from chaosity.topology.topology_json import read_topology

    measured = Measurements.read(measured_table(folder))
    topology = read_topology(folder / "topology.json")
    if topology is None:
        remedy = "name a folder results/HOST/CONFIGURATION of a run"
        raise UserError("topology.json is missing", str(folder), remedy)
    return measured, list(read_points(folder / "points")), topology


def fit_results(
    folder: Path, measured: Measurements, points: Sequence[Point], topology: Topology
) -> FittedMachine:
    """Return the machine that fits the results in a folder best, see `read_folder_to_fit`.

    The faulty parts are those that the findings of the host name.
    """
    from chaosity.twin.faults_of_findings import faults_of_findings
    from chaosity.twin.fit_machine import fit_machine

    faults = faults_of_findings(analyse_results(folder), topology)
    return fit_machine(measured, points, topology, faults)
