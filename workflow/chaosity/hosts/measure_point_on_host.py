"""Measure one point on its host: ``chaosity-measure results/HOST/host.json POINT.json ...``.

A rule of the workflow runs this command on the controller. If the host is this machine, the command
measures the point itself. If the host is another machine, the command starts ``chaosity-run`` on
the host over SSH, writes the point to the standard input of the runner, reads the record from its
standard output, and saves the record on this machine atomically. If the connection is lost during a
measurement, the host is marked as skipped. The other points of a skipped host fail at once, and the
next run measures these points.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NotRequired, TypedDict

from chaosity.errors import (
    UserError,
    check_free_space,
    file_system_error,
    printable_short_line,
    printable_text,
)
from chaosity.hosts.runner_command import (
    SIMULATED,
    SSH,
    SSH_STATUS_OF_FAILED_CONNECTION,
    TransportCommands,
    connection_error_cause,
    runner_command_line,
)
from chaosity.records.record_files import (
    link_current_record,
    newest_attempt_since_run_began,
    read_regular_file,
    record_from_json_document,
    save_record,
)
from chaosity.records.record_format import VALID, Point, Record
from chaosity.result_folders import read_skipped_host, write_skipped_host_note
from chaosity.runner.guardian_process import kill_this_process_and_descendants
from chaosity.runner.point_measurement import LOCK_SECONDS, READY_SECONDS, measure_point

# Time in seconds that a measurement may take in addition to the time limit of its point. In this
# time, the measurement connects, waits for another measurement on the host, and touches the memory.
SECONDS_BEYOND_POINT_LIMIT = LOCK_SECONDS + READY_SECONDS + 60
# Interval in seconds at which a measurement checks that the process of `--below` still exists.
_PARENT_CHECK_INTERVAL_SECONDS = 1.0
# Exit statuses: NO_RECORD if only this point has no record, HOST_LOST if its host is skipped.
NO_RECORD, HOST_LOST = 1, 3


class HostLostOrChangedError(Exception):
    """The host cannot be reached or has changed; the text gives the reason."""


class DiscoveredHostDocument(TypedDict):
    """The content of ``results/<host>/host.json``, which discovery writes."""

    host: str
    configuration: str
    source: str
    transport: TransportCommands
    boot_id: NotRequired[str | None]
    # Hosts are compared as equal hosts only if they have the same text.
    equal_hosts: NotRequired[str]


def _parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="chaosity-measure",
        description="Measure one point on its host and save the record on this machine.",
        epilog="Exit status 1: this point has no record; 3: the host is skipped.",
    )
    parser.add_argument("host", type=Path, help="results/HOST/host.json, written by discovery")
    parser.add_argument("point", type=Path, help="JSON file of the point")
    parser.add_argument("--replicate", type=int, default=1, help="number of the replicate, from 1")
    parser.add_argument("--record", type=Path, required=True, help="file of the record")
    parser.add_argument("--below", type=int, help="end soon after the process with this number")
    return parser.parse_args()


def _connection_failure(transport: TransportCommands) -> str | None:
    """Return the reason why the host does not answer; None if it answers."""
    command = runner_command_line(transport, "--help")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "it does not answer"
    failed = answer.returncode == SSH_STATUS_OF_FAILED_CONNECTION
    return connection_error_cause(answer.stderr) if failed else None


def _measure_over_ssh(transport: TransportCommands, point: Point, replicate: int) -> Record:
    """Measure the point on its host and return the record.

    Raises:
        HostLostOrChangedError: the connection broke and the host no longer answers, or no record
            came in time.
        ValueError: the answer is not a complete record.
    """
    limit = point["timeout_seconds"] + SECONDS_BEYOND_POINT_LIMIT
    command = runner_command_line(transport, "--replicate", str(replicate))
    try:
        asked = json.dumps(point).encode()
        answer = subprocess.run(
            command, input=asked, capture_output=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        raise HostLostOrChangedError(f"the host sent no record within {limit:g} s") from None
    errors = answer.stderr.decode(errors="replace")
    sys.stderr.write(printable_text(errors))
    try:
        document = json.loads(answer.stdout)
    except ValueError:
        status = answer.returncode
        if status == SSH_STATUS_OF_FAILED_CONNECTION and (reason := _connection_failure(transport)):
            raise HostLostOrChangedError(reason) from None
        killed = "the runner was killed, or the connection was cut"
        last = (errors.strip().splitlines() or [killed])[-1]
        raise ValueError(f"the record is incomplete (status {status}): {last}") from None
    return record_from_json_document(document, "the answer")


def _print_message(text: str) -> None:
    """Print a message, which can contain text from a host or a record, to standard error."""
    print(f"chaosity: {printable_short_line(text)}", file=sys.stderr)


def _simulate_record(point: Point, replicate: int, folder: Path) -> Record:
    """Return the record of a point on the simulated host whose results are in `folder`."""
    # The import of the simulation is slow, so a measurement of a real host leaves it out.
    from chaosity.simulation.simulated_records import open_machine_model, simulate_replicate

    model = open_machine_model(folder / point["configuration"], point["host"])
    return simulate_replicate(point, replicate, model)


def _check_same_boot(record: Record, host: DiscoveredHostDocument) -> None:
    """Check that the host has not booted since its discovery; a boot can change its topology."""
    state = record.get("environment_before")
    booted, discovered = state["facts"].get("boot_id") if state else None, host.get("boot_id")
    if booted and discovered and booted.strip() != discovered.strip():
        raise HostLostOrChangedError("the host has booted again since it was discovered")


def measure_replicate(
    host: DiscoveredHostDocument,
    point: Point,
    replicate: int,
    folder: Path,
    spent_before: float = 0.0,
) -> Record:
    """Measure one replicate of a point on its host and return the record.

    `host` is from ``host.json``, `folder` is ``results/HOST``. `spent_before` is only used if the
    host is this machine, see `measure_point`.

    Raises:
        HostLostOrChangedError: the host no longer answers.
        ValueError: the answer of a remote host is not a complete record.
    """
    transport = host["transport"]
    if transport["kind"] == SSH:
        return _measure_over_ssh(transport, point, replicate)
    if transport["kind"] == SIMULATED:
        return _simulate_record(point, replicate, folder)
    # The host is this machine; with Slurm, this process already runs on the node that is measured.
    return measure_point(point, replicate, spent_before=spent_before)


def _end_soon_after(process: int) -> None:
    """Start a thread that kills this process soon after `process` (Snakemake) has ended."""

    def watch() -> None:
        while Path(f"/proc/{process}").exists():
            time.sleep(_PARENT_CHECK_INTERVAL_SECONDS)
        kill_this_process_and_descendants()

    threading.Thread(target=watch, daemon=True).start()


def _measure_and_save() -> int:
    """Measure a point and save the record; return the exit status."""
    arguments = _parse_arguments()
    if arguments.below:
        _end_soon_after(arguments.below)
    folder, name = arguments.host.parent, arguments.point.stem
    try:
        host: DiscoveredHostDocument = json.loads(read_regular_file(arguments.host))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        _print_message(f"{arguments.host}: the description of the host cannot be read: {reason}")
        return NO_RECORD
    if skipped := read_skipped_host(folder):
        _print_message(f"host {host['host']} is skipped: {skipped.reason}")
        return HOST_LOST
    try:
        point: Point = json.loads(read_regular_file(arguments.point))
        if point["configuration"] != host["configuration"]:
            is_in = f"the host is in configuration {host['configuration']}"
            _print_message(f"{name}: {is_in}, not {point['configuration']}")
            return NO_RECORD
        if attempt := newest_attempt_since_run_began(point, arguments.replicate, arguments.record):
            _print_message(f"{name}: reused {attempt.name}")
            link_current_record(attempt, arguments.record)
            return 0
        check_free_space(arguments.record.parent)
        record = measure_replicate(host, point, arguments.replicate, folder)
        runner_prints_reason = host["transport"]["kind"] in (SSH, SIMULATED)
        if record["verdict"]["status"] != VALID and not runner_prints_reason:
            _print_message(f"{name} failed: {record['verdict']['reason']}")
        _check_same_boot(record, host)
        save_record(record, arguments.record)
    except HostLostOrChangedError as error:
        reason = f"lost during a measurement: {error}"
        write_skipped_host_note(folder, host["host"], reason)
        _print_message(f"host {host['host']} is skipped: {reason}")
        return HOST_LOST
    except (OSError, UserError, ValueError) as error:
        sentence = (file_system_error(error) if isinstance(error, OSError) else None) or error
        _print_message(f"host {host['host']}, {name}: {sentence}")
        return NO_RECORD
    return 0


def main() -> None:
    """Run the command line ``chaosity-measure``, and exit with its status."""
    sys.exit(_measure_and_save())


if __name__ == "__main__":
    main()
