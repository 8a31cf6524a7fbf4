"""``chaosity weights``: interleave weights from measured bandwidths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from chaosity.cli.shared_options import (
    DWP_OPTION,
    EXISTING_FILE,
    FORMS,
    JSON_OPTION,
    UNIT_OPTION,
    parse_worker_nodes,
)
from chaosity.cli.terminal_output import (
    bold_heading,
    borderless_table,
    echo,
    print_json,
    print_rich,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.placement_policies import CANONICAL, CONTENDED
from chaosity.units import format_quantity

if TYPE_CHECKING:
    from chaosity.store.read_node_matrix_csv import NodeMatrix
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
    "These bandwidths were measured one path at a time. The experiment contended_paths has no "
    "measurement of these workers all at once."
)


@click.command("weights")
@click.argument("file", metavar="MATRIX", type=EXISTING_FILE)
@click.option(
    "--workers",
    required=True,
    metavar="NODES",
    help="Worker nodes, on which the program's threads run, such as 0,1 or 0-3.",
)
@DWP_OPTION
@UNIT_OPTION
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
@JSON_OPTION
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
    node. It can also be a host's measurements.parquet. Then the weights from paths that were
    measured with all workers at once are printed too.

    Prints the canonical weights of BWAP (Gureya et al., IPDPS 2020): the share of the pages for
    each node, the same as integer weights for the Linux kernel, and the commands that use them.
    """
    from chaosity.store.read_published_csv import read_published_csv
    from chaosity.weights.canonical_weights import compare_alone_and_contended_weights
    from chaosity.weights.interleave_weight_advice import advise_interleave_weights
    from chaosity.weights.placement_bandwidth_model import rank_correlations_of_all_and_interleaved

    worker_nodes, is_table = parse_worker_nodes(workers), file.suffix == ".parquet"
    alone, contended = read_bandwidths_alone_and_contended(file, unit, worker_nodes)
    advice = advise_interleave_weights(alone, worker_nodes, dwp)
    comparison = contended and compare_alone_and_contended_weights(alone, contended, worker_nodes)
    placements = read_published_csv(against, form, "published") if against else None
    ranks = (
        {} if placements is None else rank_correlations_of_all_and_interleaved(alone, placements)
    )
    if as_json:
        document = advice.to_json()
        if is_table:
            document["contended"] = comparison.to_json() if comparison else None
        if ranks:
            document["rank_correlation"] = {name: rank.to_json() for name, rank in ranks.items()}
        print_json(document)
        return
    print_rich(_advice_text(advice))
    if comparison:
        print_rich(_comparison_text(comparison))
    elif is_table:
        echo(_NOT_CONTENDED)
    print_rich(_rank_sentences(ranks))


def read_bandwidths_alone_and_contended(
    path: Path, unit: str | None, workers: list[int]
) -> tuple[NodeMatrix, NodeMatrix | None]:
    """Return the bandwidth of each path measured alone, and measured with all workers at once.

    Args:
        path: CSV file, tidy table, or folder of results; for a CSV file the second is None.
        unit: unit of the values in a CSV file, or None to infer it.
        workers: worker nodes.

    Raises:
        UserError: the path has no bandwidths, or a unit is given for a tidy table.
    """
    from chaosity.export.host_measurements_for_export import (
        read_measured_host,
        select_node_bandwidths,
    )
    from chaosity.store.read_node_matrix_csv import read_matrix_csv
    from chaosity.weights.canonical_weights import find_contended_bandwidth_matrix

    if path.suffix != ".parquet" and not path.is_dir():
        return read_matrix_csv(path, "bandwidth", unit), None
    if unit:
        raise UserError("a tidy table has units of its own", "--unit", "remove the option --unit")
    host = read_measured_host(path if path.is_dir() else path.parent)
    contended = find_contended_bandwidth_matrix(host.measurements, workers)
    return select_node_bandwidths(host).matrix, contended


def _advice_text(advice: PlacementAdvice) -> Iterator[Table | Text]:
    """Yield the terminal output: weights, expected bandwidth, commands, notes."""
    dwp = f", data-to-worker proximity {advice.dwp:g}" if advice.dwp else ""
    nodes = f"node{'s' * (len(advice.workers) > 1)} {format_cpu_list(advice.workers)}"
    yield Text(f"Weights for a program on {nodes}{dwp}", style="bold")
    shares = borderless_table((), ("node", "share", "kernel weight"))
    for node, share in advice.weights.items():
        weight = advice.kernel_weights.get(node)
        shares.add_row(str(node), f"{100.0 * share:.1f} %", "-" if weight is None else str(weight))
    shares.caption = f"kernel weights differ from shares by at most {advice.error_percent:.1f} %"
    shares.caption_justify = "left"
    yield shares
    yield bold_heading("Expected bandwidth, equal shares on all nodes = 1")
    expected = Table(box=None, pad_edge=False, show_header=False)
    for name, ratio in advice.relative_to_equal_shares.items():
        expected.add_row(_PLACEMENTS[name], f"{ratio:.2f}")
    yield expected
    yield bold_heading("Commands")
    yield Text("\n".join(advice.commands_to_copy))
    yield bold_heading("Notes")
    yield Text("\n".join([*advice.sentences_before_commands, f"Bandwidths: {advice.source}."]))


def _comparison_text(comparison: WeightsComparison) -> Iterator[Table | Text]:
    """Yield weights from paths alone and from all workers at once, and their largest difference."""
    from chaosity.store.read_node_matrix_csv import BANDWIDTH

    yield bold_heading("Measured in two ways")
    table = borderless_table((), ["node", *(_WEIGHTS[name] for name in comparison.weights)])
    for node in sorted({node for shares in comparison.weights.values() for node in shares}):
        percents = (f"{100.0 * s.get(node, 0.0):.1f} %" for s in comparison.weights.values())
        table.add_row(str(node), *percents)
    table.add_section()
    expected = (format_quantity(BANDWIDTH, value) for value in comparison.expected.values())
    table.add_row("expected", *expected)
    yield table
    node, difference = comparison.node_with_largest_share_difference
    yield Text(f"Largest difference: node {node}, {100.0 * difference:.1f} % of all pages.")


def _rank_sentences(ranks: dict[str, RankCorrelation]) -> Iterator[str]:
    """Yield a sentence for each rank correlation of expected and measured bandwidth."""
    for name, rank in ranks.items():
        placements = f"{rank.n} {'interleaved ' if name == 'interleaved' else ''}placements"
        if rank.correlation is None:
            yield f"No rank correlation can be computed for {placements}."
            continue
        yield (
            f"Rank correlation of expected and measured bandwidth, {placements}: "
            f"{rank.correlation:.2f} (95 % interval {rank.low:.2f} to {rank.high:.2f})."
        )
