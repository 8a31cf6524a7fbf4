"""``chaosity rounds``: measure a host within a budget."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE


@click.command("rounds")
@click.argument("config_file", type=EXISTING_FILE)
def measure_rounds_command(config_file: Path) -> None:
    """Measure the hosts of CONFIG_FILE within its budget, round after round.

    The workflow starts this command if its config has `budget` or `precision`.
    """
    from chaosity.campaign.hosts_and_plans_of_run import Campaign
    from chaosity.checked_yaml_files import ROOT, read_config

    campaign = Campaign(read_config(config_file), root=ROOT, discover=False)
    for rounds in campaign.rounds.values():
        if status := rounds.run():
            sys.exit(status)
