"""``chaosity explain``: print how a value of the report came about, down to the raw numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import RESULTS_FOLDER
from chaosity.cli.terminal_output import echo, print_line
from chaosity.errors import UserError
from chaosity.units import choose_scale

if TYPE_CHECKING:
    import pandas as pd

# An error names at most this many points.
_SHOWN_NAMES = 12


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

    from chaosity.statistics.cell_summary import summarise_cells, with_variance_priors
    from chaosity.store.explain_record_value import explain_replicate
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
        for line in _cell_lines(cell, [*values], quantile):
            print_line(line)
        for _, row in of_cell.iterrows():
            if replicate in (None, row["replicate"]):
                for line in explain_replicate(folder, row, every_sample=samples):
                    echo(line)
        echo()


def _cell_lines(cell: pd.Series, values: list[float], t: float | None) -> Iterator[str]:
    """Yield the value of a cell, and how median and interval follow from the replicates."""
    scale = choose_scale(cell["metric"], [cell["median"]])
    interval = f", 95 % interval {scale.number(cell['low'])} to {scale.number(cell['high'])}"
    median = scale.text(cell["median"]) if values else "no value"
    yield f"{cell['metric']} of {cell['load']}: {median}{interval if t else ''}"
    yield (
        f"  n = {cell['n']}, {cell['n_failed']} failed, {cell['n_missing']} missing; "
        f"host {cell['host']}, configuration {cell['configuration']}, "
        f"experiment {cell['experiment']}, point {cell['point']}, "
        f"{cell['initiator']} -> {cell['target']}"
    )
    if values:
        yield f"  median of {', '.join(map(str, values))}"
    if t is None:
        return
    formula = f"mean ± t x sqrt(variance / {cell['counted']})"
    formula = f"exp({formula}) of the logarithms" if cell["is_positive"] else formula
    yield f"  interval: {formula}{', without outliers' * (cell['counted'] < cell['n'])}"
    own = f"own variance {cell['own_variance']}, {cell['counted'] - 1} degrees of freedom"
    own = "no variance of its own" if cell["counted"] == 1 else own
    prior = (
        f"; moderated by the prior of {cell['prior_cells']} cells of one kind, variance "
        f"{cell['prior_variance']} with {cell['prior_freedom']} degrees of freedom: "
        f"{cell['variance']}, {cell['freedom']}"
    )
    yield f"    mean {cell['mean']}, t {t}, {own}{prior if cell['prior_cells'] else ''}"
    yield "    An interval without the median is widened to the median."


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
