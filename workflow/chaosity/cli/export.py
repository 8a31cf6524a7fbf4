"""``chaosity export``: measurements for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click

from chaosity.errors import UserError
from chaosity.export import (
    MeasuredHost,
    WeightsExport,
    export_hwloc,
    export_weights,
    placement_document,
    read_measured_host,
)
from chaosity.records import write_atomically

_FOLDER = click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="RESULTS"
)
_OUTPUT = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="File; else it is printed."
)


@click.group()
def export() -> None:
    """Hand on what was measured, from RESULTS, a folder results/HOST/CONFIGURATION."""


@export.command()
@_FOLDER
@_OUTPUT
def hwloc(folder: Path, output: Path | None) -> None:
    """The topology with measured bandwidth (MiB/s) and latency (ns) as hwloc memory attributes.

    Each program that uses hwloc then answers from measurement, such as
    `hwloc-calc -i FILE --local-memory --best-memattr bandwidth pu:0`, or with HWLOC_XMLFILE=FILE
    and HWLOC_THISSYSTEM=1 on the host itself. --local-memory-flags 4 asks for all nodes and not
    for local ones alone.
    """
    if output is not None and output.resolve() == (folder / "topology.xml").resolve():
        raise UserError("is what discovery found", str(output), "name another file")
    found = export_hwloc(read_measured_host(folder))
    _put(found.xml, output, found.notes)


@export.command()
@_FOLDER
@_OUTPUT
@click.option("--dwp", type=float, default=0.0, show_default=True,
              help="Data-to-worker proximity: 1 is all pages on the workers.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def weights(folder: Path, output: Path | None, dwp: float, as_json: bool) -> None:
    """Interleave weights for each node, each package and all nodes as workers.

    As shares, as the kernel takes them, and as lines for numactl.
    """
    found = export_weights(read_measured_host(folder), dwp)
    text = _json(found.to_json()) if as_json else "\n".join(_lines(found)) + "\n"
    notes = [f"{name}: {why}, so there are no weights." for name, why in found.left_out.items()]
    _put(text, output, notes)


@export.command(name="json")
@_FOLDER
@_OUTPUT
def as_json(folder: Path, output: Path | None) -> None:
    """For schedulers: memory by placement, best nodes for each drive set, cost of company.

    workflow/schemas/placement.schema.yaml says what each key means.
    """
    _put(_json(placement_document(read_measured_host(folder))), output, ())


@export.command(name="all")
@_FOLDER
@click.option("--output", required=True, type=click.Path(file_okay=False, path_type=Path),
              help="Folder for topology.xml, weights.json, placement.json.")  # fmt: skip
def everything(folder: Path, output: Path) -> None:
    """All of them; what was not measured is left out, which notes.txt says."""
    output.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []

    def topology(host: MeasuredHost) -> str:
        found = export_hwloc(host)
        notes.extend(found.notes)
        return found.xml

    makers: dict[str, Callable[[MeasuredHost], str]] = {
        "topology.xml": topology,
        "weights.json": lambda host: _json(export_weights(host, 0.0).to_json()),
        "placement.json": lambda host: _json(placement_document(host)),
    }
    # Once; where it cannot be read, each file is left out for it.
    read = cache(read_measured_host)
    for name, make in makers.items():
        try:
            _put(make(read(folder)), output / name, ())
        except UserError as error:
            (output / name).unlink(missing_ok=True)  # of an earlier run
            notes.append(f"No {name}: {error}")
    write_atomically(output / "notes.txt", "\n".join(notes) + "\n")


def _lines(found: WeightsExport) -> Iterator[str]:
    """Weights as text; lines that are no command begin with # as in a shell."""
    origin = found.origin
    yield f"# Interleave weights of {origin['host']}, {origin['configuration']}"
    yield f"# from {found.measured}, {origin['measured_at_first']} to {origin['measured_at_last']}"
    for note in dict.fromkeys(note for one in found.sets.values() for note in one.notes):
        yield f"# {note}"
    yield "# Copy the lines of one set of workers."
    for name, one in found.sets.items():
        shares = ", ".join(f"node {n} {100.0 * share:.1f} %" for n, share in one.weights.items())
        yield f"\n# workers {name}: {shares}"
        yield (
            f"# expected {one.relative['weights']:.2f} times the bandwidth of equal shares; "
            f"the kernel's numbers are off by {one.kernel.error_percent:.1f} % at most"
        )
        yield from one.commands


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _put(text: str, output: Path | None, notes: Iterable[str]) -> None:
    """Print or write; what has to be said goes to standard error."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text)
    for note in notes:
        click.echo(note, err=True)
