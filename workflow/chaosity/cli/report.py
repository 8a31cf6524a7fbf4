"""``chaosity report``, ``reports``, ``overview``: the pages that people read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from chaosity.cli.shared_options import CONFIG_OPTION, EXISTING_FILE, FILE, FOLDER


@click.command("report")
@click.argument("plan", type=EXISTING_FILE)
@click.option("--table", type=EXISTING_FILE, help="Tidy table. Default: made from the records.")
@click.option(
    "--history",
    "former",
    type=EXISTING_FILE,
    help="Table of the values measured before components changed. Default: made from the records.",
)
@click.option(
    "--findings",
    type=EXISTING_FILE,
    help="Output of `chaosity anomalies --json`. Default: made from the table.",
)
@click.option("--drawing", type=EXISTING_FILE, help="Topology as SVG, drawn by lstopo.")
@click.option(
    "--beside",
    "others",
    type=EXISTING_FILE,
    multiple=True,
    help="Tidy table of another configuration of the host, to compare with; repeatable.",
)
@CONFIG_OPTION
@click.option("--output", type=FILE, required=True, help="HTML file.")
def write_report_command(plan: Path, output: Path, **inputs: Any) -> None:
    """Write the report and the figures of a PLAN (plan.json), and print its worst problems.

    The command works at any time: the report shows points without a measurement as missing.
    """
    from chaosity.report.write_report_files import write_report

    # The other options have the names of the parameters of `write_report`.
    click.echo("\n".join(write_report(plan, output, **inputs)))


@click.command("overview")
@click.argument("summaries", metavar="[SUMMARIES]...", type=EXISTING_FILE, nargs=-1)
@click.option("--output", type=FILE, required=True, help="HTML file, in the folder of all hosts.")
def write_overview_command(summaries: tuple[Path, ...], output: Path) -> None:
    """Write the page of all hosts and configurations from the SUMMARIES (summary.json) of reports.

    Hosts of one processor model in one configuration should be equal; from three hosts on, outlier
    hosts are named. Hosts that the last run skipped are listed with the reason.
    """
    from chaosity.report.overview_and_equal_hosts import write_overview

    page = write_overview(summaries, output)
    click.echo(page.sentence)
    for group in page.groups:
        for statement in group.statements:
            click.echo(f"{group.configuration}: {statement.text}")


@click.command("reports")
@click.option(
    "--results", default="results", show_default=True, type=FOLDER, help="Folder of all hosts."
)
@click.option(
    "--anew",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Write this host's reports again and print only this host; repeatable.",
)
def list_reports_command(results: Path, hosts: tuple[str, ...]) -> None:
    """Print the worst problems of each host and the path of its newest report.

    Hosts that the last run skipped are listed with the reason, and the exit status is 1. Their
    earlier reports are written again, to say that the host was skipped.
    """
    from chaosity.report.overview_and_equal_hosts import write_overview
    from chaosity.report.write_report_files import rewrite_reports_of_host
    from chaosity.result_folders import skipped_hosts, summary_files

    for path in sorted(results.glob("*/host.json")):
        folder = path.parent
        if hosts and folder.name not in hosts:
            continue
        rewrite_reports_of_host(folder, stale_only=not hosts)
        newest = folder / json.loads(path.read_text(encoding="utf-8"))["configuration"]
        summary, report = newest / "summary.txt", newest / "report.html"
        if summary.exists():
            click.echo(summary.read_text(encoding="utf-8").rstrip())
        if report.exists():
            click.echo(report.absolute())
    skipped = [host for host in skipped_hosts(results) if not hosts or host.host in hosts]
    for host in skipped:
        click.echo(f"skipped: {host.host}, {host.time_to_the_minute}: {host.reason}")
    page = results / "index.html"
    if page.exists():
        write_overview(summary_files(results), page)
        click.echo(page.absolute())
    if skipped:
        sys.exit(1)
