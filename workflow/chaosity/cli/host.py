"""``chaosity host``: the run of the workflow for one host."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, EXISTING_FOLDER


@click.command("host")
@click.argument("config_file", type=EXISTING_FILE)
@click.argument("arguments", nargs=-1, metavar="-- [SNAKEMAKE_OPTION]... -- TARGET")
@click.option(
    "--workflow",
    "root",
    type=EXISTING_FOLDER,
    required=True,
    help="Folder with workflow/Snakefile and profiles/default.",
)
@click.option("--below", type=int, help="End soon after the process with this number.")
def measure_host_command(
    config_file: Path, arguments: tuple[str, ...], root: Path, below: int | None
) -> None:
    """Run the workflow for the host of CONFIG_FILE, round after round if it has a budget.

    The workflow starts this command for each of several hosts, for each configuration of a host,
    and for a host with `budget` or `precision` in the config.
    """
    from chaosity.campaign.budgeted_plan import has_budget
    from chaosity.campaign.hosts_and_plans_of_run import Campaign
    from chaosity.campaign.runs_of_hosts import HostWorkflow
    from chaosity.documents.check_config import read_config

    config = read_config(config_file)
    workflow = HostWorkflow(root, arguments, below)
    if not has_budget(config):
        sys.exit(workflow.run_and_note_whether_unchanged(config_file, config))
    from chaosity.campaign.measured_rounds import RoundsOfHost

    campaign = Campaign(config, root=root)
    [(name, plan)] = campaign.plans.items()
    rounds = RoundsOfHost(plan, campaign.configuration_folder(name), config)
    sys.exit(rounds.run(workflow))
