"""``chaosity tidy``: records to the tidy table, and earlier ones to the table of what changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import pandas as pd

from chaosity.store import COLUMNS, HISTORY_COLUMNS, history, write_table
from chaosity.store import tidy as tidy_table


@click.command()
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Parquet or CSV.")
@click.option("--history", "former", type=click.Path(path_type=Path),
              help="Also earlier values, where components changed; Parquet or CSV.")  # fmt: skip
def tidy(plan: Path, output: Path, former: Path | None) -> None:
    """Make the tidy table of a PLAN (plan.json) from the points and records beside it."""
    folder = plan.parent
    table = tidy_table(folder / "points", folder)
    write(table, output, COLUMNS)
    if former is not None:
        write(history(folder / "points", folder, folder / "components"), former, HISTORY_COLUMNS)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)


def write(table: pd.DataFrame, path: Path, columns: Mapping[str, str]) -> None:
    """Write a table in the form that its file's name asks for."""
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    else:
        write_table(table, path, columns)
