"""``chaosity show``: the main matrices of a host in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    FILE,
    RESULTS_FOLDER,
    line_width,
    print_line,
    print_table,
    print_that_nothing_was_measured,
    refuse_options_without_effect,
    styled_text,
)
from chaosity.errors import UserError
from chaosity.units import choose_scale, format_count

if TYPE_CHECKING:
    from rich.text import Text

    from chaosity.export.main_matrices import MainMatrix, MeasuredHost
    from chaosity.statistics.estimates import Estimate

# Largest number of missing values that are listed with the reason.
_MOST_LISTED_MISSING_VALUES = 3
# (Least share of the best value of the matrix, colour of the cell). The numbers say the same to a
# reader who sees no colours.
_COLOUR_OF_LEAST_SHARE = ((0.9, "green"), (0.7, "yellow"), (0.0, "red"))


@click.command("show")
@click.argument("folder", type=RESULTS_FOLDER, metavar="RESULTS")
@click.option("--intervals", is_flag=True, help="Also print the 95 % interval of each median.")
@click.option(
    "--svg", type=FILE, help="Draw the machine with these values into this file, and do not print."
)
@click.option(
    "--beside",
    type=RESULTS_FOLDER,
    multiple=True,
    help="With --svg: also draw this configuration of the host, beside the first; repeatable.",
)
def show_command(folder: Path, intervals: bool, svg: Path | None, beside: Sequence[Path]) -> None:
    """Show memory bandwidth, memory latency and drive bandwidth of a host, and the best values.

    RESULTS is a folder results/HOST/CONFIGURATION. In a terminal, columns that do not fit are left
    out; `chaosity show RESULTS | less -S` shows all columns.

    With --svg, the command draws the machine as in the report: packages, nodes, memory and drives.
    Findings of `chaosity anomalies` are red, and predicted values are hatched.

    Example: chaosity show results/demo/paper_server
    """
    from chaosity.export.main_matrices import (
        DRIVE_BANDWIDTH,
        package_bandwidths,
        read_main_matrices,
        read_measured_host,
    )

    host = read_measured_host(folder)
    if svg is not None:
        refuse_options_without_effect("with --svg", "intervals")
        _write_drawing([host, *map(read_measured_host, beside)], svg)
        return
    refuse_options_without_effect("without --svg", "beside")
    matrices = read_main_matrices(host)
    if not matrices:
        raise UserError("no matrix was measured", str(folder), "run `make run`")
    _print_heading(host)
    for name, matrix in matrices.items():
        _print_matrix(matrix, intervals, of_drives=name == DRIVE_BANDWIDTH)
    if packages := package_bandwidths(host):
        _print_packages(packages, intervals)
    _print_resources(host)
    print_line(
        "\n",
        *(styled_text("Green", "green"), ": at least 90 % of the best value of the matrix. "),
        *(styled_text("Yellow", "yellow"), ": at least 70 %. "),
        *(styled_text("Red", "red"), ": less."),
    )


def _print_heading(host: MeasuredHost) -> None:
    """Print which host was measured, and when."""
    origin, measured = host.origin("show"), ""
    if origin["measured_at_first"]:
        measured = f", measured {origin['measured_at_first']} to {origin['measured_at_last']}"
    name = styled_text(f"{origin['host']} as {origin['configuration']}", "bold")
    print_line(name, f", {origin['cpu_model'] or 'unknown processor'}{measured}")
    if host.measurements.is_simulated:
        print_that_nothing_was_measured("bold")


def _print_matrix(matrix: MainMatrix, intervals: bool, *, of_drives: bool) -> None:
    """Print the columns of a matrix that fit into a line, and reasons of missing values."""
    scale = choose_scale(matrix.metric, [cell.estimate.median for cell in matrix.cells])

    def shown(node: int, target: str) -> Text:
        cell = matrix.cell_of.get((node, target))
        if cell is None:
            return styled_text("-")
        share = matrix.share_of_best(cell)
        colour = next(colour for least, colour in _COLOUR_OF_LEAST_SHARE if share >= least)
        return styled_text(cell.estimate.short_text(scale, with_interval=intervals), colour)

    nodes, targets = matrix.nodes, matrix.targets
    if of_drives:
        heads = [str(node) for node in nodes]
        rows = {target: [shown(node, target) for node in nodes] for target in targets}
    else:
        heads = [target.removeprefix("node") for target in targets]
        rows = {str(node): [shown(node, target) for target in targets] for node in nodes}
    # Two spaces separate columns.
    first = max(map(len, [*rows, "from node"]))
    widths = [2 + max(map(len, column)) for column in zip(heads, *rows.values(), strict=True)]
    fitting = max(1, sum(first + end <= line_width() for end in accumulate(widths)))
    title = styled_text(f"\n{matrix.quantity.capitalize()} in {scale.symbol}", "bold")
    columns = "node of the cores" if of_drives else "node of the memory"
    print_line(title, f", columns: {columns}; {matrix.source}")
    cut = [[name, *cells[:fitting]] for name, cells in rows.items()]
    print_table(cut, ["drive" if of_drives else "from node"], heads[:fitting])
    if left_out := len(heads[fitting:]):
        further = format_count(left_out, "further column")
        print_line(f"{further}: use a wider terminal, or less -S.")
    for (node, target), reason in [*matrix.missing.items()][:_MOST_LISTED_MISSING_VALUES]:
        print_line(f"- node{node} -> {target}: {reason}")
    if more := len([*matrix.missing][_MOST_LISTED_MISSING_VALUES:]):
        print_line(f"- {format_count(more, 'further value is', 'further values are')} missing")


def _print_packages(packages: dict[tuple[str, str], dict[str, Estimate]], intervals: bool) -> None:
    """Print the memory bandwidth of packages, with a column for each kernel."""
    from chaosity.store.csv_tables import BANDWIDTH

    medians = [each.median for by_kernel in packages.values() for each in by_kernel.values()]
    scale = choose_scale(BANDWIDTH, medians)
    kernels = list(dict.fromkeys(chain.from_iterable(packages.values())))
    title = f"\nMemory bandwidth of packages and the machine in {scale.symbol}"
    print_line(styled_text(title, "bold"), ", all nodes of the memory at the same time")
    rows = [
        [
            *place,
            *(
                by_kernel[kernel].short_text(scale, with_interval=intervals)
                if kernel in by_kernel
                else "-"
                for kernel in kernels
            ),
        ]
        for place, by_kernel in packages.items()
    ]
    print_table(rows, ["from", "memory"], kernels)


def _print_resources(host: MeasuredHost) -> None:
    """Print the best value and the best place of each resource, like the report."""
    from chaosity.documents.shipped_documents import load_existing_experiments
    from chaosity.report.best_places_of_resources import resource_table_rows

    documents = load_existing_experiments(host.measurements.rows["experiment"].dropna())
    rows = [
        (line.name, line.best.value, line.share or "", line.best.where)
        for line in resource_table_rows(host.measurements, documents)
    ]
    if rows:
        print_line("\nWhat can this machine do?", style="bold")
        print_table(rows, ["resource"], ["best", "worst / best"], ["best place"])


def _write_drawing(hosts: Sequence[MeasuredHost], path: Path) -> None:
    """Write the drawing of a machine, or of several configurations of it side by side."""
    from chaosity.cli.anomalies import analyse_results
    from chaosity.figures.machine_drawing import draw_machine, draw_machines
    from chaosity.figures.machine_parts import MachineParts
    from chaosity.records.record_files import write_atomically
    from chaosity.report.problems import numbered_findings
    from chaosity.report.sections import path_relative_to_report

    if path.suffix != ".svg":
        raise UserError("a drawing is an SVG file", str(path), "give it a name that ends in .svg")
    machines = []
    for host in hosts:
        title = " as ".join(host.folder.resolve().parts[-2:])
        page = path_relative_to_report(host.folder / "report.html", path)
        findings = numbered_findings(analyse_results(host.folder, host.measurements).anomalies)
        machines.append((title, page, MachineParts(host, findings)))
    [(*_, parts), *others] = machines
    write_atomically(path, draw_machines(machines) if others else draw_machine(parts))
    click.echo(f"{path}: the machine with its measured values")
