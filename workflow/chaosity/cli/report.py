"""``chaosity report | reports | overview``: what a person looks at."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from chaosity.anomalies import Findings
from chaosity.components import read_components, read_history
from chaosity.config import CONFIG, load_experiment, read_yaml
from chaosity.errors import UserError
from chaosity.figures import draw
from chaosity.records import write_atomically
from chaosity.report import (
    render_report,
    summarise_records,
    summary_of,
    terminal_line,
    write_overview,
)
from chaosity.store import (
    HISTORY_COLUMNS,
    history,
    other_configuration_tables,
    read_skipped_host,
    read_table,
    skipped_hosts,
    summary_files,
    tidy,
)

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def read_plan(path: Path) -> dict[str, Any]:
    """A plan as Snakemake's start wrote it.

    Raises:
        UserError: the file is none.
    """
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        return {"experiments": dict(plan["experiments"]), **plan}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("is no plan", str(path)) from error


def documents(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The experiments' YAML documents of a plan."""
    return [load_experiment(name) for name in plan["experiments"]]


def planned_records(folder: Path) -> list[Path]:
    """Records of the points that the plan has; others lie there from plans before."""
    points = (path.relative_to(folder / "points") for path in folder.glob("points/*/*.json"))
    return [path for point in points for path in folder.glob(f"{point.with_suffix('')}/rep*.json")]


def read_findings(path: Path) -> Findings:
    """What `chaosity anomalies --json` said of a table.

    Raises:
        UserError: the file holds something else.
    """
    try:
        return Findings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("holds no findings", str(path)) from error


def write_report(
    plan: Path,
    output: Path,
    *,
    table: Path | None = None,
    former: Path | None = None,
    findings: Path | None = None,
    drawing: Path | None = None,
    config_file: Path = Path(CONFIG),
    beside: Sequence[Path] = (),
) -> list[str]:
    """Draw the figures of a plan, write its report and, beside it, ``summary.json``.

    Returns:
        The worst that it says, a line each.
    """
    folder = plan.parent
    found = read_plan(plan)
    experiments = documents(found)
    measured = read_table(table) if table else tidy(folder / "points", folder)
    components = read_components(folder / "components")
    topology = json.loads((folder / "topology.json").read_text(encoding="utf-8"))
    figures = output.parent / "figures"
    draw(experiments, measured, topology, figures)
    context = render_report(
        measured,
        output,
        experiments=experiments,
        figures=figures,
        topology=topology,
        system=components.get("system", {}),
        runs=summarise_records(planned_records(folder)),
        config={
            **read_yaml(config_file),
            **found.get("config", {}),
            "notes": found.get("notes", []),
        },
        drawing=drawing,
        found=read_findings(findings) if findings else None,
        components=components,
        beside={path: read_table(path) for path in beside},
        history=read_table(former, HISTORY_COLUMNS)
        if former
        else history(folder / "points", folder, folder / "components"),
        states=read_history(folder / "components"),
        left_out=read_skipped_host(folder.parent),
    )
    summary = summary_of(context, measured)
    text = json.dumps(summary.to_json(), indent=1, ensure_ascii=False) + "\n"
    write_atomically(output.with_name("summary.json"), text)
    return [terminal_line(line) for line in summary.worst]


@click.command()
@click.argument("plan", type=EXISTING)
@click.option("--table", type=EXISTING, help="Tidy table; without it, made from the records.")
@click.option("--history", "former", type=EXISTING, help="Earlier values; made without it.")
@click.option("--findings", type=EXISTING,
              help="Of `chaosity anomalies --json`; made from the table without it.")  # fmt: skip
@click.option("--drawing", type=EXISTING, help="The topology as SVG, as lstopo draws it.")
@click.option("--beside", type=EXISTING, multiple=True,
              help="Tidy table of another configuration of the host; repeatable.")  # fmt: skip
@click.option("--config", "config_file", type=EXISTING, default=CONFIG, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="HTML file.")
def report(
    plan: Path,
    table: Path | None,
    former: Path | None,
    findings: Path | None,
    drawing: Path | None,
    beside: tuple[Path, ...],
    config_file: Path,
    output: Path,
) -> None:
    """Draw the figures of a PLAN (plan.json) and write its report.

    Works at any time: what has not been measured yet is shown as such.
    """
    lines = write_report(
        plan, output, table=table, former=former, findings=findings, drawing=drawing,
        config_file=config_file, beside=beside,
    )  # fmt: skip
    click.echo("\n".join(lines))


@click.command()
@click.argument("said", metavar="[SUMMARIES]...", type=EXISTING, nargs=-1)
@click.option("--output", type=click.Path(path_type=Path), required=True,
              help="HTML file, in the folder of all hosts.")  # fmt: skip
def overview(said: tuple[Path, ...], output: Path) -> None:
    """Put all hosts and configurations on one page, from the SUMMARIES (summary.json) of reports.

    Hosts of one processor model in one configuration should be equal: where there are three, which
    of them is not is said. Hosts that the last run left out are shown with the reason.
    """
    found = write_overview(said, output)
    click.echo(found.sentence)
    for fleet in found.fleets:
        for one in fleet.said:
            click.echo(f"{fleet.configuration}: {one.text}")


@click.command()
@click.option("--results", default="results", show_default=True, type=FOLDER)
@click.option("--anew", multiple=True, metavar="HOST",
              help="Make this host's reports again, tell of it alone; repeatable.")  # fmt: skip
def reports(results: Path, anew: tuple[str, ...]) -> None:
    """Print what is worst on each host and where its newest report lies, one path a line.

    Hosts that the last run left out are told last but for the overview, and the exit status is 1.
    The earlier reports of such a host are made again, so that they say so too.
    """
    away = [one for one in skipped_hosts(results) if not anew or one.host in anew]
    for path in sorted(results.glob("*/host.json")):
        host = path.parent
        if anew and host.name not in anew:
            continue
        remake(host, stale_only=not anew)
        configuration = json.loads(path.read_text(encoding="utf-8"))["configuration"]
        folder = host / configuration
        if (folder / "summary.txt").exists():
            click.echo((folder / "summary.txt").read_text(encoding="utf-8").rstrip())
        if (folder / "report.html").exists():
            click.echo(str((folder / "report.html").absolute()))
    for one in away:
        click.echo(f"left out: {one.host}, {one.minute}: {one.reason}")
    page = results / "index.html"
    if page.exists():
        write_overview(summary_files(results), page)
        click.echo(str(page.absolute()))
    if away:
        sys.exit(1)


def is_stale(folder: Path) -> bool:
    """Whether a report says another thing than its host's ``left_out.json``, or its absence.

    Args:
        folder: ``results/<host>/<configuration>``.
    """
    try:
        said = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["left_out"]
    except (OSError, ValueError, KeyError, TypeError):
        said = None
    away = read_skipped_host(folder.parent)
    return said != (away.notice if away else None)


def remake(host: Path, *, stale_only: bool) -> None:
    """Make the reports of a host (``results/<host>``) again, of all its configurations."""
    for html in sorted(host.glob("*/report.html")):
        folder = html.parent
        if not (folder / "plan.json").exists() or (stale_only and not is_stale(folder)):
            continue
        given = {
            "table": folder / "measurements.parquet",
            "former": folder / "history.parquet",
            "findings": folder / "findings.json",
            "drawing": folder / "topology.svg",
        }
        there = {name: path for name, path in given.items() if path.exists()}
        others = other_configuration_tables(host.parent, host.name, folder.name)
        lines = write_report(folder / "plan.json", html, beside=others, **there)
        write_atomically(folder / "summary.txt", "\n".join(lines) + "\n")
