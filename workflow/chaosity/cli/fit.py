"""``chaosity fit``: the description of a machine, fitted to what was measured on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.anomalies import analyse_results
from chaosity.cli.shared_options import FILE, RESULTS_FOLDER
from chaosity.cli.terminal_output import echo, print_template
from chaosity.errors import UserError

if TYPE_CHECKING:
    from chaosity.records.point_types import Point
    from chaosity.store.measurements import Measurements
    from chaosity.topology.topology_model import Topology
    from chaosity.twin.fitted_description import FittedMachine


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
    print_template("fit", fitted=fitted, is_simulated=measured.is_simulated)
    if output:
        host = folder.resolve()
        document = named_description(
            fitted, output.stem, host.parent.name, host.name, simulated=measured.is_simulated
        )
        check_document(document, MachineFile, str(output))
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
