"""``chaosity weights``: how to spread a program's pages, from anybody's matrix of bandwidths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaosity.config import PUBLISHED, known_names
from chaosity.errors import UserError
from chaosity.export import read_measured_host, select_node_bandwidths
from chaosity.place.kinds import CANONICAL, CONTENDED
from chaosity.store import NodeMatrix, read_matrix, read_published
from chaosity.store.node_matrix import BANDWIDTH
from chaosity.topology import format_cpu_list, parse_cpu_list
from chaosity.units import quantity
from chaosity.weights import (
    PlacementAdvice,
    RankCorrelation,
    WeightsComparison,
    advise_placement,
    compare_weights,
    contended_matrix,
    rank_placements,
)

_PLACEMENTS = {
    "weights": "with these weights",
    "uniform_all": "equal shares on all nodes",
    "uniform_workers": "equal shares on the workers",
}
_WEIGHTS = {CANONICAL: "each path alone", CONTENDED: "all workers at once"}
_NOT_CONTENDED = "The paths of just these workers were not measured with all of them at once."


@click.command()
@click.argument("matrix", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--workers", required=True, metavar="NODES",
              help="Nodes whose cores run the program, such as 0,1 or 0-3.")  # fmt: skip
@click.option("--dwp", type=float, default=0.0, show_default=True,
              help="Data-to-worker proximity: 1 is all pages on the workers.")  # fmt: skip
@click.option("--unit", help="Of the numbers, such as MB/s; else the file's name or size tells.")
@click.option("--against", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Placements that were measured: do they rank as expected?")  # fmt: skip
@click.option("--form", type=click.Choice(known_names(PUBLISHED)), default="stream_placement",
              show_default=True, help="What the columns of --against mean.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def weights(
    matrix: Path,
    workers: str,
    dwp: float,
    unit: str | None,
    against: Path | None,
    form: str,
    as_json: bool,
) -> None:
    """Weights for interleaving the pages of a program that needs bandwidth.

    MATRIX is a CSV file: the initiator's node in the first column, then bandwidth to each target
    node. Or it is the measurements.parquet of a host; then weights from paths that were measured
    with all workers at once stand beside them. Weights are canonical as in BWAP (Gureya et al.,
    IPDPS 2020), by node, as the Linux kernel takes them, and as lines to copy.
    """
    on = read_workers(workers)
    alone, contended = read_matrices(matrix, unit, on)
    found = advise_placement(alone, on, dwp)
    both = compare_weights(alone, contended, on) if contended else None
    ranks = rank_placements(alone, read_published(against, form, "published")) if against else {}
    if as_json:
        document = found.to_json()
        document |= {"contended": both.to_json() if both else None} if from_table(matrix) else {}
        said = {name: one.to_json() for name, one in ranks.items()}
        document |= {"rank_correlation": said} if ranks else {}
        click.echo(json.dumps(document, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for part in summary(found):
        console.print(part)
    if both:
        for part in side_by_side(both):
            console.print(part)
    elif from_table(matrix):
        console.print(_NOT_CONTENDED)
    for sentence in ranking(ranks):
        console.print(sentence)


def from_table(path: Path) -> bool:
    """Whether a file is a tidy table of a host, and no matrix."""
    return path.suffix == ".parquet"


def read_matrices(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Bandwidths of each path alone, and of all workers at once where that was measured.

    Raises:
        UserError: the file holds no such thing.
    """
    if not from_table(path):
        return read_matrix(path, "bandwidth", unit), None
    if unit:
        raise UserError("a tidy table knows its units", "--unit", "leave it out")
    host = read_measured_host(path.parent)
    return select_node_bandwidths(host).matrix, contended_matrix(host.tidy, workers)


def side_by_side(both: WeightsComparison) -> Iterator[Table | Text]:
    """Weights of each path alone and of all workers at once."""
    yield Text("\nMeasured in two ways", style="bold")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", justify="right")
    for name in both.weights:
        table.add_column(_WEIGHTS[name], justify="right")
    for node in sorted({node for shares in both.weights.values() for node in shares}):
        shares = (shares.get(node, 0.0) for shares in both.weights.values())
        table.add_row(str(node), *(f"{100.0 * share:.1f} %" for share in shares))
    table.add_section()
    table.add_row("expected", *(quantity(BANDWIDTH, value) for value in both.expected.values()))
    yield table
    node, difference = both.largest_difference
    yield Text(f"They differ most for node {node}, by {100.0 * difference:.1f} % of all pages.")


def ranking(ranks: dict[str, RankCorrelation]) -> Iterator[str]:
    """How well what is expected ranks what was measured, a sentence each."""
    for name, one in ranks.items():
        what = f"{one.n} {'interleaved ' if name == 'interleaved' else ''}placements"
        if one.correlation is None:
            yield f"Nothing can be said of the order of {what}."
            continue
        ends = f"95 % interval {one.low:.2f} to {one.high:.2f}"
        yield f"Rank correlation of expected and measured, {what}: {one.correlation:.2f} ({ends})."


def read_workers(text: str) -> list[int]:
    """Nodes of a list such as 0,2-3, as they are named: one named twice stands there twice.

    Raises:
        UserError: it is no such list.
    """
    try:
        return [node for part in text.split(",") for node in parse_cpu_list(part)]
    except ValueError as error:
        raise UserError(str(error), "--workers", "it is a list such as 0,1 or 0-3") from None


def summary(found: PlacementAdvice) -> Iterator[Table | Text]:
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


def _shares(found: PlacementAdvice) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("node", "share", "kernel weight"):
        table.add_column(column, justify="right")
    for node, share in found.weights.items():
        number = found.kernel.weights.get(node)
        table.add_row(str(node), f"{100.0 * share:.1f} %", "-" if number is None else str(number))
    error = f"kernel weights are off by {found.kernel.error_percent:.1f} % at most"
    table.caption, table.caption_justify = error, "left"
    return table
