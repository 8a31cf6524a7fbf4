"""The command line ``chaosity-place --policy uniform_all --workers 0-1 -- PROGRAM ARGUMENT ...``.

The command runs a program with its pages on the nodes that a policy selects.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.place.page_placement import AUTO, METHODS, POLICIES, PlacementRequest, parse_shares
from chaosity.place.run_placed_program import (
    MISPLACED_STATUS,
    run_program_with_placed_pages,
)
from chaosity.runner import lock_files
from chaosity.runner.describe_host import check_memory_policies

REFUSED_STATUS = 2
METHOD_HELP = (
    "how shares are enforced: by the kernel's weights, or by moving pages; policies that leave "
    "pages to the kernel have no shares"
)
SEARCH_HELP = (
    "move pages towards the workers while the program runs, as long as the program gets faster"
)
RATE_HELP = (
    "where a search gets the rate: samples[=KEY] (JSON lines), lines=REGEX or instructions; "
    "only a search reads it"
)


def argument_parser(name: str = "chaosity-place") -> argparse.ArgumentParser:
    """Return the parser of the command line, made with argparse, because hosts may lack Click."""
    parser = argparse.ArgumentParser(
        prog=name,
        usage="%(prog)s --policy POLICY --workers NODES [OPTION ...] -- PROGRAM [ARGUMENT ...]",
        description="Run a program with its pages on the nodes that a policy names.",
        epilog="Exit status: the program's, or 128 plus the number of the signal that ended it; "
        f"{REFUSED_STATUS} when the program was not started, or the file of --report not written; "
        f"{MISPLACED_STATUS} when the program ended well, but its pages were on other nodes, or a "
        "search had no rate.",
    )
    add = parser.add_argument
    add("--policy", choices=POLICIES, required=True, help="where the pages must be")
    add(
        "--workers",
        required=True,
        metavar="NODES",
        help="nodes whose cores run the program, such as 0,2-3",
    )
    add("--shares", metavar="LIST", help="share of the pages on each node, such as 0:0.25,1:0.75")
    add("--cpus", metavar="LIST", help="processing units; default: all units of the workers")
    add("--method", choices=METHODS, default=AUTO, help=METHOD_HELP)
    add("--search", action="store_true", help=SEARCH_HELP)
    add("--rate", default="samples", metavar="SOURCE", help=RATE_HELP)
    add("--report", type=Path, metavar="FILE", help="JSON file for the result of the placement")
    # Only the runner uses --settle. With --settle, the program prints a line when its pages no
    # longer move, and the runner waits for this line.
    add("--settle", action="store_true", help=argparse.SUPPRESS)
    add("--root", type=Path, default=lock_files.ROOT, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _parse_node_list(text: str, where: str) -> tuple[int, ...]:
    """Return the nodes in a list such as ``0,2-3``; an empty list is an error."""
    with contextlib.suppress(ValueError):
        if numbers := parse_cpu_list(text):
            return numbers
    raise UserError(f"{text!r} is not a list of numbers", where, "write the list as 0,2-3")


def request_from_arguments(arguments: argparse.Namespace) -> PlacementRequest:
    """Return the placement request that a parsed command line describes.

    Raises:
        UserError: a list of nodes, units or shares has the wrong form.
    """
    cpus, command = arguments.cpus, arguments.command
    parsed = {
        "workers": _parse_node_list(arguments.workers, "--workers"),
        "command": tuple(command[1:] if command[:1] == ["--"] else command),
        "shares": parse_shares(arguments.shares) if arguments.shares else None,
        "cpus": frozenset(_parse_node_list(cpus, "--cpus")) if cpus is not None else None,
    }
    own = {field.name: getattr(arguments, field.name) for field in fields(PlacementRequest)}
    return PlacementRequest(**{**own, **parsed})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status; print an error as one sentence to stderr."""
    request = argument_parser().parse_args(arguments)
    try:
        check_memory_policies()
        sys.exit(run_program_with_placed_pages(request_from_arguments(request)))
    except UserError as error:
        print(f"chaosity-place: {error}", file=sys.stderr)
        sys.exit(REFUSED_STATUS)


if __name__ == "__main__":
    main()
