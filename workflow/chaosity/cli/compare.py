"""``chaosity compare``: two selections against each other, or which of many hosts is not equal."""

from __future__ import annotations

import json

import click
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaosity.compare import (
    OutlierHosts,
    Selection,
    SelectionComparison,
    compare_selections,
    filter_rows,
    find_outlier_hosts,
    read_selections,
)
from chaosity.errors import UserError
from chaosity.units import count, quantity

# As many rows as fit a terminal below the verdict.
_SHOWN = 15
_LONGEST_NAME = 14
_COLOURS = {"worse": "red", "better": "green"}


@click.command("compare")
@click.argument("selections", nargs=-1, required=True)
@click.option("--where", "conditions", multiple=True, metavar="COLUMN=VALUE",
              help="Only rows with this value, on all sides; repeatable.")  # fmt: skip
@click.option("--by", type=click.Choice(["place", "class"]),
              help="Match cells by place (node2 to node3) or by class (to another package); "
              "without it by place where the sides are built alike.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, all cells of it.")
@click.option("--all", "everything", is_flag=True, help="Show all cells.")
def compare_command(
    selections: tuple[str, ...],
    conditions: tuple[str, ...],
    by: str | None,
    as_json: bool,
    everything: bool,
) -> None:
    """Compare two SELECTIONS cell by cell; of three or more, find the host that is not equal.

    A selection is a tidy table (measurements.parquet, or history.parquet with its eras), a folder
    results/HOST/CONFIGURATION, or a database of profiles. Behind a # follow conditions:
    history.parquet#era=2, or for a database cpu, configuration, drive, host, id:
    'profiles.duckdb#cpu=EPYC 7413&configuration=nps4'. A database may give several selections.

    Ratios are of the first to the second.
    """
    pinned = dict(_pair(one) for one in conditions)
    found = [
        Selection(one.name, filter_rows(one.rows, pinned, one.name), one.pinned)
        for one in read_selections(selections)
    ]
    if len(found) < 2:
        name = found[0].name
        raise UserError(f"{name} alone cannot be compared", None, "name a second selection")
    if len(found) == 2:
        left, right = found
        ignore = {column for column in left.pinned.keys() & right.pinned.keys()
                  if left.pinned[column] != right.pinned[column]}  # fmt: skip
        result = compare_selections(left.rows, right.rows, names=(left.name, right.name), by=by,
                         ignore=ignore)  # fmt: skip
        shown = show_comparison
    else:
        result = find_outlier_hosts({one.name: one.rows for one in found}, by=by)
        shown = show_hosts
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False))
        return
    console = Console(highlight=False)
    for sentence in result.sentences:
        console.print(escape(sentence))
    shown(result, console, everything)


def _pair(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise UserError(f"{text!r} is no COLUMN=VALUE", "--where")
    return column, value


def show_comparison(found: SelectionComparison, console: Console, everything: bool) -> None:
    """Tables of cells by what was measured, those that differ most first."""
    for note in found.notes:
        console.print(f"note: {escape(note)}.")
    cells = found.cells if everything else found.cells.head(_SHOWN)
    sides = (found.left, found.right)
    heads = sides if max(map(len, sides)) <= _LONGEST_NAME else ("first", "second")
    for group, own in cells.groupby("group", sort=False):
        table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left",
                      title=f"\n{group}", title_style="bold")  # fmt: skip
        table.add_column("", overflow="fold")
        for column in (*heads, "times", "95 % interval", "n"):
            table.add_column(escape(column), justify="right", no_wrap=True)
        table.add_column("")
        for _, cell in own.iterrows():
            table.add_row(*map(escape, _cells(cell)), style=_COLOURS.get(cell["verdict"]))
        console.print(table)
    rest = len(found.cells) - len(cells)
    if rest:
        console.print(f"and {count(rest, 'cell')} more: --all shows them.")


def _cells(cell: pd.Series) -> list[str]:
    """The texts of a cell's line."""
    interval = "none" if pd.isna(cell["low"]) else f"{cell['low']:.3f} to {cell['high']:.3f}"
    n = sorted({int(cell["n_left"]), int(cell["n_right"])})
    return [
        ", ".join(filter(None, (cell["where"], cell["asked_words"]))),
        quantity(cell["metric"], cell["median_left"]),
        quantity(cell["metric"], cell["median_right"]),
        f"{cell['ratio']:.3f}",
        interval,
        " and ".join(map(str, n)),
        cell["verdict"] if cell["verdict"] in _COLOURS else "",
    ]


def show_hosts(found: OutlierHosts, console: Console, everything: bool) -> None:
    """The table of hosts, those that differ first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("host", overflow="fold")
    for column in ("speed", "95 % interval", "differ", "times"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("in the cell that is farthest off", overflow="fold")
    for host in found.hosts if everything else found.hosts[:_SHOWN]:
        interval = "none" if host.low is None else f"{host.low:.3f} to {host.high:.3f}"
        table.add_row(
            escape(host.host),
            _number(host.speed),
            interval,
            f"{host.clear} of {host.cells}",
            _number(host.worst_ratio),
            escape(host.worst),
            style="red" if host.differs else None,
        )
    console.print()
    console.print(table)
    rest = 0 if everything else len(found.hosts) - _SHOWN
    if rest > 0:
        console.print(f"and {count(rest, 'host')} more: --all shows them.")


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
