"""``chaosity plan``: how many points, and how long they take, before anything runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from chaosity.cli.options import CONFIG_FILE
from chaosity.units import format_duration

if TYPE_CHECKING:
    from chaosity.design import HostPlan


@click.command()
@click.option("--topology", "source", default="live", show_default=True,
              help="live, an hwloc XML file, or a captured /sys.")  # fmt: skip
@click.option("--experiment", "experiments", multiple=True, help="Only this one; repeatable.")
@click.option("--config", "config_file", default=CONFIG_FILE, show_default=True,
              type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--list", "as_list", is_flag=True, help="Print every point's name, one a line.")
@click.option("--commands", is_flag=True, help="Print every point with its commands.")
def plan(
    source: str,
    experiments: tuple[str, ...],
    config_file: Path,
    as_json: bool,
    as_list: bool,
    commands: bool,
) -> None:
    """Say what would be measured on a host, and for how long. Nothing runs."""
    # Imports of heavy libraries stand inside functions: --help must not wait for them.
    from chaosity.campaign.measured_weights import MeasuredWeights
    from chaosity.config import read_config
    from chaosity.design import PlannedHost, plan_host
    from chaosity.topology import configuration_name, discover

    config = read_config(config_file)
    topology = discover(source)
    name = "localhost" if source == "live" else Path(source).name.split(".")[0]
    host = PlannedHost(name, configuration_name(topology), topology)
    weights = MeasuredWeights(Path(config["results"]) / host.name / host.configuration)
    found = plan_host(host, config, experiments or None, weights)
    if as_json:
        click.echo(json.dumps(found.summary(), indent=1))
    elif as_list:
        for point in found.points:
            click.echo(f"{point['experiment']}/{point['point']}")
    elif commands:
        click.echo("\n".join(line for point in found.points for line in command_lines(point)))
    else:
        show(found)


def command_lines(point: Mapping[str, Any]) -> Iterator[str]:
    """What a point runs, as a person would type it: its loads' files and commands."""
    yield f"# {point['experiment']}/{point['point']}"
    for load in point["loads"]:
        for name, text in load["files"].items():
            yield f"cat > {name} <<'END'\n{text.rstrip()}\nEND"
        settings = [f"{name}={value}" for name, value in load["environment"].items()]
        yield shlex.join([*settings, *load["command"]])


def show(found: HostPlan) -> None:
    """A table for the terminal: one line an experiment."""
    summary = found.summary()
    table = Table(title=f"{summary['host']} as {summary['configuration']}", title_justify="left")
    table.add_column("experiment")
    for column in ("points", "measurements", "about"):
        table.add_column(column, justify="right")
    rows: list[tuple[str, dict[str, Any]]] = [*summary["experiments"].items(), ("in all", summary)]
    for name, one in rows:
        if name == "in all":
            table.add_section()
        cells = (
            str(one["points"]),
            str(one["measurements"]),
            format_duration(one["estimated_seconds"]),
        )
        table.add_row(name, *cells)
    console = Console()
    console.print(table)
    for note in summary["notes"]:
        console.print(f"note: {note}", highlight=False)
