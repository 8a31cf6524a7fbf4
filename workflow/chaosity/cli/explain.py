"""``chaosity explain``: print how a value of the report came about, down to the raw numbers."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import RESULTS_FOLDER
from chaosity.cli.terminal_output import echo, print_template
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.units import format_quantity

if TYPE_CHECKING:
    import pandas as pd

# An error names at most this many points.
_SHOWN_NAMES = 12
_MARKS = {True: "met", False: "NOT met", None: "unknown"}


@click.command("explain")
@click.argument("folder", type=RESULTS_FOLDER)
@click.argument("point")
@click.option("--experiment", help="Experiment of the point. Default: the only one with it.")
@click.option("--load", help="Name of a load of the point. Default: all loads.")
@click.option("--metric", help="Name of a metric. Default: all metrics of the loads.")
@click.option("--replicate", type=int, help="Explain only this replicate: 1, 2, ... Default: all.")
@click.option("--samples", is_flag=True, help="Also print each sample, and each counted value.")
def explain_value_command(
    folder: Path,
    point: str,
    experiment: str | None,
    load: str | None,
    metric: str | None,
    replicate: int | None,
    samples: bool,
) -> None:
    """Print how the values of a POINT came about.

    FOLDER is results/HOST/CONFIGURATION. POINT is a point's name, such as memory=node0+node1+triad,
    or a part of it: `node0+node1` lists the points that contain it. For each value, the command
    prints the median and the interval with their formulas, and for each replicate the record,
    command lines, programs, formula, inputs and checks.
    """
    from scipy.stats import t

    from chaosity.records.atomic_writes_and_record_files import record_file
    from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_from_records import build_tidy_table

    if not (folder / "points").is_dir():
        raise UserError("the folder has no points", str(folder), "use results/HOST/CONFIGURATION")
    table = with_variance_priors(
        Measurements.from_table(build_tidy_table(folder / "points", folder))
    )
    if table.is_simulated:
        echo("SIMULATED: this machine does not exist.")
    rows = table.rows
    asked = {"experiment": experiment, "point": point, "load": load, "metric": metric}
    for column, name in asked.items():
        if name is not None:
            rows = rows[rows[column] == _full_name(name, rows[column], column, folder)]
    if len(names := sorted(rows["experiment"].unique())) > 1:
        what = f"several experiments have this point: {', '.join(names)}"
        raise UserError(what, point, "choose one with --experiment")
    if replicate is not None and replicate not in set(rows["replicate"]):
        last = int(rows["replicate"].max())
        raise UserError(f"replicate {replicate} is unknown", point, f"use 1 to {last}")
    for _, cell in summarise_cells(rows).iterrows():
        of_cell = rows[(rows["load"] == cell["load"]) & (rows["metric"] == cell["metric"])]
        of_cell = of_cell[
            (of_cell["initiator"] == cell["initiator"]) & (of_cell["target"] == cell["target"])
        ]
        values = of_cell.loc[of_cell["status"] == "valid", "value"].dropna().astype(float)
        quantile = None if cell["low"] != cell["low"] else t.ppf(0.975, cell["freedom"])
        print_template("explain_cell", cell=cell.to_dict(), numbers=[*values], t=quantile)
        for _, row in of_cell.iterrows():
            if replicate in (None, row["replicate"]):
                path = folder / record_file(row["experiment"], row["point"], int(row["replicate"]))
                with malformed_as_user_error("the record is not complete", str(path)):
                    for line in _replicate_lines(folder, path, row, every_sample=samples):
                        echo(line)
        echo()


def _full_name(name: str, column: pd.Series, kind: str, folder: Path) -> str:
    """Return the value of a column that equals the name, or else the only one that contains it."""
    names = sorted(map(str, column.unique()))
    found = [name] if name in names else [each for each in names if name in each]
    if len(found) == 1:
        return found[0]
    if not names:
        what = "no point of the folder has a value or a reason"
        raise UserError(what, str(folder), "measure the host first")
    what = f"several names of a {kind} contain {name}" if found else f"there is no {kind} {name}"
    near = found or difflib.get_close_matches(name, names, _SHOWN_NAMES, 0.3) or names
    more = f" or {len(near) - _SHOWN_NAMES} more" if len(near) > _SHOWN_NAMES else ""
    raise UserError(what, str(folder), f"use {' or '.join(near[:_SHOWN_NAMES])}{more}")


def _replicate_lines(
    folder: Path, path: Path, row: pd.Series, *, every_sample: bool
) -> Iterator[str]:
    """Yield how the value of a replicate came about, from its record and its row of the table."""
    from chaosity.records.atomic_writes_and_record_files import load_record, read_regular_file
    from chaosity.store.explain_record_value import explain_record_value

    value = None if row["value"] != row["value"] else float(row["value"])
    quantity = format_quantity(row["metric"], value)
    shown = row["reason"] if value is None else f"{quantity} ({value!r})"
    yield f"  replicate {row['replicate']}, {row['status']}: {shown}"
    if not path.exists():
        return
    record = load_record(path)
    yield f"    record: {path}, measured {record['finished_at']} as number {record['order']}"
    planned = folder / "points" / row["experiment"] / f"{row['point']}.json"
    again = ["chaosity", "run", str(planned), "--replicate", str(row["replicate"])]
    yield f"    again: {shlex.join(again)}"
    for load in record["loads"]:
        environment = [f"{name}={text}" for name, text in load["environment"].items()]
        yield f"    command of {load['name']}: {shlex.join([*environment, *load['command']])}"
        program = load.get("program") or {}
        yield f"    program of {load['name']}: {program.get('version')}, {program.get('path')}"
    named = (load for load in record["loads"] if load.get("role", load["name"]) == row["load"])
    own = next((load for load in named if load["initiator"]["name"] == row["initiator"]), None)
    if own is None:
        raise UserError(f"the record has no load {row['load']}", str(path))
    point = json.loads(read_regular_file(planned))
    metric = row["metric"]
    sources = [load["metrics"].get(metric, {}) for load in point["loads"]]
    former = next((source["formerly"] for source in sources if source.get("formerly")), metric)
    derived = [each for each in point.get("relative", []) if each["name"] == metric]
    if derived:
        yield f"    formula: derived from other values: {json.dumps(derived)}"
    elif value is not None:
        name = metric if metric in own["metrics"] else former
        for line in explain_record_value(record, own, name, every_sample=every_sample):
            yield f"    {line}"
    for check in record["verdict"]["checks"]:
        yield f"    check {_MARKS[check['passed']]}: {check['name']}: {check['detail']}"
