"""Write the files of a report: figures, ``report.html``, ``summary.json``, ``summary.txt``."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.report.page import report_page
from chaosity.report.report_summary import ReportSummary, summarise_report, terminal_lines
from chaosity.report.run import Run
from chaosity.result_folders import other_configuration_tables
from chaosity.transport.skipped_hosts import read_skipped_host


def write_report(run: Run) -> list[str]:
    """Draw the figures of a run; write its page and, in the same folder, ``summary.json``.

    Returns:
        The lines for the terminal, see `terminal_lines`.
    """
    page = report_page(run)
    write_atomically(run.figures_folder / "machine.svg", page.machine_drawing)
    write_atomically(run.output, page.html())
    summary = summarise_report(run, page.problems)
    text = json.dumps(asdict(summary), indent=1, ensure_ascii=False) + "\n"
    write_atomically(run.output.with_name("summary.json"), text)
    return terminal_lines(run, summary)


def has_outdated_skip_note(folder: Path) -> bool:
    """Return whether a report and its host's ``left_out.json`` have different notes of a skip."""
    reported = None
    with suppress(UserError):
        reported = ReportSummary.from_file(folder / "summary.json").left_out
    skipped = read_skipped_host(folder.parent)
    return bool(reported != (skipped.skip_time_and_reason if skipped else None))


def rewrite_reports_of_host(host: Path, *, stale_only: bool) -> None:
    """Write the reports of all configurations of a host (``results/<host>``) again."""
    for html in sorted(host.glob("*/report.html")):
        folder = html.parent
        outdated = not stale_only or has_outdated_skip_note(folder)
        if not outdated or not (folder / "plan.json").exists():
            continue
        inputs = {
            "table_file": folder / "measurements.parquet",
            "history_file": folder / "history.parquet",
            "findings_file": folder / "findings.json",
            "drawing_file": folder / "topology.svg",
        }
        run = Run(
            folder / "plan.json",
            html,
            other_tables=tuple(other_configuration_tables(host.parent, host.name, folder.name)),
            **{name: path for name, path in inputs.items() if path.exists()},
        )
        write_atomically(folder / "summary.txt", "\n".join(write_report(run)) + "\n")
