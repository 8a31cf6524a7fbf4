"""``chaosity weights``: interleave weights from measured bandwidths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaosity.cli.options_and_output import DWP_HELP, EXISTING_FILE, FORMS, UNIT_HELP, parse_workers
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.placement_policies import CANONICAL, CONTENDED
from chaosity.units import format_quantity

if TYPE_CHECKING:
    from chaosity.store.node_matrix_csv import NodeMatrix
    from chaosity.weights.canonical_weights import WeightsComparison
    from chaosity.weights.interleave_weight_advice import PlacementAdvice
    from chaosity.weights.placement_bandwidth_model import RankCorrelation

_PLACEMENTS = {
    "weights": "with these weights",
    "uniform_all": "equal shares on all nodes",
    "uniform_workers": "equal shares on the workers",
}
_WEIGHTS = {CANONICAL: "each path alone", CONTENDED: "all workers at once"}
_NOT_CONTENDED = (
    "These workers were not measured all at once (experiment contended_paths), so the weights hold "
    "each path alone."
)


@click.command("weights")
@click.argument("file", metavar="MATRIX", type=EXISTING_FILE)
@click.option(
    "--workers",
    required=True,
    metavar="NODES",
    help="Worker nodes, on which the program's threads run, such as 0,1 or 0-3.",
)
@click.option("--dwp", type=float, default=0.0, show_default=True, help=DWP_HELP)
@click.option("--unit", help=UNIT_HELP)
@click.option(
    "--against",
    type=EXISTING_FILE,
    help="CSV file with measured placements, to compare their ranks with the expected ranks.",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default="stream_placement",
    show_default=True,
    help="Meaning of the columns of --against: a file of templates/published.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def weights_command(
    file: Path,
    workers: str,
    dwp: float,
    unit: str | None,
    against: Path | None,
    form: str,
    as_json: bool,
) -> None:
    """Compute interleave weights for the pages of a program that needs bandwidth.

    MATRIX is a CSV file: the initiator node in the first column, then the bandwidth to each target
    node. Or it is a host's measurements.parquet; then the weights from paths that were measured
    with all workers at once are printed too. Weights are canonical as in BWAP (Gureya et al.,
    IPDPS 2020): a share for each node, the whole number that the Linux kernel takes, and commands.
    """
    # Heavy libraries are imported inside functions, so that --help does not wait for them.
    from chaosity.store.published_csv_tables import read_published_csv
    from chaosity.weights.canonical_weights import compare_alone_and_contended_weights
    from chaosity.weights.interleave_weight_advice import advise_interleave_weights
    from chaosity.weights.placement_bandwidth_model import rank_placements

    worker_nodes = parse_workers(workers)
    alone, contended = _read_matrices(file, unit, worker_nodes)
    advice = advise_interleave_weights(alone, worker_nodes, dwp)
    comparison = (
        compare_alone_and_contended_weights(alone, contended, worker_nodes) if contended else None
    )
    ranks = (
        rank_placements(alone, read_published_csv(against, form, "published")) if against else {}
    )
    if as_json:
        document: dict[str, Any] = advice.to_json()
        if _is_table(file):
            document["contended"] = comparison.to_json() if comparison else None
        if ranks:
            document["rank_correlation"] = {name: rank.to_json() for name, rank in ranks.items()}
        click.echo(json.dumps(document, indent=1))
        return
    console = Console(highlight=False, soft_wrap=True)
    for part in _advice_text(advice):
        console.print(part)
    if comparison:
        for part in _comparison_text(comparison):
            console.print(part)
    elif _is_table(file):
        console.print(_NOT_CONTENDED)
    for sentence in _rank_sentences(ranks):
        console.print(sentence)


def _is_table(path: Path) -> bool:
    """Whether a file is a tidy table and not a CSV matrix."""
    return path.suffix == ".parquet"


def _read_matrices(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Bandwidths of each path alone; and of all workers at once, or None if not measured.

    Raises:
        UserError: the file holds no bandwidths, or a unit is given for a tidy table.
    """
    from chaosity.export.host_measurements_for_export import (
        read_measured_host,
        select_node_bandwidths,
    )
    from chaosity.store.node_matrix_csv import read_matrix_csv
    from chaosity.weights.canonical_weights import bandwidth_under_contention

    if not _is_table(path):
        return read_matrix_csv(path, "bandwidth", unit), None
    if unit:
        raise UserError("a tidy table has units of its own", "--unit", "remove the option")
    host = read_measured_host(path.parent)
    return select_node_bandwidths(host).matrix, bandwidth_under_contention(
        host.measurements, workers
    )


def _advice_text(advice: PlacementAdvice) -> Iterator[Table | Text]:
    """The parts that the terminal shows: weights, expected bandwidth, commands, notes."""
    dwp = f", data-to-worker proximity {advice.dwp:g}" if advice.dwp else ""
    nodes = f"node{'s' * (len(advice.workers) > 1)} {format_cpu_list(advice.workers)}"
    yield Text(f"Weights for a program on {nodes}{dwp}", style="bold")
    shares = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("node", "share", "kernel weight"):
        shares.add_column(column, justify="right")
    for node, share in advice.weights.items():
        weight = advice.kernel.weights.get(node)
        shares.add_row(str(node), f"{100.0 * share:.1f} %", "-" if weight is None else str(weight))
    shares.caption = f"kernel weights differ by {advice.kernel.error_percent:.1f} % at most"
    shares.caption_justify = "left"
    yield shares
    yield Text("\nExpected bandwidth, equal shares on all nodes = 1", style="bold")
    expected = Table(box=None, pad_edge=False, show_header=False)
    for name, ratio in advice.relative_to_equal_shares.items():
        expected.add_row(_PLACEMENTS[name], f"{ratio:.2f}")
    yield expected
    yield Text("\nCommands", style="bold")
    yield Text("\n".join(advice.commands))
    yield Text("\nNotes", style="bold")
    yield Text("\n".join([*advice.notes, f"Bandwidths: {advice.source}."]))


def _comparison_text(comparison: WeightsComparison) -> Iterator[Table | Text]:
    """Weights from each path alone and from all workers at once, and their largest difference."""
    from chaosity.store.node_matrix_csv import BANDWIDTH

    yield Text("\nMeasured in two ways", style="bold")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("node", justify="right")
    for name in comparison.weights:
        table.add_column(_WEIGHTS[name], justify="right")
    for node in sorted({node for shares in comparison.weights.values() for node in shares}):
        percents = (f"{100.0 * s.get(node, 0.0):.1f} %" for s in comparison.weights.values())
        table.add_row(str(node), *percents)
    table.add_section()
    expected = (format_quantity(BANDWIDTH, value) for value in comparison.expected.values())
    table.add_row("expected", *expected)
    yield table
    node, difference = comparison.largest_difference
    yield Text(f"Largest difference: node {node}, {100.0 * difference:.1f} % of all pages.")


def _rank_sentences(ranks: dict[str, RankCorrelation]) -> Iterator[str]:
    """How well the expected bandwidth ranks the measured placements, a sentence each."""
    for name, rank in ranks.items():
        placements = f"{rank.n} {'interleaved ' if name == 'interleaved' else ''}placements"
        if rank.correlation is None:
            yield f"No rank correlation can be computed for {placements}."
            continue
        yield (
            f"Rank correlation of expected and measured bandwidth, {placements}: "
            f"{rank.correlation:.2f} (95 % interval {rank.low:.2f} to {rank.high:.2f})."
        )
