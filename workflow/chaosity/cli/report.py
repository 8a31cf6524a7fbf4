"""``chaosity report`` and ``chaosity figures``: what a person looks at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from chaosity.config import CONFIG, load_experiment, read_yaml
from chaosity.errors import UserError
from chaosity.figures import draw
from chaosity.report import ReportContext, render_report, summarise_records
from chaosity.store import read_table, tidy

EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


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


def worst(context: ReportContext) -> list[str]:
    """The three worst things that the report says, one a line, for the terminal."""
    findings = [f"finding: {one.title}" for one in context.findings]
    checks = [f"{one.severity}: {one.name}: {one.text}" for one in context.wrong]
    return [*findings, *checks][:3] or ["nothing is wrong as far as was looked"]


@click.command()
@click.argument("plan", type=EXISTING)
@click.option("--table", type=EXISTING, help="Tidy table; without it, made from the records.")
@click.option("--drawing", type=EXISTING, help="The topology as SVG, as lstopo draws it.")
@click.option("--config", "config_file", type=EXISTING, default=CONFIG, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), required=True, help="HTML file.")
def report(
    plan: Path, table: Path | None, drawing: Path | None, config_file: Path, output: Path
) -> None:
    """Draw the figures of a PLAN (plan.json) and write its report.

    Works at any time: what has not been measured yet is shown as such.
    """
    folder = plan.parent
    found = read_plan(plan)
    experiments = documents(found)
    measured = read_table(table) if table else tidy(folder / "points", folder)
    topology = json.loads((folder / "topology.json").read_text(encoding="utf-8"))
    figures = output.parent / "figures"
    draw(experiments, measured, topology, figures)
    context = render_report(
        measured,
        output,
        experiments=experiments,
        figures=figures,
        topology=topology,
        system=json.loads((folder / "components" / "system.json").read_text(encoding="utf-8")),
        runs=summarise_records(planned_records(folder)),
        config={**read_yaml(config_file), **found.get("config", {})},
        drawing=drawing,
    )
    click.echo("\n".join(worst(context)))


@click.command()
@click.option("--results", default="results", show_default=True, type=click.Path(path_type=Path))
def reports(results: Path) -> None:
    """Print what is worst on each host and where its newest report lies, one path a line."""
    for path in sorted(results.glob("*/host.json")):
        configuration = json.loads(path.read_text(encoding="utf-8"))["configuration"]
        folder = path.parent / configuration
        if (folder / "summary.txt").exists():
            click.echo((folder / "summary.txt").read_text(encoding="utf-8").rstrip())
        if (folder / "report.html").exists():
            click.echo(str((folder / "report.html").absolute()))
