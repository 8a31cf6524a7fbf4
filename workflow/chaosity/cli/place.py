"""``chaosity place``: run a program with its pages on the nodes that a policy names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import click

from chaosity.cli.shared_options import parse_worker_nodes
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place.__main__ import argument_parser, request_from_arguments
from chaosity.place.page_shares import format_shares
from chaosity.place.placement_policies import CANONICAL, CONTENDED, POLICIES
from chaosity.place.run_placed_program import run_program_with_placed_pages


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
        raise UserError("it has no effect without --matrix", "--unit", "leave it out")
    if given.matrix is not None:
        given.shares = format_shares(canonical_shares_of_workers(given))
    sys.exit(run_program_with_placed_pages(request_from_arguments(given)))


def placement_argument_parser() -> argparse.ArgumentParser:
    """Return the parser of chaosity-place, with options for measured bandwidths."""
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
    return found


def canonical_shares_of_workers(given: argparse.Namespace) -> dict[int, float]:
    """Return the canonical weights of the workers: node -> share of pages, 0 to 1.

    Raises:
        UserError: --shares is given too, or no weights can be computed.
    """
    from chaosity.export.main_matrices import read_bandwidths_alone_and_contended
    from chaosity.result_folders import find_results_folder
    from chaosity.weights.canonical_weights import canonical_weights

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
