"""Command line of the runner: ``chaosity-run POINT.json --replicate 1 --record rep1.json``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from chaosity.records import VALID, save_record
from chaosity.runner.describe_host import DescriptionError, write_host_description
from chaosity.runner.point_measurement import measure_point


def arguments() -> argparse.Namespace:
    """Parse the command line (argparse, since the runner uses the standard library alone)."""
    parser = argparse.ArgumentParser(
        prog="chaosity-run",
        description="Measure one point on this host and keep the record.",
        epilog="Exit status 0 when a record was made, also of a failed point; its verdict tells.",
    )
    parser.add_argument(
        "point", nargs="?", default="-", help="file with the point as JSON, or - for standard input"
    )
    parser.add_argument("--replicate", type=int, default=1, help="which replicate, from 1")
    parser.add_argument("--record", type=Path, help="where to keep the record; else it is printed")
    parser.add_argument(
        "--describe",
        action="store_true",
        help="measure nothing; print a tarball that says what this host is, for discovery",
    )
    parser.add_argument("--tools", type=Path, help="folder whose programs come before all others")
    return parser.parse_args()


def tools_first(folder: Path | None) -> None:
    """Let a folder's programs come first, by default those beside the zipapp.

    Beside the zipapp lies chaosity-place too, which loads may start.
    """
    beside = Path(sys.argv[0]).resolve().parent
    copied = sys.argv[0].endswith(".pyz")
    own = [folder or beside / "kernels", beside] if copied else [folder] if folder else []
    os.environ["PATH"] = os.pathsep.join([*map(str, own), os.environ.get("PATH", os.defpath)])


def answer_description() -> int:
    """Describe this host on standard output; returns the exit status."""
    try:
        write_host_description(json.loads(sys.stdin.read() or '{"needs": []}'), sys.stdout.buffer)
    except DescriptionError as error:
        print(f"chaosity-run: {error}", file=sys.stderr)
        return 1
    return 0


def answer() -> int:
    """Measure, then save or print; returns the exit status."""
    given = arguments()
    tools_first(given.tools)
    if given.describe:
        return answer_description()
    try:
        text = sys.stdin.read() if given.point == "-" else Path(given.point).read_text()
        point = json.loads(text)
    except (OSError, ValueError) as error:
        print(f"chaosity-run: {given.point} holds no point: {error}", file=sys.stderr)
        return 2
    record = measure_point(point, given.replicate)
    try:
        if given.record:
            save_record(record, given.record)
        else:
            json.dump(record, sys.stdout, indent=1, sort_keys=True)
    except OSError as error:
        print(f"chaosity-run: the record of {point['point']} is lost: {error}", file=sys.stderr)
        return 1
    result = record["verdict"]
    if result["status"] != VALID:
        print(f"chaosity-run: {point['point']} failed: {result['reason']}", file=sys.stderr)
    return 0


def main() -> None:
    """Entry point of the zipapp."""
    sys.exit(answer())


if __name__ == "__main__":
    main()
