"""``chaosity tidy``: records to the tidy table."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.store import tidy as tidy_table
from chaosity.store import write_table


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Parquet or CSV.")
def tidy(plan: Path, output: Path) -> None:
    """Make the tidy table of a PLAN (plan.json) from the points and records beside it."""
    table = tidy_table(plan.parent / "points", plan.parent)
    if output.suffix == ".csv":
        table.to_csv(output, index=False)
    else:
        write_table(table, output)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)
