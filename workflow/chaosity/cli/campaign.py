"""The commands for steps of a run: ``chaosity plan``, ``discover``, ``measure``, ``tidy``, ..."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaosity.cli.shared import (
    CONFIG_OPTION,
    EXISTING_FILE,
    EXISTING_FOLDER,
    FILE,
    JSON_OPTION,
    echo,
    print_json,
    print_line,
    print_table,
    refuse_options_without_effect,
)
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.records.record_files import read_regular_file, save_record, write_atomically
from chaosity.records.record_format import SIMULATED, VALID, Point, Record
from chaosity.units import format_duration

if TYPE_CHECKING:
    from chaosity.design.host_plan import PlanSummary


# Kind of YAML document -> (module of `chaosity.documents`, name of the type that checks documents
# of this kind).
TYPES = {
    "benchmark": ("benchmarks", "BenchmarkDocument"),
    "config": ("config", "Config"),
    "counters": ("reference_data", "CounterEventsDocument"),
    "experiment": ("experiments", "ExperimentDocument"),
    "host": ("inventory", "HostVariables"),
    "processors": ("reference_data", "ProcessorsDocument"),
    "published": ("reference_data", "PublishedForm"),
    "simulated_machine": ("machines", "MachineFile"),
}


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
@click.option("--budget", help="Also show the first round with a budget such as 30m or 2h.")
@JSON_OPTION
@click.option(
    "--list", "as_list", is_flag=True, help="Print the names of all points, one per line."
)
@click.option("--commands", is_flag=True, help="Print shell commands that run all points.")
def plan_command(
    source: str,
    experiments: tuple[str, ...],
    config_file: Path,
    budget: str | None,
    as_json: bool,
    as_list: bool,
    commands: bool,
) -> None:
    """Show what would be measured on a host, and for how long. Nothing is measured.

    For the hosts of an inventory, use `snakemake -n` with the same options as for the run.

    Example: chaosity plan --budget 30m
    """
    from chaosity.campaign.measured_page_weights import MeasuredPageWeights
    from chaosity.design.host_plan import PlannedHost, plan_host
    from chaosity.documents.config import check_config, read_config
    from chaosity.rounds.budget import has_budget_or_precision
    from chaosity.topology.topology_discovery import discover_topology
    from chaosity.topology.topology_model import configuration_name

    if as_json:
        refuse_options_without_effect("with --json", "as_list", "commands", "budget")
    elif as_list:
        refuse_options_without_effect("with --list", "commands", "budget")
    elif commands:
        refuse_options_without_effect("with --commands", "budget")
    config = read_config(config_file)
    if budget:
        config = check_config({**config, "budget": budget}, "--budget")
    topology = discover_topology(source)
    name = "localhost" if source == "live" else Path(source).name.split(".")[0]
    host = PlannedHost(name, configuration_name(topology), topology)
    folder = Path(config["results"]) / host.name / host.configuration
    weights = MeasuredPageWeights(folder)
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
        if has_budget_or_precision(config):
            from chaosity.campaign.measured_rounds import RoundChooser

            echo(RoundChooser(host_plan, folder, config, writes=False).choose_first()[1])


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
    """Yield shell lines that write the files of a point's loads, and run the loads' commands."""
    yield f"# {point['experiment']}/{point['point']}"
    for load in point["loads"]:
        for name, text in load["files"].items():
            yield f"cat > {name} <<'END'\n{text.rstrip()}\nEND"
        settings = [f"{name}={value}" for name, value in load["environment"].items()]
        yield shlex.join([*settings, *load["command"]])


@click.command("discover")
@click.argument("host")
@click.argument("configuration")
@CONFIG_OPTION
def discover_host_command(host: str, configuration: str, config_file: Path) -> None:
    """Discover a HOST of the config's inventory that was booted into CONFIGURATION.

    The command writes topology and components into results/HOST/CONFIGURATION. The workflow boots
    the host, and then starts this command.

    Example: chaosity discover paper_server nps4
    --config results/demo/paper_server/run_config.yaml
    """
    from chaosity.campaign.host_in_mode import discover_in_mode
    from chaosity.documents.config import read_config

    discover_in_mode(read_config(config_file), host, configuration)


@click.command("next-round")
@click.argument("folder", type=EXISTING_FOLDER)
@click.argument("number", type=click.IntRange(min=1))
@click.option("--config", "config_file", type=EXISTING_FILE, required=True, help="Its budget.")
def choose_next_round_command(folder: Path, number: int, config_file: Path) -> None:
    """Choose what a host measures next within its budget, from the records of all rounds so far.

    FOLDER is results/HOST/CONFIGURATION, and NUMBER is the number of this choice. The command
    writes the choice into rounds/NUMBER.json, and the plan of all rounds. The workflow starts this
    command.

    Example: chaosity next-round results/demo/paper_server/nps4 1
    --config results/demo/paper_server/run_config.yaml
    """
    from chaosity.campaign.measured_page_weights import MeasuredPageWeights
    from chaosity.campaign.measured_rounds import RoundChooser, write_unmeasured_rows
    from chaosity.design.host_plan import plan_host
    from chaosity.documents.config import read_config
    from chaosity.hosts.ansible_inventory import read_inventory
    from chaosity.hosts.host_discovery import read_discovered_host
    from chaosity.rounds.budget import (
        plan_of_rounds,
        round_file,
        rounds_of_choices,
        write_round_choice,
    )

    config = read_config(config_file)
    [entry] = read_inventory(config["inventory"], [folder.parent.name])
    host = read_discovered_host(entry, folder.name, config)
    plan = plan_host(host, config, weights=MeasuredPageWeights(folder, recalculate=False))
    chooser = RoundChooser(plan, folder, config)
    rounds = rounds_of_choices(chooser.choices[: number - 1])
    choice, text = chooser.choose_next(rounds)
    click.echo(text, err=True)
    own = plan_of_rounds(plan, folder, [*rounds, *choice.rounds])
    own.write_plan(folder, points=True)
    write_unmeasured_rows(own, folder)
    write_round_choice(round_file(folder, number), choice)


@click.command("simulate")
@CONFIG_OPTION
@click.option("--inventory", help="Inventory to use instead of the config's inventory.")
@click.option("--results", help="Folder of the records, instead of the config's folder.")
@click.option("--truth", type=FILE, help="Write the true values, without noise, to this CSV file.")
def write_simulated_records_command(
    config_file: Path, inventory: str | None, results: str | None, truth: Path | None
) -> None:
    """Write the records of all points of simulated hosts, in each of the config's configurations.

    `snakemake` makes the same records, with one process for each record. This command takes
    milliseconds for a record, so it writes all records of a large server within a minute. Existing
    records are kept. All points get a record; only `snakemake` obeys the `budget` of the config.
    Then, `snakemake` with the same inventory and results makes tables, figures and reports.

    Example: chaosity simulate --inventory inventories/demo --results results/demo
    """
    from chaosity.campaign.campaign import Campaign
    from chaosity.campaign.host_in_mode import discover_in_mode
    from chaosity.documents.config import read_config
    from chaosity.documents.shipped_documents import ROOT
    from chaosity.simulation.simulated_records import TRUTH_COLUMNS, simulate_host, true_value_rows

    given = {"inventory": inventory, "results": results}
    replaced = {key: value for key, value in given.items() if value}
    config = {**read_config(config_file), **replaced}
    if config["budget"]:
        echo(f"all points are simulated; the budget of {config['budget']} is not used")
    config |= {"budget": None, "precision": None, "known_from": []}
    campaign = Campaign(config, root=ROOT)
    for mode in campaign.modes.values():
        if not mode.is_simulated:
            remedy = "measure it with snakemake, or list only simulated hosts in `hosts`"
            raise UserError("the host is not simulated", f"host {mode.host}", remedy)
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(TRUTH_COLUMNS)
    campaign.lock_results_and_write_points()
    for mode in campaign.modes.values():
        if not mode.has_plan:
            discover_in_mode(campaign.config, mode.host, mode.configuration)
            campaign.plan_discovered(mode)
        written = simulate_host(mode.folder, mode.plan.points)
        echo(f"{mode.host} {mode.configuration}: {written} records written, SIMULATED")
        rows.writerows(true_value_rows(mode.folder, mode.plan.points) if truth else [])
    campaign.unlock_results()
    if truth:
        write_atomically(truth, text.getvalue())


@click.command("schema")
@click.argument("kind", type=click.Choice(sorted(TYPES)))
def schema_command(kind: str) -> None:
    """Print the JSON schema of a kind of YAML document: each key, its type and its meaning.

    Editors with support for YAML use the schema to complete and check keys. The schema of the kind
    host describes those variables of a host in the inventory that begin with chaosity_.

    Example: chaosity schema benchmark
    """
    from importlib import import_module

    from chaosity.documents.checked_yaml import json_schema

    module, name = TYPES[kind]
    document_type = getattr(import_module(f"chaosity.documents.{module}"), name)
    click.echo(json.dumps(json_schema(document_type), indent=2))


@click.command("measure")
@click.argument("point", type=EXISTING_FILE)
@click.option("--replicate", default=1, show_default=True, help="Number of the replicate, from 1.")
@click.option(
    "--record",
    type=FILE,
    help="File for the record. Default: print the record as JSON, write no file.",
)
def measure_point_command(point: Path, replicate: int, record: Path | None) -> None:
    """Measure one POINT, and print its checks and values.

    POINT is a file of results/HOST/CONFIGURATION/points. Checks and values go to the standard
    error, so that the standard output is the record alone. The exit status is 1 if the measurement
    failed.

    Example: chaosity measure
    results/localhost/nps1/points/memory_bandwidth/memory=node0+node0+triad.json
    """
    with malformed_as_user_error("the file is not a point of a plan", str(point)):
        document = json.loads(read_regular_file(point))
        replicates = len(document["orders"])
    if _is_simulated(point):
        raise UserError(
            "the point belongs to a simulated host", str(point), "run chaosity simulate"
        )
    from chaosity.runner.point_measurement import measure_point

    if not 1 <= replicate <= replicates:
        raise UserError(f"replicate {replicate} is unknown", str(point), f"use 1 to {replicates}")
    # The key "relative" may be missing, since only points with derived metrics have it.
    if missing := Point.__annotations__.keys() - {"relative", *document}:
        remedy = "name a file of results/HOST/CONFIGURATION/points"
        raise UserError(f"the point has no key {min(missing)!r}", str(point), remedy)
    measured = measure_point(document, replicate)
    if record is None:
        echo(json.dumps(measured, indent=1, sort_keys=True))
    else:
        save_record(measured, record)
    for check in measured["verdict"]["checks"]:
        mark = {True: "ok  ", False: "FAIL" if check["decisive"] else "note", None: "?   "}
        echo(f"{mark[check['passed']]} {check['name']}: {check['detail']}", err=True)
    for line in _lines_of_measured_values(document, measured):
        echo(line, err=True)
    where = record or "only on the standard output; --record FILE writes it to a file"
    echo(f"record of replicate {replicate} of {replicates}: {where}", err=True)
    if measured["verdict"]["status"] != VALID:
        echo(f"chaosity: {point}: failed: {measured['verdict']['reason']}", err=True)
        sys.exit(1)


def _lines_of_measured_values(point: Point, record: Record) -> Iterator[str]:
    """Yield a line for each value of a valid record: load, place, metric and value."""
    from chaosity.store.tidy_table_from_records import (
        status_and_values_of_record,
        tidy_rows_of_outcome,
    )
    from chaosity.units import format_quantity, metric_in_words

    outcome = status_and_values_of_record(record)
    if outcome.status != VALID:
        return
    for row in tidy_rows_of_outcome(point, record["replicate"], outcome):
        value, metric = row["value"], row["metric"]
        shown = row["reason"] if value is None else format_quantity(metric, value)
        place = f"{row['load']}, {row['initiator']} -> {row['target']}"
        yield f"{place}: {metric_in_words(metric)}: {shown}"


def _is_simulated(point: Path) -> bool:
    """Return whether ``host.json`` in a folder above a point's file is that of a simulated host."""
    for folder in point.absolute().parents:
        if (host := folder / "host.json").exists():
            with malformed_as_user_error("the file is not a description of a host", str(host)):
                transport = json.loads(read_regular_file(host)).get("transport", {})
                return bool(transport.get("kind") == SIMULATED)
    return False


@click.command("tidy")
@click.argument("plan", type=EXISTING_FILE)
@click.option(
    "--output",
    type=FILE,
    required=True,
    help="File of the tidy table: Parquet, or CSV if its name ends in .csv.",
)
@click.option(
    "--history",
    type=FILE,
    help="Parquet or CSV file for values from before a change of a component. Default: no file.",
)
def make_tidy_table_command(plan: Path, output: Path, history: Path | None) -> None:
    """Make the tidy table of a PLAN (plan.json) from the points and records in its folder.

    Example: chaosity tidy results/demo/paper_server/nps4/plan.json --output values.csv
    """
    from chaosity.store.csv_tables import csv_text
    from chaosity.store.tidy_table_from_records import (
        HISTORY_COLUMNS,
        build_tidy_table,
        note_on_records_without_digest,
        split_measurements_at_component_changes,
    )
    from chaosity.store.tidy_table_parquet import COLUMN_TYPES, write_parquet_table

    with malformed_as_user_error("the file is not the plan.json of a host", str(plan)):
        json.loads(read_regular_file(plan))["experiments"]
    folder = plan.parent
    table = build_tidy_table(folder / "points", folder)
    tables = [(table, output, COLUMN_TYPES)]
    if history is not None:
        earlier = split_measurements_at_component_changes(
            folder / "points", folder, folder / "components"
        )
        tables.append((earlier, history, HISTORY_COLUMNS))
    for rows, path, columns in tables:
        if path.suffix == ".csv":
            write_atomically(path, csv_text(rows))
        else:
            write_parquet_table(rows, path, columns)
    counts = table.drop_duplicates(["experiment", "point", "replicate"])["status"].value_counts()
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    echo(f"{len(table)} rows of {listed} measurements in {output}", err=True)
    if note := note_on_records_without_digest(folder):
        echo(f"chaosity: {note}", err=True)
