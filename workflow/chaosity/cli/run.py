"""``chaosity run``: measure one planned point by hand."""

from __future__ import annotations

import json
from pathlib import Path

import click

from chaosity.errors import UserError
from chaosity.records import save
from chaosity.runner.run import run as run_point


@click.command()
@click.argument("point", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicate", default=1, show_default=True, help="Which replicate, from 1.")
@click.option("--record", type=click.Path(path_type=Path), help="Keep the record here.")
def run(point: Path, replicate: int, record: Path | None) -> None:
    """Measure one POINT (a file below results/HOST/CONFIGURATION/points) and show its verdict.

    Without --record nothing is kept: the whole record is printed as JSON.
    """
    try:
        document = json.loads(point.read_text(encoding="utf-8"))
        orders = document["orders"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("is no point of a plan", str(point)) from error
    if not 1 <= replicate <= len(orders):
        raise UserError(f"there is no replicate {replicate}", str(point), f"1 to {len(orders)}")
    result = run_point(document, replicate)
    if record is None:
        click.echo(json.dumps(result, indent=1, sort_keys=True))
    else:
        save(result, record)
    for line in result["verdict"]["checks"]:
        mark = {True: "ok  ", False: "FAIL" if line["decisive"] else "note", None: "?   "}
        click.echo(f"{mark[line['passed']]} {line['name']}: {line['detail']}", err=True)
