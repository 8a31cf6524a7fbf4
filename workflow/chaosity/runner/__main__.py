"""Command line of the runner: ``chaosity-run POINT.json --replicate 1 --record rep1.json``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from chaosity.records import VALID, save
from chaosity.runner.run import run


def arguments() -> argparse.Namespace:
    """Parse the command line (argparse, since the runner uses the standard library alone)."""
    parser = argparse.ArgumentParser(
        prog="chaosity-run",
        description="Measure one point on this host and keep the record.",
        epilog="Exit status 0 when a record was made, also of a failed point; its verdict tells.",
    )
    parser.add_argument("point", help="file with the point as JSON, or - for standard input")
    parser.add_argument("--replicate", type=int, default=1, help="which replicate, from 1")
    parser.add_argument("--record", type=Path, help="where to keep the record; else it is printed")
    return parser.parse_args()


def answer() -> int:
    """Measure, then save or print; returns the exit status."""
    given = arguments()
    try:
        text = sys.stdin.read() if given.point == "-" else Path(given.point).read_text()
        point = json.loads(text)
    except (OSError, ValueError) as error:
        print(f"chaosity-run: {given.point} holds no point: {error}", file=sys.stderr)
        return 2
    record = run(point, given.replicate)
    try:
        if given.record:
            save(record, given.record)
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
