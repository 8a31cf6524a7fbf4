"""``chaosity simulate``: all records of simulated hosts at once, or their true values."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import click

from chaosity.cli.shared_options import CONFIG_OPTION, FILE
from chaosity.errors import UserError


@click.command("simulate")
@CONFIG_OPTION
@click.option("--inventory", help="Inventory to use instead of the config's inventory.")
@click.option("--results", help="Folder of the records, instead of the config's folder.")
@click.option("--truth", type=FILE, help="Write the true values, without noise, to this CSV file.")
def write_simulated_records_command(
    config_file: Path, inventory: str | None, results: str | None, truth: Path | None
) -> None:
    """Write the records of all points of simulated hosts.

    `snakemake` makes the same records, one process for each. This command takes milliseconds for a
    record, so all records of a large server exist within a minute. Records that exist are kept.
    `snakemake` with the same inventory and results then makes tables, figures and reports.
    """
    from chaosity.campaign.hosts_and_plans_of_run import Campaign
    from chaosity.checked_yaml_files import ROOT, read_config
    from chaosity.records.atomic_writes_and_record_files import write_atomically
    from chaosity.simulation.simulated_records import TRUTH_COLUMNS, simulate_host, true_value_rows

    given = {"inventory": inventory, "results": results}
    config = {**read_config(config_file), **{key: value for key, value in given.items() if value}}
    campaign = Campaign(config, root=ROOT)
    for name, host in campaign.hosts.items():
        if not host.is_simulated:
            remedy = "measure it with snakemake, or list only simulated hosts in `hosts`"
            raise UserError("is not simulated", f"host {name}", remedy)
    campaign.lock_results_and_write_points()
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(TRUTH_COLUMNS)
    for name, plan in campaign.plans.items():
        folder = campaign.configuration_folder(name)
        written = simulate_host(folder, plan.points)
        click.echo(f"{name}: {written} records written, SIMULATED")
        rows.writerows(true_value_rows(folder, plan.points) if truth else [])
    if truth:
        write_atomically(truth, text.getvalue())
