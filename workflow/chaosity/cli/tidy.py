"""``chaosity tidy``: records to the tidy table."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.store import tidy as tidy_table
from chaosity.store import write_table


@click.command()
@click.argument("points", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Parquet or CSV.")
def tidy(points: Path, output: Path) -> None:
    """Make the tidy table of a plan (the folder POINTS) from the records beside it."""
    table = tidy_table(points, points.parent)
    if output.suffix == ".csv":
        table.to_csv(output, index=False)
    else:
        write_table(table, output)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)
