"""``chaosity plan``: how many points there are and how long they take, before anything runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared_options import CONFIG_OPTION, JSON_OPTION, refuse_without_effect
from chaosity.cli.terminal_output import echo, print_json, print_line, print_table
from chaosity.units import format_duration

if TYPE_CHECKING:
    from chaosity.design.host_plan import PlanSummary
    from chaosity.records.point_types import Point


@click.command("plan")
@click.option(
    "--topology",
    "source",
    default="live",
    show_default=True,
    help="Host: live (this machine), an hwloc XML file, or a captured /sys.",
)
@click.option(
    "--experiment", "experiments", multiple=True, help="Plan only this experiment; repeatable."
)
@CONFIG_OPTION
@click.option("--budget", help="Also show the first round within a time such as 30m or 2h.")
@JSON_OPTION
@click.option("--list", "as_list", is_flag=True, help="Print the names of all points, a line each.")
@click.option("--commands", is_flag=True, help="Print the commands of all points, for a shell.")
def plan_command(
    source: str,
    experiments: tuple[str, ...],
    config_file: Path,
    budget: str | None,
    as_json: bool,
    as_list: bool,
    commands: bool,
) -> None:
    """Show what would be measured on a host, and for how long. Nothing is measured."""
    from chaosity.campaign.budgeted_plan import has_budget
    from chaosity.campaign.kept_page_weights import HostPageWeights
    from chaosity.design.host_plan import PlannedHost, plan_host
    from chaosity.documents.check_config import check_config, read_config
    from chaosity.topology.configuration_names import configuration_name
    from chaosity.topology.topology_discovery import discover_topology

    if as_json:
        refuse_without_effect("with --json", "as_list", "commands", "budget")
    elif as_list:
        refuse_without_effect("with --list", "commands", "budget")
    elif commands:
        refuse_without_effect("with --commands", "budget")
    config = read_config(config_file)
    if budget:
        config = check_config({**config, "budget": budget}, "--budget")
    topology = discover_topology(source)
    name = "localhost" if source == "live" else Path(source).name.split(".")[0]
    host = PlannedHost(name, configuration_name(topology), topology)
    folder = Path(config["results"]) / host.name / host.configuration
    weights = HostPageWeights(folder)
    host_plan = plan_host(host, config, experiments or None, weights)
    if as_json:
        print_json(host_plan.summarize_plan())
    elif as_list:
        for point in host_plan.points:
            echo(f"{point['experiment']}/{point['point']}")
    elif commands:
        echo("\n".join(line for point in host_plan.points for line in _command_lines(point)))
    else:
        _print_summary(host_plan.summarize_plan())
        if has_budget(config):
            from chaosity.campaign.measured_rounds import RoundsOfHost

            echo(RoundsOfHost(host_plan, folder, config, writes=False).describe_next_round())


def _print_summary(summary: PlanSummary) -> None:
    """Print the points and the time of each experiment of a plan, and its notes."""
    counted = [*summary["experiments"].items(), ("total", summary)]
    rows: list[list[object]] = [
        [name, own["points"], own["measurements"], format_duration(own["estimated_seconds"])]
        for name, own in counted
    ]
    print_table(
        [*rows[:-1], [], rows[-1]],
        ["experiment"],
        ["points", "measurements", "about"],
        title=f"{summary['host']} as {summary['configuration']}",
        style="ruled",
    )
    for note in summary["notes"]:
        print_line(f"note: {note}", wrap=True)


def _command_lines(point: Point) -> Iterator[str]:
    """Yield the files and commands of a point's loads as lines for a shell."""
    yield f"# {point['experiment']}/{point['point']}"
    for load in point["loads"]:
        for name, text in load["files"].items():
            yield f"cat > {name} <<'END'\n{text.rstrip()}\nEND"
        settings = [f"{name}={value}" for name, value in load["environment"].items()]
        yield shlex.join([*settings, *load["command"]])
