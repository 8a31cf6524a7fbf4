"""``chaosity tidy``: make the tidy table of all measured values from the records."""

from __future__ import annotations

import json
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, FILE
from chaosity.cli.terminal_output import echo
from chaosity.errors import malformed_as_user_error
from chaosity.records.record_files import read_regular_file, write_atomically


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
    from chaosity.store.csv_for_spreadsheets import csv_text
    from chaosity.store.measurements_before_component_changes import (
        HISTORY_COLUMNS,
        split_measurements_at_component_changes,
    )
    from chaosity.store.tidy_table_from_records import (
        build_tidy_table,
        note_on_records_without_digest,
    )
    from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table

    with malformed_as_user_error("the file is not the plan.json of a host", str(plan)):
        json.loads(read_regular_file(plan))["experiments"]
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
            write_atomically(path, csv_text(rows))
        else:
            write_parquet_table(rows, path, columns)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)
    if note := note_on_records_without_digest(folder):
        echo(f"chaosity: {note}", err=True)
