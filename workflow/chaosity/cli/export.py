"""``chaosity export``: results for other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import DWP_OPTION, FILE, FOLDER, JSON_OPTION, RESULTS_FOLDER
from chaosity.cli.terminal_output import echo, json_text
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import write_atomically

if TYPE_CHECKING:
    from chaosity.export.host_measurements_for_export import MeasuredHost

_RESULTS = click.argument("folder", type=RESULTS_FOLDER, metavar="RESULTS")
_OUTPUT = click.option("--output", type=FILE, help="Output file. Default: standard output.")


@click.group("export")
def export_command() -> None:
    """Export results for other programs.

    RESULTS is a folder results/HOST/CONFIGURATION.
    """


@export_command.command("hwloc")
@_RESULTS
@_OUTPUT
def export_hwloc_command(folder: Path, output: Path | None) -> None:
    """Export the topology with measured bandwidth (MiB/s) and latency (ns) for hwloc.

    The values are memory attributes, so programs that use hwloc choose memory by measured values:

    \b
    hwloc-calc -i FILE --local-memory --best-memattr bandwidth pu:0
    HWLOC_XMLFILE=FILE HWLOC_THISSYSTEM=1 PROGRAM     (on the host itself)

    hwloc-calc considers only local nodes; to consider all nodes, add `--local-memory-flags 4`.
    """  # noqa: D301 (click's mark for lines that are not to be filled)
    from chaosity.export.host_measurements_for_export import read_measured_host
    from chaosity.export.hwloc_xml_with_measurements import export_hwloc_xml

    if output is not None and output.resolve() == (folder / "topology.xml").resolve():
        raise UserError("discovery wrote this file", str(output), "write to another file")
    exported = export_hwloc_xml(read_measured_host(folder))
    _print_or_write(exported.xml, output, exported.notes)


@export_command.command("weights")
@_RESULTS
@_OUTPUT
@DWP_OPTION
@JSON_OPTION
def export_weights_command(folder: Path, output: Path | None, dwp: float, as_json: bool) -> None:
    """Export interleave weights for each node, each package and all nodes as worker nodes.

    Prints weights as shares, as whole numbers for the kernel, and commands with numactl.
    """
    from chaosity.export.host_measurements_for_export import read_measured_host
    from chaosity.export.interleave_weights_document import interleave_weights_of_host
    from chaosity.export.main_matrices import render_with_origin

    exported = interleave_weights_of_host(read_measured_host(folder), dwp)
    text = (
        json_text(exported.to_json())
        if as_json
        else render_with_origin("weights", exported.origin, exported=exported)
    )
    notes = [f"No weights for workers {name}: {why}." for name, why in exported.left_out.items()]
    _print_or_write(text, output, notes)


@export_command.command(name="json")
@_RESULTS
@_OUTPUT
def export_json_command(folder: Path, output: Path | None) -> None:
    """Export JSON for schedulers.

    Contains memory bandwidth and latency from each node to each node, the best nodes for each drive
    set, and slowdowns of co-running loads.

    workflow/schemas/placement.schema.yaml describes the keys.
    """
    from chaosity.export.host_measurements_for_export import read_measured_host
    from chaosity.export.scheduler_placement_document import build_placement_document

    _print_or_write(json_text(build_placement_document(read_measured_host(folder))), output, ())


@dataclass(frozen=True)
class _TextFormat:
    """A format that one function writes."""

    file: str  # name of the file among all exports
    # module, function: name of the function in a module of `chaosity.export`.
    module: str
    function: str
    text: str  # help of the command

    def write(self, host: MeasuredHost) -> str:
        """Return the text of the file."""
        module = import_module(f"chaosity.export.{self.module}")
        written: str = getattr(module, self.function)(host)
        return written


_TEXT_FORMATS = {
    "fio": _TextFormat(
        "drives.fio",
        "fio_job_file",
        "export_fio_job_file",
        "Export a fio job file that reads each drive from its best node.",
    ),
    "openmetrics": _TextFormat(
        "map.prom",
        "openmetrics_of_map",
        "export_openmetrics",
        "Export memory bandwidth, latency and drive bandwidth as OpenMetrics for Prometheus.",
    ),
    "reframe": _TextFormat(
        "reframe_references.yaml",
        "reframe_references",
        "export_reframe_references",
        "Export references with limits for performance tests of ReFrame.",
    ),
    "roofline": _TextFormat(
        "roofline.csv",
        "roofline_csv",
        "export_roofline_csv",
        "Export the highest bandwidth of each initiator and memory node as CSV.",
    ),
    "slurm": _TextFormat(
        "slurm_features.conf",
        "slurm_features",
        "export_slurm_features",
        "Export features of a node for Slurm, such as local_memory_ge_20GBps.",
    ),
}


def _add_text_format(name: str, form: _TextFormat) -> None:
    @export_command.command(name, help=form.text)
    @_RESULTS
    @_OUTPUT
    def export_text_command(folder: Path, output: Path | None) -> None:
        from chaosity.export.host_measurements_for_export import read_measured_host

        _print_or_write(form.write(read_measured_host(folder)), output, ())


for _name, _form in _TEXT_FORMATS.items():
    _add_text_format(_name, _form)


@export_command.command(name="all")
@_RESULTS
@click.option(
    "--output",
    required=True,
    type=FOLDER,
    help="Folder for a file of each format, and for notes.txt.",
)
def export_all_command(folder: Path, output: Path) -> None:
    """Write all exports to a folder; notes.txt lists missing exports with the reason."""
    from chaosity.export.host_measurements_for_export import read_measured_host
    from chaosity.export.hwloc_xml_with_measurements import export_hwloc_xml
    from chaosity.export.interleave_weights_document import interleave_weights_of_host
    from chaosity.export.scheduler_placement_document import build_placement_document
    from chaosity.result_folders import MEASUREMENTS_FILE

    if not (folder / MEASUREMENTS_FILE).exists():
        remedy = "name a folder results/HOST/CONFIGURATION with measurements"
        raise UserError(f"{MEASUREMENTS_FILE} is missing", str(folder), remedy)
    output.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []

    def topology_xml(host: MeasuredHost) -> str:
        exported = export_hwloc_xml(host)
        notes.extend(exported.notes)
        return exported.xml

    exports: dict[str, Callable[[MeasuredHost], str]] = {
        "topology.xml": topology_xml,
        "weights.json": lambda host: json_text(interleave_weights_of_host(host, 0.0).to_json()),
        "placement.json": lambda host: json_text(build_placement_document(host)),
        **{form.file: form.write for form in _TEXT_FORMATS.values()},
    }
    read_once = cache(read_measured_host)  # an error is raised again for each export
    for name, make in exports.items():
        try:
            _print_or_write(make(read_once(folder)), output / name, ())
        except UserError as error:
            (output / name).unlink(missing_ok=True)  # delete the file of an earlier run
            notes.append(f"No {name}: {error}")
    write_atomically(output / "notes.txt", "\n".join(notes) + "\n")


def _print_or_write(text: str, output: Path | None, notes: Iterable[str]) -> None:
    """Print the text, or write it to the output file; print notes to standard error."""
    if output is None:
        echo(text, nl=False)
    else:
        write_atomically(output, text)
    for note in notes:
        echo(note, err=True)
