"""``chaosity weights`` computes page weights from bandwidths; ``place`` runs a program by them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    DWP_OPTION,
    FILE_OR_RESULTS,
    JSON_OPTION,
    UNIT_OPTION,
    parse_worker_nodes,
    print_json,
    print_line,
    print_table,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.__main__ import argument_parser, request_from_arguments
from chaosity.place.page_placement import CANONICAL, CONTENDED, POLICIES, format_shares
from chaosity.place.run_placed_program import run_program_with_placed_pages
from chaosity.units import format_quantity

if TYPE_CHECKING:
    from chaosity.weights import PlacementAdvice, WeightsComparison


_TEXT_OF_PLACEMENT = {
    "weights": "with these weights",
    "uniform_all": "equal shares on all nodes",
    "uniform_workers": "equal shares on the workers",
}
_TEXT_OF_WEIGHTS_SOURCE = {
    "canonical": "each path alone",
    "canonical_contended": "all workers at once",
}


@click.command("weights")
@click.argument("file", metavar="MATRIX.csv|RESULTS", type=FILE_OR_RESULTS)
@click.option(
    "--workers",
    required=True,
    metavar="NODES",
    help="Worker nodes, on which the program's threads run, such as 0,1 or 0-3.",
)
@DWP_OPTION
@UNIT_OPTION
@JSON_OPTION
def weights_command(file: Path, workers: str, dwp: float, unit: str | None, as_json: bool) -> None:
    """Compute interleave weights for the pages of a program that needs bandwidth.

    MATRIX.csv has the initiator node in the first column, then the bandwidth to each target node.
    RESULTS is a folder results/HOST/CONFIGURATION or its measurements.parquet. From RESULTS, the
    command also computes the weights of paths that were measured with all workers at once.

    The command prints BWAP's canonical weights (Gureya et al., IPDPS 2020): each node's share of
    the pages, these shares as integer weights for the Linux kernel, and commands with the weights.

    Example: chaosity weights results/demo/paper_server --workers 0-3
    """
    from chaosity.export.main_matrices import read_bandwidths_alone_and_contended
    from chaosity.weights import (
        advise_interleave_weights,
        compare_alone_and_contended_weights,
    )

    worker_nodes = parse_worker_nodes(workers)
    is_table = file.is_dir() or file.suffix == ".parquet"
    alone, contended = read_bandwidths_alone_and_contended(file, unit, worker_nodes)
    advice = advise_interleave_weights(alone, worker_nodes, dwp)
    comparison = contended and compare_alone_and_contended_weights(alone, contended, worker_nodes)
    if as_json:
        document = advice.to_json()
        if is_table:
            document["contended"] = comparison.to_json() if comparison else None
        print_json(document)
        return
    _print_advice(advice)
    if comparison:
        _print_comparison(comparison)
    elif is_table:
        print_line(
            "These bandwidths were measured one path at a time. The experiment contended_paths has "
            "no measurement of these workers all at once."
        )


def _print_advice(advice: PlacementAdvice) -> None:
    """Print the page weights for a program, its expected bandwidth, commands and notes."""
    nodes = f"node{'s' * (len(advice.workers) > 1)} {format_cpu_list(advice.workers)}"
    dwp = f", data-to-worker proximity {advice.dwp:g}" if advice.dwp else ""
    print_line(f"Weights for a program on {nodes}{dwp}", style="bold")
    print_table(
        [
            (node, f"{100.0 * share:.1f} %", advice.kernel_weights.get(node, "-"))
            for node, share in advice.weights.items()
        ],
        right=["node", "share", "kernel weight"],
    )
    error = f"{advice.error_percent:.1f} %"
    print_line(f"kernel weights differ from shares by at most {error}", style="dim italic")
    print_line("\nExpected bandwidth, equal shares on all nodes = 1", style="bold")
    ratios = advice.relative_to_equal_shares.items()
    rows = [(_TEXT_OF_PLACEMENT[name], f"{ratio:.2f}") for name, ratio in ratios]
    print_table(rows, ["", ""], style="headless")
    print_line("\nCommands", style="bold")
    for command in advice.commands_to_copy:
        print_line(command)
    print_line("\nNotes", style="bold")
    for note in (*advice.sentences_before_commands, f"Bandwidths: {advice.source}."):
        print_line(note)


def _print_comparison(comparison: WeightsComparison) -> None:
    """Print the weights from paths alone, and beside them the weights with all workers at once."""
    print_line("\nMeasured in two ways", style="bold")
    shares = [*comparison.weights.values()]
    rows: list[list[object]] = [
        [node, *(f"{100.0 * own.get(node, 0.0):.1f} %" for own in shares)]
        for node in sorted({node for own in shares for node in own})
    ]
    expected = [
        format_quantity("bandwidth_bytes_per_second", value)
        for value in comparison.expected_bandwidths.values()
    ]
    rows += [[], ["expected", *expected]]
    print_table(
        rows, right=["node", *(_TEXT_OF_WEIGHTS_SOURCE[name] for name in comparison.weights)]
    )
    node, difference = comparison.node_with_largest_share_difference
    print_line(f"Largest difference: node {node}, {100.0 * difference:.1f} % of all pages.")


@click.command(
    "place",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def place_pages_command(arguments: tuple[str, ...]) -> None:
    """Run a program with its pages on the nodes that a policy names."""
    given = placement_argument_parser().parse_args(arguments)
    if given.matrix is None and given.unit is not None:
        raise UserError("the option has no effect without --matrix", "--unit", "leave it out")
    if given.matrix is not None:
        given.shares = format_shares(canonical_shares_of_workers(given))
    sys.exit(run_program_with_placed_pages(request_from_arguments(given)))


def placement_argument_parser() -> argparse.ArgumentParser:
    """Return the argument parser of chaosity-place with further options for measured bandwidths."""
    found = argument_parser("chaosity place")
    group = found.add_argument_group("weights from measured bandwidths")
    group.add_argument(
        "--matrix",
        type=Path,
        metavar="FILE|RESULTS",
        help="compute canonical weights of the workers from a CSV file (initiator by target nodes) "
        "or from a folder results/HOST/CONFIGURATION",
    )
    group.add_argument("--unit", help="unit of the CSV file's values, such as MB/s")
    example = "chaosity place --policy first_touch --workers 0 -- python3 -c 'sum([1] * 10**8)'"
    found.epilog = f"{found.epilog} Example: {example}"
    return found


def canonical_shares_of_workers(given: argparse.Namespace) -> dict[int, float]:
    """Return the canonical weights of the workers: node -> share of pages, 0 to 1.

    Raises:
        UserError: --shares is given too, or no weights can be computed.
    """
    from chaosity.export.main_matrices import read_bandwidths_alone_and_contended
    from chaosity.result_folders import find_results_folder
    from chaosity.weights import canonical_weights

    path: Path = given.matrix
    if given.shares is not None:
        raise UserError("--shares is given too", "--matrix", "remove --matrix or --shares")
    if POLICIES[given.policy].shares not in (CANONICAL, CONTENDED):
        what = f"policy {given.policy} needs no measured bandwidths"
        raise UserError(what, "--matrix", "leave it out, or choose policy canonical or bwap")
    if not path.exists():
        remedy = "name a CSV file or results/HOST/CONFIGURATION"
        raise UserError("does not exist", str(path), remedy)
    path = find_results_folder(path) if path.is_dir() else path
    workers = parse_worker_nodes(given.workers)
    bandwidths, contended = read_bandwidths_alone_and_contended(path, given.unit, workers)
    if given.policy == CONTENDED:
        if contended is None:
            nodes = format_cpu_list(workers)
            problem = f"has no measurement with all worker nodes ({nodes}) at once"
            remedy = "run the experiment contended_paths, or use --policy canonical"
            raise UserError(problem, str(path), remedy)
        bandwidths = contended
    return canonical_weights(bandwidths, workers)
