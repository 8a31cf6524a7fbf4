"""``chaosity compare``: compare two selections, or find outlier hosts among three or more."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from chaosity.cli.shared import print_json, print_line, print_table, styled_text
from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity

if TYPE_CHECKING:
    from chaosity.compare.outlier_hosts import OutlierHosts
    from chaosity.compare.two_sides import SelectionComparison
    from chaosity.report.configurations import CrossoverVerdict

# Largest number of printed rows, so that the verdict and the rows fit on a terminal together.
_MOST_PRINTED_ROWS = 15
# Largest number of characters of a selection's name that can be the head of a column.
_MOST_CHARACTERS_OF_HEAD = 14
_COLOUR_OF_VERDICT = {"worse": "red", "better": "green"}


@click.command("compare")
@click.argument("selections", nargs=-1, required=True)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Compare only rows with this value, in all selections; repeatable.",
)
@click.option(
    "--by",
    type=click.Choice(["place", "class"]),
    help="Match cells by place (node2 to node3) or by class (to another package). "
    "Default: by place if the machines have the same structure.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with all cells.")
@click.option("--all", "print_all", is_flag=True, help="Print all cells.")
def compare_command(
    selections: tuple[str, ...],
    conditions: tuple[str, ...],
    by: str | None,
    as_json: bool,
    print_all: bool,
) -> None:
    """Compare two SELECTIONS cell by cell, or find outlier hosts among three or more.

    A selection is a folder results/HOST/CONFIGURATION, a folder results/HOST with all
    configurations of a host, a tidy table (measurements.parquet or history.parquet), or a database
    of profiles. Conditions may follow after a #. For example, history.parquet#era=2 selects the
    second period, and 'profiles.duckdb#cpu=EPYC 7413&configuration=nps4' selects all profiles with
    these values, each as a selection. Conditions on a database use cpu, configuration, drive, host
    and id.

    A ratio is the first selection divided by the second. For two configurations of a host, the
    command also prints the bandwidth above which one of the two has the lower latency under load.

    Example: chaosity compare results/demo/paper_server#kernel=copy
    results/demo/paper_server#kernel=triad
    """
    from chaosity.compare.outlier_hosts import find_outlier_hosts
    from chaosity.compare.selections import parse_conditions, read_selections
    from chaosity.compare.two_sides import SelectionComparison, compare_selections
    from chaosity.report.configurations import compare_crossovers

    requested_values = parse_conditions(conditions, "--where")
    selected = [
        selection.filter_rows(requested_values) for selection in read_selections(selections)
    ]
    if len(selected) < 2:
        remedy = "name a second folder of results, or two more to find the outlier of three hosts"
        raise UserError("a comparison needs two selections", selected[0].name, remedy)
    result: SelectionComparison | OutlierHosts
    crossovers: list[CrossoverVerdict] = []
    if len(selected) == 2:
        left, right = selected
        both = left.requested_values.keys() & right.requested_values.keys()
        ignore = {
            column
            for column in both
            if left.requested_values[column] != right.requested_values[column]
        }
        names = (left.name, right.name)
        result = compare_selections(
            left.measurements, right.measurements, names=names, by=by, ignore=ignore
        )
        crossovers += compare_crossovers(left.measurements, right.measurements, names)
    else:
        result = find_outlier_hosts({each.name: each.measurements for each in selected}, by=by)
    if as_json:
        listed = {"crossovers": list(map(asdict, crossovers))} if len(selected) == 2 else {}
        print_json({**result.to_json(), **listed})
        return
    most = None if print_all else _MOST_PRINTED_ROWS
    for sentence in (*result.sentences, *(verdict.sentence for verdict in crossovers)):
        print_line(sentence, wrap=True)
    if isinstance(result, SelectionComparison):
        _print_cells(result, most)
        left_out, noun = len(result.cells[most:]) if most else 0, "more cell"
    else:
        _print_hosts(result, most)
        left_out, noun = len(result.hosts[most:]) if most else 0, "more host"
    if left_out:
        print_line(f"and {format_count(left_out, noun)}: --all prints them.")


def _print_cells(result: SelectionComparison, most: int | None) -> None:
    """Print the notes of a comparison, and a table of the compared cells of each group."""
    for note in result.notes:
        print_line(f"note: {note}.", wrap=True)
    heads = [result.left, result.right]
    if max(map(len, heads)) > _MOST_CHARACTERS_OF_HEAD:
        heads = ["first", "second"]
    for group, cells in result.cells[:most].groupby("group", sort=False):
        print_line()
        print_table(
            [_cells_of_row(cell) for cell in cells.to_dict("records")],
            [""],
            [*heads, "ratio", "95 % interval", "n"],
            [""],
            title=str(group),
        )


def _cells_of_row(cell: dict[Any, Any]) -> list[object]:
    """Return the texts in the row of a compared cell, in the colour of its verdict."""
    verdict = cell["verdict"] if cell["verdict"] in _COLOUR_OF_VERDICT else ""
    numbers = sorted({cell["n_left"], cell["n_right"]})
    texts = [
        ", ".join(filter(None, (cell["where"], cell["asked_words"]))),
        *(format_quantity(cell["metric"], cell[f"median_{side}"]) for side in ("left", "right")),
        _ratio_text(cell["ratio"]),
        _interval_text(cell["low"], cell["high"]),
        " and ".join(map(str, numbers)),
        verdict,
    ]
    return [styled_text(text, _COLOUR_OF_VERDICT.get(verdict, "")) for text in texts]


def _print_hosts(result: OutlierHosts, most: int | None) -> None:
    """Print the table of hosts; outlier hosts are red."""
    rows = []
    for host in result.hosts[:most]:
        interval = _interval_text(host.low, host.high)
        differing, worst = f"{host.clear} of {host.cells}", _ratio_text(host.worst_ratio)
        cells = (host.host, _ratio_text(host.speed), interval, differing, worst, host.worst)
        rows.append([styled_text(cell, "red" if host.differs else "") for cell in cells])
    print_line()
    numbers = ["median of all cells", "95 % interval", "cells that differ", "largest ratio"]
    print_table(rows, ["host"], numbers, ["in the cell"])
    explained = (
        "Median of all cells: the speed of the host in a cell, divided by the median speed of the "
        "other hosts; below 1 is slower."
    )
    if any(host.differs for host in result.hosts):
        explained += (
            " An outlier host can have a median of 1, since a slow part slows only the cells that "
            "use this part."
        )
    print_line(explained, wrap=True)


def _ratio_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval_text(low: float | None, high: float | None) -> str:
    return "none" if low is None or low != low else f"{low:.3f} to {high:.3f}"
