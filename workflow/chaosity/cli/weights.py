"""``chaosity weights``: how to spread a program's pages, from anybody's matrix of bandwidths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaosity.errors import UserError
from chaosity.store import read_matrix
from chaosity.topology import format_cpu_list, parse_cpu_list
from chaosity.weights import Advice, advise

_PLACEMENTS = {
    "weights": "with these weights",
    "uniform_all": "equal shares on all nodes",
    "uniform_workers": "equal shares on the workers",
}


@click.command()
@click.argument("matrix", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workers", required=True, metavar="NODES",
              help="Nodes whose cores run the program, such as 0,1 or 0-3.")  # fmt: skip
@click.option("--dwp", type=float, default=0.0, show_default=True,
              help="Data-to-worker proximity: 1 is all pages on the workers.")  # fmt: skip
@click.option("--unit", help="Of the numbers, such as MB/s; else the file's name or size tells.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def weights(matrix: Path, workers: str, dwp: float, unit: str | None, as_json: bool) -> None:
    """Weights for interleaving the pages of a program that needs bandwidth.

    MATRIX is a CSV file: the initiator's node in the first column, then bandwidth to each target
    node. Weights are canonical as in BWAP (Gureya et al., IPDPS 2020), by node, as the Linux kernel
    takes them, and as lines to copy.
    """
    found = advise(read_matrix(matrix, "bandwidth", unit), read_workers(workers), dwp)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for part in summary(found):
        console.print(part)


def read_workers(text: str) -> list[int]:
    """Nodes of a list such as 0,2-3, as they are named: one named twice stands there twice.

    Raises:
        UserError: it is no such list.
    """
    try:
        return [node for part in text.split(",") for node in parse_cpu_list(part)]
    except ValueError as error:
        raise UserError(str(error), "--workers", "it is a list such as 0,1 or 0-3") from None


def summary(found: Advice) -> Iterator[Table | Text]:
    """What a person reads: weights, what to expect, lines to copy, and what to know of them."""
    near = f", data-to-worker proximity {found.dwp:g}" if found.dwp else ""
    where = f"node{'s' * (len(found.workers) > 1)} {format_cpu_list(found.workers)}"
    yield Text(f"Weights for a program on {where}{near}", style="bold")
    yield _shares(found)
    yield Text("\nExpected bandwidth, equal shares on all nodes = 1", style="bold")
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in found.relative.items():
        table.add_row(_PLACEMENTS[name], f"{value:.2f}")
    yield table
    yield Text("\nTo use them", style="bold")
    yield Text("\n".join(found.commands))
    yield Text("\nTo know", style="bold")
    yield Text("\n".join([*found.notes, f"Bandwidths: {found.source}."]))


def _shares(found: Advice) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("node", "share", "kernel weight"):
        table.add_column(column, justify="right")
    for node, share in found.weights.items():
        number = found.kernel.weights.get(node)
        table.add_row(str(node), f"{100.0 * share:.1f} %", "-" if number is None else str(number))
    error = f"kernel weights are off by {found.kernel.error_percent:.1f} % at most"
    table.caption, table.caption_justify = error, "left"
    return table
