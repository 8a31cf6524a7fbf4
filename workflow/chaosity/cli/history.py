"""``chaosity history``: since when is a host slow, and what changed then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import FILE, JSON_OPTION, RESULTS_FOLDER, refuse_without_effect
from chaosity.cli.terminal_output import print_json, print_template

if TYPE_CHECKING:
    from chaosity.health.check_history import CheckHistory


@click.command("history")
@click.argument("folder", type=RESULTS_FOLDER)
@click.option("--all", "every", is_flag=True, help="Print also the values that did not change.")
@click.option("--csv", "csv_file", type=FILE, help="Also write all values and changes as CSV.")
@JSON_OPTION
def history_command(folder: Path, every: bool, csv_file: Path | None, as_json: bool) -> None:
    """Tell since when a host is slower or faster, and which components changed then.

    FOLDER is results/HOST/CONFIGURATION with the series of `chaosity check`. Changes below 2 % are
    not told.
    """
    from chaosity.health.check_history import read_check_history

    if as_json:
        refuse_without_effect("with --json", "every")
    history = read_check_history(folder)
    if csv_file:
        from chaosity.health.history_table import history_table
        from chaosity.records.atomic_writes_and_record_files import write_atomically
        from chaosity.store.csv_for_spreadsheets import csv_text

        write_atomically(csv_file, csv_text(history_table(history)))
    if as_json:
        print_json(_document(history))
    else:
        shown = history.series if every else history.changed_series
        print_template("history", history=history, sentences=history.sentences(), shown=shown)


def _document(history: CheckHistory) -> dict[str, object]:
    """Return the history as a document for JSON; `history_table` has all values."""
    facts = ("parts", "is_worse", "is_drift", "since", "first", "last", "components")
    return {
        "checks": len(history.times),
        "values": len(history.series),
        "is_simulated": history.is_simulated,
        "changes": [
            {
                **{name: getattr(change, name) for name in facts},
                "values": [
                    {
                        **dict(zip(("experiment", "point", "metric"), series.key, strict=True)),
                        "before": before,
                        "after": after,
                    }
                    for series, before, after in change.values
                ],
            }
            for change in history.changes
        ],
        "unknown_points": history.unknown,
    }
