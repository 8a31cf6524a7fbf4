"""``chaosity anomalies``: what is wrong with a machine, from anybody's matrix or our own table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaosity.anomalies import (
    Findings,
    PackageNodes,
    analyse_host,
    analyse_matrix,
    host_parts,
)
from chaosity.components import read_components
from chaosity.errors import UserError
from chaosity.store import NodeMatrix, read_distances, read_matrix, read_table
from chaosity.topology import parse_cpu_list
from chaosity.units import quantity


@click.command()
@click.argument("file", metavar="MATRIX.csv|RESULTS", type=click.Path(exists=True, path_type=Path))
@click.option("--metric", type=click.Choice(["bandwidth", "latency"]),
              help="What a matrix holds.")  # fmt: skip
@click.option(
    "--unit", help="Of its numbers, such as MB/s or ns; else the file's name or size tells."
)
@click.option("--distances", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The firmware's distance table (SLIT), in the same form.")  # fmt: skip
@click.option("--packages", metavar='"0,1;2,3"',
              help="Nodes of each package; learned from the matrix without it.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def anomalies(
    file: Path,
    metric: str | None,
    unit: str | None,
    distances: Path | None,
    packages: str | None,
    as_json: bool,
) -> None:
    """Say what is wrong with a machine.

    MATRIX.csv has the initiator's node in the first column and then one column for each target
    node; rows that name an initiator again are replicates, an empty cell was not measured. Or
    RESULTS, a folder results/HOST/CONFIGURATION or a table (measurements.parquet), as `make run`
    leaves it.

    \b
    chaosity anomalies bandwidth_MBps.csv --metric bandwidth
    chaosity anomalies latency_ns.csv --metric latency --distances slit.csv --packages "0,1;2,3"

    What is normal for the machine (remote is slower, meshes and rings have steps) is learned from
    the matrix itself. An anomaly is clear, adjusted for all comparisons, and at least 5 % (8 % in a
    single run).
    """  # noqa: D301 (click's mark for lines that are not to be filled)
    if file.is_dir() or file.suffix == ".parquet":
        for name, value in {"--metric": metric, "--unit": unit, "--distances": distances,
                            "--packages": packages}.items():  # fmt: skip
            if value is not None:
                raise UserError(f"{name} is for a matrix", str(file), "results have their own")
        found = of_results(file)
    else:
        if metric is None:
            raise UserError(
                "it is not said what the matrix holds", str(file),
                "add --metric bandwidth or --metric latency",
            )  # fmt: skip
        matrix = read_matrix(file, metric, unit)
        of = None if packages is None else parse_packages(packages, matrix)
        found = analyse_matrix(matrix, of, _distances(distances, matrix) if distances else None)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for part in said(found):
        console.print(part)


def of_results(path: Path) -> Findings:
    """Of a results folder, or of a table with what lies beside it.

    Raises:
        UserError: there is no table.
    """
    folder = path if path.is_dir() else path.parent
    table = folder / "measurements.parquet" if path.is_dir() else path
    if not table.exists():
        raise UserError(
            "holds no measurements.parquet", str(folder), "name results/HOST/CONFIGURATION of a run"
        )
    topology = folder / "topology.json"
    known = json.loads(topology.read_text(encoding="utf-8")) if topology.exists() else None
    return analyse_host(
        read_table(table), host_parts(known, read_components(folder / "components"))
    )


def parse_packages(text: str, matrix: NodeMatrix) -> PackageNodes:
    """Nodes of each package: "0,1;2,3", or ranges as "0-3;4-7".

    Raises:
        UserError: it is no such list, names a node twice, or not all nodes that are both initiator
            and target.
    """
    found: list[tuple[int, ...]] = []
    for part in text.split(";"):
        try:
            nodes = tuple(parse_cpu_list(part.strip()))
        except ValueError:
            nodes = ()
        if not nodes:
            raise UserError(
                f"{part!r} is no list of nodes", "--packages", 'it would be like "0,1;2,3"'
            )
        found.append(nodes)
    named = [node for nodes in found for node in nodes]
    known = set(matrix.initiators) | set(matrix.targets)
    for node in named:
        if named.count(node) > 1:
            raise UserError(f"node {node} stands in two packages", "--packages")
        if node not in known:
            raise UserError(f"node {node} is not in the matrix", "--packages")
    for node in sorted(set(matrix.initiators) & set(matrix.targets)):
        if node not in named:
            raise UserError(
                f"node {node} of the matrix stands in no package", "--packages", "name all nodes"
            )
    return tuple(found)


def _distances(path: Path, matrix: NodeMatrix) -> dict[tuple[int, int], float]:
    """The table, which has to have the matrix' nodes.

    Raises:
        UserError: it lacks a pair that was measured.
    """
    found = read_distances(path)
    for initiator, target in matrix.samples:
        if (initiator, target) not in found:
            raise UserError(
                f"has no distance from node {initiator} to node {target}", str(path),
                "it needs every pair of the matrix",
            )  # fmt: skip
    return found


def said(found: Findings) -> Iterator[object]:
    """What the terminal shows: the verdict, each anomaly, the classes, what cannot be said."""
    yield Text(found.verdict, style="bold")
    for number, one in enumerate(found.anomalies, start=1):
        yield Text("")
        yield Text(f"{number}. {one.sentence}", style="bold red")
        yield Text(f"   {one.evidence}")
        for more in one.also:
            yield Text(f"   {more}")
        yield Text(f"   {one.advice}", style="italic")
    if found.classes:
        yield Text("")
        yield Text(f"Structure: {found.structure}")
        table = Table(box=None, pad_edge=False)
        for head in ("class", "typical", "cells"):
            table.add_column(head, justify="left")
        for one in found.classes:
            cells = [f"{initiator}->{target}" for initiator, target in one.cells]
            shown = " ".join(cells[:12]) + (
                f" and {len(cells) - 12} more" if len(cells) > 12 else ""
            )
            table.add_row(one.name, quantity(found.metric or "", one.typical), shown)
        yield table
    if found.checked:
        yield Text("")
        yield Text(f"Looked at: {', '.join(found.checked)}.")
    for note in found.notes:
        yield Text(note)
