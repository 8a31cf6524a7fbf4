"""``chaosity compare``: two selections cell by cell, or the outlier hosts of three and more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaosity.errors import UserError
from chaosity.units import format_count, format_quantity

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.compare import OutlierHosts, SelectionComparison

# Rows that fit a terminal below the verdict.
_MOST_ROWS = 15
_LONGEST_NAME = 14
_COLOURS = {"worse": "red", "better": "green"}


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
    help="Match cells by place (node2 to node3) or by group (to another package). "
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
    """Compare two SELECTIONS cell by cell; of three or more, find outlier hosts.

    A selection is a tidy table (measurements.parquet, or history.parquet with its periods), a
    folder results/HOST/CONFIGURATION, or a database of profiles. Conditions follow after a #:
    history.parquet#era=2, or in a database cpu, configuration, drive, host, id:
    'profiles.duckdb#cpu=EPYC 7413&configuration=nps4'. Each profile of a database that meets the
    conditions is a separate selection.

    Ratios are the first selection divided by the second.
    """
    # Heavy libraries are imported inside functions, so that --help does not wait for them.
    from chaosity.compare import (
        SelectionComparison,
        compare_selections,
        find_outlier_hosts,
        read_selections,
    )

    pinned = dict(_condition(text) for text in conditions)
    selected = [selection.filter_rows(pinned) for selection in read_selections(selections)]
    if len(selected) < 2:
        raise UserError("a second selection is required", selected[0].name, "name another table")
    result: SelectionComparison | OutlierHosts
    if len(selected) == 2:
        left, right = selected
        both = left.pinned.keys() & right.pinned.keys()
        ignore = {column for column in both if left.pinned[column] != right.pinned[column]}
        names = (left.name, right.name)
        result = compare_selections(
            left.measurements, right.measurements, names=names, by=by, ignore=ignore
        )
    else:
        result = find_outlier_hosts({each.name: each.measurements for each in selected}, by=by)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    console = Console(highlight=False)
    for sentence in result.sentences:
        console.print(escape(sentence))
    if isinstance(result, SelectionComparison):
        _print_cells(result, console, print_all)
    else:
        _print_hosts(result, console, print_all)


def _condition(text: str) -> tuple[str, str]:
    """Column and value of a text such as "kernel=triad"."""
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise UserError(f"{text!r} is not COLUMN=VALUE", "--where")
    return column, value


def _print_cells(comparison: SelectionComparison, console: Console, print_all: bool) -> None:
    """Print a table of cells for each group of metrics, clear losses first."""
    for note in comparison.notes:
        console.print(f"note: {escape(note)}.")
    cells = comparison.cells if print_all else comparison.cells.head(_MOST_ROWS)
    names = (comparison.left, comparison.right)
    heads = names if max(map(len, names)) <= _LONGEST_NAME else ("first", "second")
    for group, rows in cells.groupby("group", sort=False):
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.title, table.title_style, table.title_justify = f"\n{group}", "bold", "left"
        table.add_column("", overflow="fold")
        for column in (*heads, "ratio", "95 % interval", "n"):
            table.add_column(escape(column), justify="right", no_wrap=True)
        table.add_column("")
        for _, cell in rows.iterrows():
            table.add_row(*map(escape, _cell_texts(cell)), style=_COLOURS.get(cell["verdict"]))
        console.print(table)
    rest = len(comparison.cells) - len(cells)
    if rest:
        console.print(f"and {format_count(rest, 'more cell')}: --all prints them.")


def _cell_texts(cell: pd.Series) -> list[str]:
    """The texts of a cell's row."""
    import pandas as pd

    interval = "none" if pd.isna(cell["low"]) else f"{cell['low']:.3f} to {cell['high']:.3f}"
    n = sorted({int(cell["n_left"]), int(cell["n_right"])})
    return [
        ", ".join(filter(None, (cell["where"], cell["asked_words"]))),
        format_quantity(cell["metric"], cell["median_left"]),
        format_quantity(cell["metric"], cell["median_right"]),
        f"{cell['ratio']:.3f}",
        interval,
        " and ".join(map(str, n)),
        cell["verdict"] if cell["verdict"] in _COLOURS else "",
    ]


def _print_hosts(comparison: OutlierHosts, console: Console, print_all: bool) -> None:
    """Print the table of hosts, outlier hosts first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("host", overflow="fold")
    for column in ("speed", "95 % interval", "cells that differ", "largest ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("in the cell", overflow="fold")
    for host in comparison.hosts if print_all else comparison.hosts[:_MOST_ROWS]:
        table.add_row(
            escape(host.host),
            _ratio_text(host.speed),
            "none" if host.low is None else f"{host.low:.3f} to {host.high:.3f}",
            f"{host.clear} of {host.cells}",
            _ratio_text(host.worst_ratio),
            escape(host.worst),
            style="red" if host.differs else None,
        )
    console.print()
    console.print(table)
    rest = 0 if print_all else len(comparison.hosts) - _MOST_ROWS
    if rest > 0:
        console.print(f"and {format_count(rest, 'more host')}: --all prints them.")


def _ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
