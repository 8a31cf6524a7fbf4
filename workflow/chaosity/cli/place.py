"""``chaosity place``: chaosity-place, with weights computed from a measured matrix."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import click

from chaosity.cli.weights import read_workers
from chaosity.errors import UserError
from chaosity.export import read_measured_host, select_node_bandwidths
from chaosity.place.__main__ import parser, request
from chaosity.place.kinds import CONTENDED
from chaosity.place.session import run
from chaosity.place.shares import shares_text
from chaosity.store import NodeMatrix, read_matrix
from chaosity.topology import format_cpu_list
from chaosity.weights import canonical_weights, contended_matrix


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a program with its pages on the nodes where they should be.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def place(arguments: tuple[str, ...]) -> None:
    """Run a program with its pages on the nodes where they should be: docs/placement.md."""
    given = whole_parser().parse_args(arguments)
    if given.matrix is not None:
        given.shares = shares_text(shares(given))
    sys.exit(run(request(given)))


def whole_parser() -> argparse.ArgumentParser:
    """What chaosity-place takes, and where weights come from."""
    found = parser("chaosity place")
    own = found.add_argument_group("weights from measured bandwidths")
    own.add_argument("--matrix", type=Path, metavar="FILE|RESULTS",
                     help="CSV file of initiator by target nodes, or results/HOST/CONFIGURATION: "
                     "canonical weights of the workers are computed")  # fmt: skip
    own.add_argument("--unit", help="of the CSV file's numbers, such as MB/s")
    return found


def shares(given: argparse.Namespace) -> dict[int, float]:
    """The canonical weights of the workers.

    Raises:
        UserError: shares are given too, or no weights follow from what was measured.
    """
    if given.shares is not None:
        raise UserError("shares are given already", "--matrix", "leave out one of the two")
    workers = read_workers(given.workers)
    contended = given.policy == CONTENDED
    return canonical_weights(bandwidths(given.matrix, given.unit, workers, contended), workers)


def bandwidths(path: Path, unit: str | None, workers: list[int], contended: bool) -> NodeMatrix:
    """The matrix in a CSV file, or that of a folder of results.

    Args:
        path: of either.
        unit: of the file's numbers.
        workers: the nodes whose paths count.
        contended: of results, the paths of all workers at once; a file says nothing of that.

    Raises:
        UserError: there is none.
    """
    if not path.exists():
        raise UserError(
            "does not exist", str(path), "name a CSV file or results/HOST/CONFIGURATION"
        )
    if not path.is_dir():
        return read_matrix(path, "bandwidth", unit)
    host = read_measured_host(path)
    if not contended:
        return select_node_bandwidths(host).matrix
    found = contended_matrix(host.tidy, workers)
    if found is None:
        raise UserError(
            f"the paths of workers {format_cpu_list(workers)} were not measured with all of them at"
            " once", str(path), "measure them so, or take --policy canonical",
        )  # fmt: skip
    return found
