"""``chaosity run``: measure one planned point."""

from __future__ import annotations

import json
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, FILE
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import save_record
from chaosity.records.record_types_and_verdict import SIMULATED
from chaosity.runner.point_measurement import measure_point as run_point


@click.command("run")
@click.argument("point", type=EXISTING_FILE)
@click.option("--replicate", default=1, show_default=True, help="Number of the replicate, from 1.")
@click.option(
    "--record", type=FILE, help="File for the record. Default: print it as JSON and keep nothing."
)
def measure_point_command(point: Path, replicate: int, record: Path | None) -> None:
    """Measure one POINT and print its checks.

    POINT is a file of results/HOST/CONFIGURATION/points.
    """
    try:
        document = json.loads(point.read_text(encoding="utf-8"))
        replicates = len(document["orders"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("is not a point of a plan", str(point)) from error
    if _is_simulated(point):
        raise UserError("is a point of a simulated host", str(point), "run chaosity simulate")
    if not 1 <= replicate <= replicates:
        raise UserError(f"has no replicate {replicate}", str(point), f"allowed: 1 to {replicates}")
    measured = run_point(document, replicate)
    if record is None:
        click.echo(json.dumps(measured, indent=1, sort_keys=True))
    else:
        save_record(measured, record)
    for check in measured["verdict"]["checks"]:
        mark = {True: "ok  ", False: "FAIL" if check["decisive"] else "note", None: "?   "}
        click.echo(f"{mark[check['passed']]} {check['name']}: {check['detail']}", err=True)


def _is_simulated(point: Path) -> bool:
    """Return whether the folder of the point's host says that the host is simulated."""
    for folder in point.absolute().parents:
        if (host := folder / "host.json").exists():
            transport = json.loads(host.read_text(encoding="utf-8")).get("transport", {})
            return bool(transport.get("kind") == SIMULATED)
    return False
