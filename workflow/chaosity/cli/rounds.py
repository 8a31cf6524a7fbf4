"""``chaosity rounds``: measure a host within a budget."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, EXISTING_FOLDER


@click.command("rounds")
@click.argument("config_file", type=EXISTING_FILE)
@click.option(
    "--workflow",
    "root",
    type=EXISTING_FOLDER,
    required=True,
    help="Folder with workflow/Snakefile and profiles/default.",
)
def measure_rounds_command(config_file: Path, root: Path) -> None:
    """Measure the hosts of CONFIG_FILE within its budget, round after round.

    The workflow starts this command if its config has `budget` or `precision`.
    """
    from chaosity.campaign.hosts_and_plans_of_run import Campaign
    from chaosity.checked_yaml_files import read_config

    campaign = Campaign(read_config(config_file), root=root, discover=False)
    for rounds in campaign.rounds.values():
        if status := rounds.run():
            sys.exit(status)
