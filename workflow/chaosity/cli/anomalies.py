"""``chaosity anomalies``: faults of a machine, from a matrix of any tool or from results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    EXISTING_FILE,
    FILE_OR_RESULTS,
    JSON_OPTION,
    UNIT_OPTION,
    print_json,
    print_line,
    print_table,
)
from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.units import format_quantity, join_with_and

if TYPE_CHECKING:
    from chaosity.anomalies.anomaly_results import Anomaly, ComparableCells, Findings
    from chaosity.anomalies.matrix_structure import PackageNodes
    from chaosity.store.csv_tables import NodeMatrix
    from chaosity.store.measurements import Measurements


# Largest number of cells of a group that the terminal lists; the JSON has all cells.
_MOST_PRINTED_CELLS = 12


@click.command("anomalies")
@click.argument("file", metavar="MATRIX.csv|RESULTS", type=FILE_OR_RESULTS)
@click.option(
    "--metric",
    type=click.Choice(["bandwidth", "latency"]),
    help="Metric of the matrix; required for a CSV matrix.",
)
@UNIT_OPTION
@click.option(
    "--distances",
    type=EXISTING_FILE,
    help="CSV file of the firmware's distances (SLIT), with rows and columns like the matrix.",
)
@click.option(
    "--packages",
    metavar='"0,1;2,3"',
    help="Nodes of each package. Default: inferred from the matrix.",
)
@JSON_OPTION
def find_anomalies_command(
    file: Path,
    metric: str | None,
    unit: str | None,
    distances: Path | None,
    packages: str | None,
    as_json: bool,
) -> None:
    """Find faults of a machine in a matrix or in results.

    MATRIX.csv has the initiator node in the first column, then a column for each target node. Rows
    of the same initiator are replicates. An empty cell was not measured. RESULTS is a folder
    results/HOST/CONFIGURATION or a tidy table (measurements.parquet) that `make run` wrote.

    The expected values come from the matrix itself: remote nodes are slower, and meshes and rings
    have near and far nodes. A cell is an anomaly if it departs from its group significantly
    (adjusted for all comparisons) and by at least 5 % (8 % without replicates).

    Example: chaosity anomalies results/demo/paper_server
    """
    from chaosity.anomalies.matrix_anomalies import analyse_matrix
    from chaosity.result_folders import existing_tidy_table
    from chaosity.store.csv_tables import read_matrix_csv
    from chaosity.store.measurements import Measurements

    explained: tuple[Path, Measurements] | None = None
    if file.is_dir() or file.suffix == ".parquet":
        given = {"metric": metric, "unit": unit, "distances": distances, "packages": packages}
        for name, value in given.items():
            if value is not None:
                raise UserError(f"--{name} is allowed for a CSV matrix only", str(file))
        folder = file if file.is_dir() else file.parent
        measurements = Measurements.read(existing_tidy_table(folder) if file.is_dir() else file)
        findings = analyse_results(folder, measurements)
        # Values of a table without points beside it cannot be explained.
        if (folder / "points").is_dir():
            explained = folder, measurements
    else:
        if metric is None:
            remedy = "add --metric bandwidth or --metric latency"
            raise UserError("--metric is required for a CSV matrix", str(file), remedy)
        matrix = read_matrix_csv(file, metric, unit)
        slit = _matching_distances(distances, matrix) if distances else None
        nodes = None if packages is None else _parse_packages(packages, matrix)
        findings = analyse_matrix(matrix, nodes, slit)
    if as_json:
        print_json(findings.to_json())
    else:
        print_findings(findings, explained)


def print_findings(findings: Findings, explained: tuple[Path, Measurements] | None) -> None:
    """Print the findings of a matrix or host, with at most `_MOST_PRINTED_CELLS` cells a group.

    `explained` is the folder of the results and its tidy table, if ``chaosity explain`` can explain
    the values of the findings.
    """
    print_line(findings.verdict, style="bold")
    for number, anomaly in enumerate(findings.anomalies, 1):
        print_line(f"\n{number}. {anomaly.sentence}", style="bold red")
        for line in (anomaly.evidence_sentence, *anomaly.also):
            print_line(f"   {line}")
        print_line(f"   {anomaly.advice}", style="italic")
        _print_explain_command(anomaly, explained, indent="   ")
    if findings.suspicions:
        print_line(f"\nSuspicions ({len(findings.suspicions)}), to be measured again:")
    for anomaly in findings.suspicions:
        print_line(f"- {anomaly.sentence} {anomaly.doubt}")
        _print_explain_command(anomaly, explained, indent="  ")
    if findings.groups:
        print_line(f"\nStructure: {findings.structure}")
        rows = [_row_of_comparable_cells(group, findings.metric or "") for group in findings.groups]
        print_table(rows, ["group", "typical", "cells"])
    # If a host has no findings, the verdict already says what was tested.
    if findings.checked and (findings.anomalies or findings.groups):
        print_line(f"\nTested: {', '.join(findings.checked)}.")
        if findings.untested:
            print_line(f"Not tested: {join_with_and(findings.untested)}.")
    for note in findings.notes:
        print_line(f"{note.rstrip('.')}.")


def _print_explain_command(
    anomaly: Anomaly, explained: tuple[Path, Measurements] | None, indent: str
) -> None:
    from chaosity.result_folders import explain_command_line

    if explained and (arguments := anomaly.explain_arguments(explained[1])):
        command = explain_command_line(explained[0], *arguments)
        print_line(f"{indent}Raw numbers of the worst value: {command}")


def _row_of_comparable_cells(group: ComparableCells, metric: str) -> tuple[str, str, str]:
    """Return name, typical value and first cells of a group, as texts."""
    cells = ["->".join(map(str, cell)) for cell in group.cells[:_MOST_PRINTED_CELLS]]
    if len(group.cells) > _MOST_PRINTED_CELLS:
        cells.append(f"and {len(group.cells) - _MOST_PRINTED_CELLS} more")
    return group.name, format_quantity(metric, group.typical), " ".join(cells)


def analyse_results(folder: Path, measurements: Measurements) -> Findings:
    """Return the findings for a host's tidy table and the files in the folder of its results."""
    from chaosity.anomalies.host_anomalies import analyse_host, host_component_facts
    from chaosity.components import read_component_documents
    from chaosity.topology.topology_model import read_topology

    topology = read_topology(folder / "topology.json")
    components = read_component_documents(folder / "components")
    return analyse_host(measurements, host_component_facts(topology, components))


def _parse_packages(text: str, matrix: NodeMatrix) -> PackageNodes:
    """Return the nodes of each package from a text such as "0,1;2,3" or "0-3;4-7"."""
    option = "--packages"
    packages = []
    for part in text.split(";"):
        try:
            nodes = parse_cpu_list(part.strip())
        except ValueError:
            nodes = ()
        if not nodes:
            raise UserError(f"{part!r} is not a list of nodes", option, 'e.g. "0,1;2,3"')
        packages.append(nodes)
    listed = Counter(node for nodes in packages for node in nodes)
    for node, count in listed.items():
        if count > 1:
            raise UserError(f"node {node} is in two packages", option)
        if node not in (*matrix.initiators, *matrix.targets):
            raise UserError(f"node {node} is not in the matrix", option)
    for node in sorted({*matrix.initiators} & {*matrix.targets} - listed.keys()):
        raise UserError(f"node {node} of the matrix is in no package", option, "list all nodes")
    return tuple(packages)


def _matching_distances(path: Path, matrix: NodeMatrix) -> dict[tuple[int, int], float]:
    """Return (initiator, target) -> SLIT entry in a CSV file that has all pairs of the matrix."""
    from chaosity.store.csv_tables import read_distances_csv

    distances = read_distances_csv(path)
    for initiator, target in matrix.samples:
        if (initiator, target) not in distances:
            problem = f"the distance from node {initiator} to node {target} is missing"
            raise UserError(problem, str(path), "all pairs of the matrix are required")
    return distances
