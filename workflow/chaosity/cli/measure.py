"""``chaosity measure``: measure one point of a plan, and make its record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, FILE
from chaosity.cli.terminal_output import echo
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.records.point_types import Point
from chaosity.records.record_files import (
    read_regular_file,
    save_record,
)
from chaosity.records.record_types import SIMULATED, VALID
from chaosity.runner.point_measurement import measure_point


@click.command("measure")
@click.argument("point", type=EXISTING_FILE)
@click.option("--replicate", default=1, show_default=True, help="Number of the replicate, from 1.")
@click.option(
    "--record", type=FILE, help="File for the record. Default: print it as JSON and keep nothing."
)
def measure_point_command(point: Path, replicate: int, record: Path | None) -> None:
    """Measure one POINT and print its checks.

    POINT is a file of results/HOST/CONFIGURATION/points. The exit status is 1 if the measurement
    failed.
    """
    with malformed_as_user_error("the file is not a point of a plan", str(point)):
        document = json.loads(read_regular_file(point))
        replicates = len(document["orders"])
    if _is_simulated(point):
        raise UserError("the point is of a simulated host", str(point), "run chaosity simulate")
    if not 1 <= replicate <= replicates:
        raise UserError(f"replicate {replicate} is unknown", str(point), f"use 1 to {replicates}")
    # Only points with derived metrics have the key "relative".
    if missing := Point.__annotations__.keys() - {"relative", *document}:
        remedy = "name a file of results/HOST/CONFIGURATION/points"
        raise UserError(f"the point has no key {min(missing)!r}", str(point), remedy)
    measured = measure_point(document, replicate)
    if record is None:
        echo(json.dumps(measured, indent=1, sort_keys=True))
    else:
        save_record(measured, record)
    for check in measured["verdict"]["checks"]:
        mark = {True: "ok  ", False: "FAIL" if check["decisive"] else "note", None: "?   "}
        echo(f"{mark[check['passed']]} {check['name']}: {check['detail']}", err=True)
    if measured["verdict"]["status"] != VALID:
        echo(f"chaosity: {point}: failed: {measured['verdict']['reason']}", err=True)
        sys.exit(1)


def _is_simulated(point: Path) -> bool:
    """Return whether the folder of the point's host says that the host is simulated."""
    for folder in point.absolute().parents:
        if (host := folder / "host.json").exists():
            transport = json.loads(read_regular_file(host)).get("transport", {})
            return bool(transport.get("kind") == SIMULATED)
    return False
