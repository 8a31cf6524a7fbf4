"""Command line: ``chaosity-place --policy uniform_all --workers 0-1 -- PROGRAM ARGUMENT ...``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from chaosity.errors import UserError
from chaosity.place.page_shares import parse_shares
from chaosity.place.placement_session import NOT_PLACED, run_placed
from chaosity.place.planning import AUTO, METHODS, PlacementRequest
from chaosity.place.policies import POLICIES
from chaosity.runner import kernel_settings
from chaosity.runner.observed_placement import parse_cpus

REFUSED = 2


def argument_parser(name: str = "chaosity-place") -> argparse.ArgumentParser:
    """The command line's own (argparse, since hosts have the standard library alone)."""
    found = argparse.ArgumentParser(
        prog=name,
        usage="%(prog)s --policy POLICY --workers NODES [OPTION ...] -- PROGRAM [ARGUMENT ...]",
        description="Run a program with its pages on the nodes where they should be.",
        epilog="Exit status: the program's, 128 and the signal's number if one ended it; "
        f"{REFUSED} when nothing was started, {NOT_PLACED} when the program ended well and its "
        "pages were elsewhere.",
    )
    add = found.add_argument
    add("--policy", choices=POLICIES, required=True, help="where pages are to be")
    add("--workers", required=True, metavar="NODES", help="whose cores run it, such as 0,2-3")
    add("--shares", metavar="LIST", help="of the pages by node, such as 0:0.25,1:0.75")
    add("--cpus", metavar="LIST", help="processing units; else all of the workers")
    add("--method", choices=METHODS, default=AUTO,
        help="how shares are enforced: by the kernel's weights, or page by page")  # fmt: skip
    add("--search", action="store_true",
        help="move pages towards the workers while it runs, as long as that helps")  # fmt: skip
    add("--settle", action="store_true",
        help="PROGRAM says that it is ready and waits for a line: open its barrier, search or let "
        "the kernel move pages, and only then pass its ready line on")  # fmt: skip
    add("--rate", default="samples", metavar="SOURCE",
        help="for the search: samples[=KEY] (JSON lines), lines=REGEX or instructions")  # fmt: skip
    add("--report", type=Path, metavar="FILE", help="for what was done and seen, as JSON")
    add("--root", type=Path, default=kernel_settings.ROOT, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


def parse_node_list(text: str, where: str) -> tuple[int, ...]:
    """The numbers of a list such as ``0,2-3``.

    Raises:
        UserError: it is none.
    """
    found = parse_cpus(text) if re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text) else set()
    if not found:
        raise UserError(f"{text!r} is no list of numbers", where, "it is such as 0,2-3")
    return tuple(sorted(found))


def request_from_arguments(given: argparse.Namespace) -> PlacementRequest:
    """What a command line asks for.

    Raises:
        UserError: a list is of another form.
    """
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    return PlacementRequest(
        policy=given.policy,
        workers=parse_node_list(given.workers, "--workers"),
        command=tuple(command),
        shares=parse_shares(given.shares) if given.shares else None,  # empty: nobody asks for any
        cpus=frozenset(parse_node_list(given.cpus, "--cpus")) if given.cpus is not None else None,
        method=given.method,
        search=given.search,
        settle=given.settle,
        rate=given.rate,
        report=given.report,
        root=given.root,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: what is refused is one sentence on standard error."""
    try:
        sys.exit(run_placed(request_from_arguments(argument_parser().parse_args(arguments))))
    except UserError as error:
        print(f"chaosity-place: {error}", file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
