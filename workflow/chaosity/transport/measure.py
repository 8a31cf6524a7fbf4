"""Measures one point on its host: ``chaosity-measure results/HOST/host.json POINT.json ...``.

On this machine the runner is called as it is. Elsewhere the point goes to the runner's standard
input, the record comes back on its standard output and is kept here, whole or not at all. A host
that is lost in the middle is noted, so that its other points are left for the next run at once
instead of waiting for it one by one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaosity.records import (
    SCHEMA_VERSION,
    VALID,
    attempt_of_this_run,
    link_current_record,
    save_record,
)
from chaosity.runner.point_measurement import measure_point
from chaosity.transport.host_command import (
    CONNECTION_FAILED,
    SSH,
    Transport,
    connection_error_cause,
)
from chaosity.transport.skipped_hosts import read_skipped_host, skip_host

# Beyond the point's own limit: waiting for another measurement on the host (run.LOCK_SECONDS),
# touching the memory (run.READY_SECONDS), and some time to connect.
EXTRA_SECONDS = 900 + 120 + 60
# Exit statuses: the point has no record, or the whole host is lost.
NO_RECORD, HOST_LOST = 1, 3


class LostError(Exception):
    """The host cannot be reached or is no longer what it was; the text says why."""


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="chaosity-measure",
        description="Measure one point on its host and keep the record here.",
        epilog="Exit status 1: there is no record of this point; 3: the host is left out.",
    )
    parser.add_argument("host", type=Path, help="results/HOST/host.json, as discovery wrote it")
    parser.add_argument("point", type=Path, help="file with the point as JSON")
    parser.add_argument("--replicate", type=int, default=1, help="which replicate, from 1")
    parser.add_argument("--record", type=Path, required=True, help="where to keep the record")
    return parser.parse_args()


def connection_failure(transport: Transport) -> str | None:
    """Whether the host still answers: None, or why it does not."""
    try:
        answer = subprocess.run(
            transport.command("--help"), capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return "it does not answer"
    return None if answer.returncode != CONNECTION_FAILED else connection_error_cause(answer.stderr)


def measure_locally(path: Path, point: dict[str, Any], replicate: int) -> dict[str, Any]:
    """Measure on this machine the point that a file holds."""
    record = measure_point(point, replicate)
    if record["verdict"]["status"] != VALID:
        print(f"chaosity: {path.stem} failed: {record['verdict']['reason']}", file=sys.stderr)
    return record


def measure_over_ssh(
    transport: Transport, path: Path, point: dict[str, Any], replicate: int
) -> dict[str, Any]:
    """Have the point that a file holds measured there and return its record.

    Raises:
        LostError: the connection broke and the host does not answer any more.
        ValueError: what came back is no whole record.
    """
    limit = point["timeout_seconds"] + EXTRA_SECONDS
    with path.open("rb") as stream:
        try:
            answer = subprocess.run(
                transport.command("--replicate", str(replicate)),
                stdin=stream,
                capture_output=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise LostError(f"it gave no record within {limit:g} s") from None
    said = answer.stderr.decode(errors="replace")
    sys.stderr.write(said)
    try:
        record = json.loads(answer.stdout)
    except ValueError:
        if answer.returncode == CONNECTION_FAILED and (reason := connection_failure(transport)):
            raise LostError(reason) from None
        last = said.strip().splitlines() or ["nothing"]
        status = answer.returncode
        raise ValueError(f"no whole record came back (status {status}): {last[-1]}") from None
    if record.get("schema_version") != SCHEMA_VERSION or "verdict" not in record:
        raise ValueError("what came back is no record of this version")
    return record


def check_same_boot(record: dict[str, Any], host: dict[str, Any]) -> None:
    """Make sure that the host is still in the state that was discovered.

    Raises:
        LostError: it has booted since, so its settings and topology may be others.
    """
    booted = record.get("environment_before", {}).get("facts", {}).get("boot_id")
    if booted and host.get("boot_id") and booted.strip() != host["boot_id"].strip():
        raise LostError("it has booted again since it was discovered")


def measure_and_save() -> int:
    """Measure and keep the record; returns the exit status."""
    given = arguments()
    folder = given.host.parent
    host = json.loads(given.host.read_text(encoding="utf-8"))
    name = host["host"]
    if note := read_skipped_host(folder):
        print(f"chaosity: host {name} is left out: {note.reason}", file=sys.stderr)
        return HOST_LOST
    try:
        point = json.loads(given.point.read_text(encoding="utf-8"))
        if attempt := attempt_of_this_run(point, given.replicate, given.record):
            print(f"chaosity: {given.point.stem}: taken from {attempt.name}", file=sys.stderr)
            link_current_record(attempt, given.record)
            return 0
        transport = Transport.from_json(host["transport"])
        if transport.kind == SSH:
            record = measure_over_ssh(transport, given.point, point, given.replicate)
        else:  # this machine, or the node that Slurm runs this on
            record = measure_locally(given.point, point, given.replicate)
        check_same_boot(record, host)
        save_record(record, given.record)
    except LostError as error:
        reason = f"lost while it was measured: {error}"
        skip_host(folder, name, reason)
        print(f"chaosity: host {name} is left out: {reason}", file=sys.stderr)
        return HOST_LOST
    except (OSError, ValueError) as error:
        print(f"chaosity: host {name}, {given.point.stem}: {error}", file=sys.stderr)
        return NO_RECORD
    return 0


def main() -> None:
    """Entry point."""
    sys.exit(measure_and_save())


if __name__ == "__main__":
    main()
