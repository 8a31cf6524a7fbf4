"""``chaosity tidy``: the tidy table from records, and the table of earlier values."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, FILE


@click.command("tidy")
@click.argument("plan", type=EXISTING_FILE)
@click.option(
    "--output",
    type=FILE,
    required=True,
    help="File of the tidy table: Parquet, or CSV if its name ends in .csv.",
)
@click.option(
    "--history",
    type=FILE,
    help="File for the values measured before components changed, Parquet or CSV. Default: none.",
)
def make_tidy_table_command(plan: Path, output: Path, history: Path | None) -> None:
    """Make the tidy table of a PLAN (plan.json) from the points and records in its folder."""
    from chaosity.store.measurements_before_component_changes import (
        HISTORY_COLUMNS,
        split_measurements_at_component_changes,
    )
    from chaosity.store.tidy_table_from_records import build_tidy_table
    from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table

    folder = plan.parent
    table = build_tidy_table(folder / "points", folder)
    tables = [(table, output, COLUMNS)]
    if history is not None:
        earlier = split_measurements_at_component_changes(
            folder / "points", folder, folder / "components"
        )
        tables.append((earlier, history, HISTORY_COLUMNS))
    for rows, path, columns in tables:
        if path.suffix == ".csv":
            rows.to_csv(path, index=False)
        else:
            write_parquet_table(rows, path, columns)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    click.echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)
