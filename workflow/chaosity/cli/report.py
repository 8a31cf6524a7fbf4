"""``chaosity report``, ``reports``, ``overview``, ``published``: write pages and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from chaosity.cli.shared import (
    CONFIG_OPTION,
    EXISTING_FILE,
    FILE,
    FOLDER,
    NAMES_OF_PUBLISHED_FORMS,
    UNIT_OPTION,
    echo,
    is_option_typed,
)
from chaosity.errors import UserError, check_name_is_allowed
from chaosity.units import format_count


@click.command("report")
@click.argument("plan", type=EXISTING_FILE)
@click.option(
    "--table", "table_file", type=EXISTING_FILE, help="Tidy table. Default: made from the records."
)
@click.option(
    "--history",
    "history_file",
    type=EXISTING_FILE,
    help="Table of the values measured before components changed. Default: made from the records.",
)
@click.option(
    "--findings",
    "findings_file",
    type=EXISTING_FILE,
    help="Output of `chaosity anomalies --json`. Default: made from the table.",
)
@click.option(
    "--drawing", "drawing_file", type=EXISTING_FILE, help="Topology as SVG, drawn by lstopo."
)
@click.option(
    "--beside",
    "other_tables",
    type=EXISTING_FILE,
    multiple=True,
    help="Tidy table of another configuration of the host, to compare with; repeatable.",
)
@CONFIG_OPTION
@click.option("--output", type=FILE, required=True, help="HTML file.")
def write_report_command(plan: Path, output: Path, **inputs: Any) -> None:
    """Write the report and the figures of a PLAN (plan.json), and print its worst problems.

    The command works at any time: the report shows points without a measurement as missing.

    Example: chaosity report results/demo/paper_server/nps4/plan.json --output report.html
    """
    from chaosity.report.measured_run import Run
    from chaosity.report.page import write_report

    # `inputs` has the values of the other options, by the names of the attributes of `Run`.
    echo("\n".join(write_report(Run(plan, output, **inputs))))


@click.command("overview")
@click.argument("summaries", metavar="[SUMMARIES]...", type=EXISTING_FILE, nargs=-1)
@click.option("--output", type=FILE, required=True, help="HTML file, in the folder of all hosts.")
def write_overview_command(summaries: tuple[Path, ...], output: Path) -> None:
    """Write the page of all hosts and configurations from the SUMMARIES (summary.json) of reports.

    Hosts with the same processor model and configuration should be equal. Of three or more hosts
    that should be equal, the page names outlier hosts. The page lists hosts that the last run
    skipped, with the reason.

    Example: chaosity overview results/*/*/summary.json --output results/index.html
    """
    from chaosity.report.overview import write_overview
    from chaosity.result_folders import skipped_hosts

    if not summaries and not skipped_hosts(output.absolute().parent):
        raise UserError(
            "no summary of a report is named", remedy="name a file such as summary.json"
        )
    page = write_overview(summaries, output)
    if not page.rows:
        what = "none of the files is the summary of a report"
        raise UserError(
            what, str(summaries[0]), "name a file results/HOST/CONFIGURATION/summary.json"
        )
    echo(page.worst_problem_sentence)
    for group in page.groups:
        for statement in group.statements:
            echo(f"{group.configuration}: {statement.text}")


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

    If the last run skipped hosts, the command lists these hosts with the reason, writes their
    earlier reports again to say that the host was skipped, and exits with status 1.

    Example: chaosity reports --results results/demo
    """
    from chaosity.components import read_host_json
    from chaosity.report.overview import write_overview
    from chaosity.report.page import rewrite_reports_of_host
    from chaosity.result_folders import skipped_hosts, summary_files_of_all_hosts

    paths = sorted(results.glob("*/host.json"))
    skipped = skipped_hosts(results)
    skipped_names = {host.host for host in skipped}
    known = {path.parent.name for path in paths} | skipped_names
    # `make run` lists the reports in the default folder, even if the run only planned, or wrote
    # results to another folder.
    if not known and (is_option_typed("results") or not hosts):
        below = sorted({path.parent.parent for path in results.glob("*/*/host.json")})
        use = " or ".join(f"`chaosity reports --results {folder}`" for folder in below)
        remedy = f"use {use}" if below else "measure a host with make run"
        if is_option_typed("results"):
            raise UserError("the folder has no host", str(results), remedy)
        echo(f"There are no results of a host below {results}/; {remedy}.")
    for name in hosts:
        check_name_is_allowed(name, known, f"there is no host {name}", str(results))
    for path in paths:
        folder = path.parent
        if hosts and folder.name not in hosts:
            continue
        rewrite_reports_of_host(folder, stale_only=not hosts)
        newest = folder / str(read_host_json(folder / "any").get("configuration") or "")
        summary, report = newest / "summary.txt", newest / "report.html"
        if summary.exists():
            echo(summary.read_text(encoding="utf-8").rstrip())
        if report.exists():
            echo(report.absolute())
        elif not summary.exists() and folder.name not in skipped_names:
            remedy = "run snakemake with the inventory and the results of its measurements"
            echo(f"{folder.name}: there is no report yet; {remedy}")
    skipped = [host for host in skipped if not hosts or host.host in hosts]
    for host in skipped:
        echo(f"skipped: {host.host}, {host.time_to_the_minute}: {host.reason}")
    page = results / "index.html"
    if page.exists():
        write_overview(summary_files_of_all_hosts(results), page)
        echo(page.absolute())
    if skipped:
        sys.exit(1)


@click.command("published")
@click.argument("file", type=EXISTING_FILE)
@click.option(
    "--form",
    type=click.Choice(NAMES_OF_PUBLISHED_FORMS),
    required=True,
    help="Format of FILE: a file of templates/published explains its columns.",
)
@click.option(
    "--host", default="published", show_default=True, help="Name to give to the machine of FILE."
)
@UNIT_OPTION
@click.option(
    "--output", type=FOLDER, required=True, help="Folder for measurements.parquet and figures/."
)
def draw_published_command(
    file: Path, form: str, host: str, unit: str | None, output: Path
) -> None:
    """Draw figures from a CSV FILE that others published.

    The command writes measurements.parquet and the figures of the experiment, and prints the result
    of each figure in a sentence. If loads were measured alone and co-running, the command prints
    the slowdowns.

    Example: chaosity published tests/data/matrices/bandwidth_MBps.csv
    --form bandwidth_matrix --output theirs
    """
    from chaosity.documents.shipped_documents import (
        EXPERIMENTS_FOLDER,
        load_experiment,
        yaml_file_names,
    )
    from chaosity.figures.figure_files import draw_figures
    from chaosity.statistics.cell_summary import slowdown_sentences
    from chaosity.store.csv_tables import read_published_csv
    from chaosity.store.measurements import Measurements
    from chaosity.store.tidy_table_parquet import write_parquet_table
    from chaosity.topology.topology_model import Topology

    table = read_published_csv(file, form, host, unit)
    write_parquet_table(table, output / "measurements.parquet")
    echo(f"{output / 'measurements.parquet'}: {format_count(len(table), 'row')}")
    name = table["experiment"].iloc[0]
    experiments = [load_experiment(name)] if name in yaml_file_names(EXPERIMENTS_FOLDER) else []
    measurements = Measurements.from_table(table)
    for figure in draw_figures(experiments, measurements, Topology(), output / "figures"):
        if figure.csv is not None:
            echo(f"{output / 'figures' / figure.csv}: {figure.sentence}")
    for sentence in slowdown_sentences(measurements):
        echo(sentence)
