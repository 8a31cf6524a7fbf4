"""``chaosity history``: since when is a host slow, and what changed then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import FILE, JSON_OPTION, RESULTS_FOLDER, refuse_without_effect
from chaosity.cli.terminal_output import (
    print_json,
    print_line,
    print_table,
    print_that_nothing_was_measured,
)
from chaosity.units import format_count, format_quantity, metric_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaosity.health.check_history import CheckHistory, ValueSeries


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
        from chaosity.records.atomic_writes_and_record_files import write_atomically
        from chaosity.store.csv_for_spreadsheets import csv_text

        write_atomically(csv_file, csv_text(history.table()))
    if as_json:
        print_json(_document(history))
    else:
        _print_history(history, history.series if every else history.changed_series)


def _print_history(history: CheckHistory, shown: Sequence[ValueSeries]) -> None:
    """Print what changed, the newest change first, and a table of series."""
    if history.is_simulated:
        print_that_nothing_was_measured()
    for sentence in history.sentences():
        print_line(sentence)
    if history.unknown:
        number = format_count(len(history.unknown), "value")
        names = history.unknown[0] + ", ..." * (len(history.unknown) > 1)
        print_line(f"{number} of points that the plan does not have any more: {names}.")
    if not shown:
        return
    rows = []
    for each in shown:
        metric, (first, now) = each.check.metric, each.ends
        place = ("->".join(each.check.parts), metric_words(metric), len(each.times))
        ends = (format_quantity(metric, first), format_quantity(metric, now))
        rows.append((*place, *ends, f"{100 * (now / first - 1):+.1f} %"))
    print_table(rows, ["component", "metric"], ["checks", "at first", "now", "change"])


def _document(history: CheckHistory) -> dict[str, object]:
    """Return the history as a document for JSON; its table has all values."""
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
