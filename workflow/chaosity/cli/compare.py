"""``chaosity compare``: two selections cell by cell, or the outlier hosts of three and more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.markup import escape

from chaosity.cli.terminal_output import (
    borderless_table,
    omitted_rows_sentence,
    print_json,
    print_rich,
)
from chaosity.errors import UserError
from chaosity.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd

    from chaosity.compare.outlier_host_search import OutlierHosts
    from chaosity.compare.selection_comparison import SelectionComparison
    from chaosity.report.crossovers import CrossoverVerdict

# Number of rows that fit on a terminal below the verdict.
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
    """Compare two SELECTIONS cell by cell; of three or more, find outlier hosts.

    A selection is a tidy table (measurements.parquet, or history.parquet with its periods), a
    folder results/HOST/CONFIGURATION, a folder results/HOST with all configurations of a host, or a
    database of profiles. Conditions follow after a #:
    history.parquet#era=2, or in a database cpu, configuration, drive, host, id:
    'profiles.duckdb#cpu=EPYC 7413&configuration=nps4'. Each profile of a database that meets the
    conditions is a separate selection.

    Ratios are the first selection divided by the second. Two configurations of a host are also
    compared by the bandwidth from which on one has a lower latency under load. Two folders
    results/HOST are compared by this crossover of their configurations.
    """
    from chaosity.compare.outlier_host_search import find_outlier_hosts
    from chaosity.compare.selection_comparison import SelectionComparison, compare_selections
    from chaosity.compare.selections_to_compare import read_selections
    from chaosity.report.crossovers import compare_crossovers

    pinned = dict(_condition(text) for text in conditions)
    selected = [selection.filter_rows(pinned) for selection in read_selections(selections)]
    if len(selected) < 2:
        raise UserError("a second selection is required", selected[0].name, "name another table")
    result: SelectionComparison | OutlierHosts
    crossovers: list[CrossoverVerdict] = []
    if len(selected) == 2:
        left, right = selected
        both = left.pinned.keys() & right.pinned.keys()
        ignore = {column for column in both if left.pinned[column] != right.pinned[column]}
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
    most = None if print_all else _MOST_ROWS
    sentences = [*result.sentences, *(verdict.sentence for verdict in crossovers)]
    print_rich(map(escape, sentences), wrap=True)
    if isinstance(result, SelectionComparison):
        print_rich(_cells_text(result, most), wrap=True)
    else:
        print_rich(_hosts_text(result, most), wrap=True)


def _condition(text: str) -> tuple[str, str]:
    """Return the column and the value in a text such as "kernel=triad"."""
    column, equals, value = text.partition("=")
    if not equals or not column:
        raise UserError(f"{text!r} is not COLUMN=VALUE", "--where")
    return column, value


def _cells_text(comparison: SelectionComparison, most: int | None) -> Iterator[RenderableType]:
    """Yield notes, and a table of cells for each group of metrics, clear losses first."""
    for note in comparison.notes:
        yield f"note: {escape(note)}."
    cells = comparison.cells[:most]
    names = (comparison.left, comparison.right)
    heads = names if max(map(len, names)) <= _LONGEST_NAME else ("first", "second")
    for group, rows in cells.groupby("group", sort=False):
        table = borderless_table([""], [*map(escape, heads), "ratio", "95 % interval", "n"])
        table.title, table.title_style, table.title_justify = f"\n{group}", "bold", "left"
        table.add_column("")
        for _, cell in rows.iterrows():
            table.add_row(*map(escape, _cell_texts(cell)), style=_COLOURS.get(cell["verdict"]))
        yield table
    yield from omitted_rows_sentence(len(comparison.cells) - len(cells), "cell")


def _cell_texts(cell: pd.Series) -> list[str]:
    """Return the texts in the table row of a cell."""
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


def _hosts_text(comparison: OutlierHosts, most: int | None) -> Iterator[RenderableType]:
    """Yield the table of hosts, outlier hosts first."""
    table = borderless_table(
        ["host"], ["speed", "95 % interval", "cells that differ", "largest ratio"]
    )
    table.add_column("in the cell", overflow="fold")
    hosts = comparison.hosts[:most]
    for host in hosts:
        table.add_row(
            escape(host.host),
            _ratio_text(host.speed),
            "none" if host.low is None else f"{host.low:.3f} to {host.high:.3f}",
            f"{host.clear} of {host.cells}",
            _ratio_text(host.worst_ratio),
            escape(host.worst),
            style="red" if host.differs else None,
        )
    yield ""
    yield table
    yield from omitted_rows_sentence(len(comparison.hosts) - len(hosts), "host")


def _ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"
