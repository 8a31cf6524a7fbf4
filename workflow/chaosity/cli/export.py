"""``chaosity export``: results for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from chaosity.cli.shared import (
    DWP_OPTION,
    FILE,
    FOLDER,
    JSON_OPTION,
    RESULTS_FOLDER,
    echo,
    json_text,
)
from chaosity.errors import UserError
from chaosity.records.record_files import write_atomically

if TYPE_CHECKING:
    from chaosity.export.main_matrices import MeasuredHost

_RESULTS_ARGUMENT = click.argument("folder", type=RESULTS_FOLDER, metavar="RESULTS")
_OUTPUT_OPTION = click.option("--output", type=FILE, help="Output file. Default: standard output.")


# The text of an export, and notes on values that the text lacks.
_TextAndNotes = tuple[str, Iterable[str]]


class _ExportFormat(NamedTuple):
    """A format of `chaosity export`."""

    file: str  # name of the file that `chaosity export all` writes
    write: Callable[[MeasuredHost], _TextAndNotes]
    help: str  # help of the command


def _export_hwloc(host: MeasuredHost) -> _TextAndNotes:
    from chaosity.export.hwloc_xml_with_measurements import export_hwloc_xml

    return export_hwloc_xml(host)


def _export_weights(host: MeasuredHost, dwp: float = 0.0, *, as_json: bool = True) -> _TextAndNotes:
    from chaosity.export.formats import interleave_weights_of_host, render_with_origin

    exported = interleave_weights_of_host(host, dwp)
    notes = [f"No weights for workers {name}: {why}." for name, why in exported.left_out.items()]
    if as_json:
        return json_text(exported.to_json()), notes
    return render_with_origin("weights", exported.origin, exported=exported), notes


def _writer_of_function(
    function: str, to_text: Callable[[Any], str] = str
) -> Callable[[MeasuredHost], _TextAndNotes]:
    """Return a function that imports and calls `function` of `chaosity.export.formats`."""

    def write(host: MeasuredHost) -> _TextAndNotes:
        from chaosity.export import formats

        return to_text(getattr(formats, function)(host)), ()

    return write


_EXPORT_FORMATS = {
    "hwloc": _ExportFormat(
        "topology.xml",
        _export_hwloc,
        """Export the topology with measured bandwidth (MiB/s) and latency (ns) for hwloc.

        The values are memory attributes, so programs that use hwloc choose memory by measured
        values:

        \b
        hwloc-calc -i FILE --local-memory --best-memattr bandwidth pu:0
        HWLOC_XMLFILE=FILE HWLOC_THISSYSTEM=1 PROGRAM     (on the host itself)

        hwloc-calc considers only local nodes; to consider all nodes, add `--local-memory-flags 4`.
        """,
    ),
    # The format weights has a command with more options, see `export_weights_command`.
    "weights": _ExportFormat("weights.json", _export_weights, ""),
    "json": _ExportFormat(
        "placement.json",
        _writer_of_function("build_placement_document", json_text),
        """Export JSON for schedulers.

        The JSON has memory bandwidth and latency from each node to each node, the best nodes for
        each drive set, and slowdowns of co-running loads.

        workflow/schemas/placement.schema.yaml describes the keys.
        """,
    ),
    "fio": _ExportFormat(
        "drives.fio",
        _writer_of_function("export_fio_job_file"),
        "Export a fio job file that reads each drive from its best node.",
    ),
    "openmetrics": _ExportFormat(
        "map.prom",
        _writer_of_function("export_openmetrics"),
        "Export memory bandwidth, latency and drive bandwidth as OpenMetrics for Prometheus.",
    ),
    "reframe": _ExportFormat(
        "reframe_references.yaml",
        _writer_of_function("export_reframe_references"),
        "Export references with limits for performance tests of ReFrame.",
    ),
    "roofline": _ExportFormat(
        "roofline.csv",
        _writer_of_function("export_roofline_csv"),
        "Export the highest bandwidth of each initiator and memory node as CSV.",
    ),
    "slurm": _ExportFormat(
        "slurm_features.conf",
        _writer_of_function("export_slurm_features"),
        "Export features of a node for Slurm, such as local_memory_ge_20GBps.",
    ),
}


def _read_host(folder: Path) -> MeasuredHost:
    from chaosity.export.main_matrices import read_measured_host

    return read_measured_host(folder)


def _print_or_write(export: _TextAndNotes, output: Path | None) -> None:
    """Print an export or write it to the file `output`, and print its notes to standard error."""
    text, notes = export
    if output is None:
        echo(text, nl=False)
    else:
        write_atomically(output, text)
    for note in notes:
        echo(note, err=True)


@click.group("export")
def export_command() -> None:
    """Export results for other programs.

    RESULTS is a folder results/HOST/CONFIGURATION.

    Example: chaosity export json results/demo/paper_server
    """


def _add_command(name: str, form: _ExportFormat) -> None:
    @export_command.command(name, help=form.help)
    @_RESULTS_ARGUMENT
    @_OUTPUT_OPTION
    def export_format_command(folder: Path, output: Path | None) -> None:
        if output is not None and output.resolve() == (folder / "topology.xml").resolve():
            what = "this file is the topology that discovery wrote"
            raise UserError(what, str(output), "write to another file")
        _print_or_write(form.write(_read_host(folder)), output)


for _name, _form in _EXPORT_FORMATS.items():
    if _form.help:
        _add_command(_name, _form)


@export_command.command("weights")
@_RESULTS_ARGUMENT
@_OUTPUT_OPTION
@DWP_OPTION
@JSON_OPTION
def export_weights_command(folder: Path, output: Path | None, dwp: float, as_json: bool) -> None:
    """Export interleave weights for each node, each package and all nodes as worker nodes.

    The command prints the weights as shares and as whole numbers for the kernel, and commands with
    numactl.
    """
    _print_or_write(_export_weights(_read_host(folder), dwp, as_json=as_json), output)


@export_command.command(name="all")
@_RESULTS_ARGUMENT
@click.option(
    "--output",
    required=True,
    type=FOLDER,
    help="Folder for a file of each format, and for notes.txt.",
)
def export_all_command(folder: Path, output: Path) -> None:
    """Write all exports to a folder; notes.txt lists missing exports with the reason."""
    from chaosity.result_folders import existing_tidy_table

    existing_tidy_table(folder)
    output.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    read_once = cache(_read_host)  # an error is not cached, so each export raises it again
    for form in _EXPORT_FORMATS.values():
        try:
            text, lacks = form.write(read_once(folder))
            write_atomically(output / form.file, text)
            notes += lacks
        except UserError as error:
            (output / form.file).unlink(missing_ok=True)  # delete the file of an earlier run
            notes.append(f"No {form.file}: {error}")
    write_atomically(output / "notes.txt", "\n".join(notes) + "\n")
