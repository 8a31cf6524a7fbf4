"""The command `chaosity next-round`."""

from __future__ import annotations

from pathlib import Path

import click

from chaosity.cli.shared_options import EXISTING_FILE, EXISTING_FOLDER


@click.command("next-round")
@click.argument("folder", type=EXISTING_FOLDER)
@click.argument("number", type=click.IntRange(min=1))
@click.option("--config", "config_file", type=EXISTING_FILE, required=True, help="Its budget.")
def choose_next_round_command(folder: Path, number: int, config_file: Path) -> None:
    """Choose what a host measures next within its budget, from the records of all rounds so far.

    FOLDER is results/HOST/CONFIGURATION, NUMBER that of the choice. Writes the choice into
    rounds/NUMBER.json, and the plan of all rounds. The workflow starts this command.
    """
    from chaosity.campaign.budgeted_plan import plan_of_rounds
    from chaosity.campaign.kept_page_weights import HostPageWeights
    from chaosity.campaign.measured_rounds import RoundsOfHost, write_unmeasured_rows
    from chaosity.design.host_plan import plan_host
    from chaosity.documents.check_config import read_config
    from chaosity.hosts.ansible_inventory import read_inventory
    from chaosity.hosts.host_discovery import read_discovered_host
    from chaosity.rounds.round_types import round_file, rounds_of, write_round_step

    config = read_config(config_file)
    [entry] = read_inventory(config["inventory"], [folder.parent.name])
    host = read_discovered_host(entry, folder.name, config)
    plan = plan_host(host, config, weights=HostPageWeights(folder, recalculate=False))
    choices = RoundsOfHost(plan, folder, config)
    rounds = rounds_of(choices.steps[: number - 1])
    step, text = choices.choose_step(rounds)
    click.echo(text, err=True)
    own = plan_of_rounds(plan, folder, [*rounds, *step.rounds])
    own.write_plan(folder, points=True)
    write_unmeasured_rows(own, folder)
    write_round_step(round_file(folder, number), step)
