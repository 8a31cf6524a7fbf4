"""``chaosity profile``: the results of all hosts in one database, and bundles to share them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from chaosity.cli.shared import (
    EXISTING_FILE,
    EXISTING_FOLDER,
    FILE,
    JSON_OPTION,
    RESULTS_FOLDER,
    echo,
    is_option_typed,
    print_json,
    print_table,
    short_processor_name,
)
from chaosity.errors import UserError
from chaosity.units import format_binary_bytes, format_count, format_quantity

_DATABASE_OPTION = click.option(
    "--database",
    default="profiles.duckdb",
    show_default=True,
    type=FILE,
    help="DuckDB file of the profiles.",
)


def _with_filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the click command with added options that select profiles."""
    for name, text in (
        ("drive", "Select profiles of hosts with a drive whose model contains TEXT."),
        ("configuration", "Select profiles of this configuration, such as nps4."),
        ("cpu", "Select profiles of hosts whose processor model contains TEXT."),
        ("host", "Select profiles of this host."),
        ("id", "Select the profile whose id begins with TEXT."),
    ):
        command = click.option(f"--{name}", name, help=text)(command)
    return command


@click.group("profile")
def profile_command() -> None:
    """Keep the results of all hosts in one database, and share them.

    A profile is the result of a host in one configuration. Results of simulated hosts are refused.

    Example: chaosity profile collect results
    """


@profile_command.command("collect")
@click.argument("results", nargs=-1, required=True, type=EXISTING_FOLDER)
@_DATABASE_OPTION
def collect_profiles_command(results: tuple[Path, ...], database: Path) -> None:
    """Put all hosts and configurations of the folders RESULTS into the database.

    A newer run replaces an older run of the same host and configuration. A run that the database
    already has changes nothing.
    """
    from chaosity.store.profile_database import update_profiles_from_results

    collected = update_profiles_from_results(results, database)
    texts = {
        "added": "new",
        "replaced": "replaced by a newer run",
        "unchanged": "unchanged",
        "older": "skipped, since the database has a newer run",
    }
    for action, hosts in collected.items():
        if hosts:
            echo(f"{texts[action]}: {', '.join(hosts)}")
    echo(_size_text(database))


@profile_command.command("publish")
@click.argument("bundle", type=FILE)
@_DATABASE_OPTION
@_with_filter_options
@click.option("--with-names", is_flag=True, help="Keep host names, and drives' serials and slots.")
@click.option("--contact", help="Contact for questions, published as typed.")
@click.option("--licence", help="Licence of the data, published as typed.")
def publish_profiles_command(
    bundle: Path, database: Path, with_names: bool, **texts_and_filters: str | None
) -> None:
    """Write the profiles that were measured here into the file BUNDLE for others.

    A bundle has no host names, serials, addresses, paths, command lines or reasons of failures.
    """
    from chaosity.store.profile_bundles import publish_bundle

    manifest = publish_bundle(database, bundle, with_names=with_names, **texts_and_filters)
    profiles = format_count(manifest["profiles"], "profile")
    rows = format_count(manifest["measurements"], "row")
    names = "with host names and serials" if with_names else "without names"
    echo(f"{bundle}: {profiles}, {rows}, {names}")


@profile_command.command("import")
@click.argument("bundle", type=EXISTING_FILE)
@_DATABASE_OPTION
def import_profiles_command(bundle: Path, database: Path) -> None:
    """Put the profiles of a BUNDLE from others into the database."""
    from chaosity.store.profile_bundles import import_bundle

    number = import_bundle(bundle, database)
    result = f"{format_count(number, 'profile')} imported" if number else "already imported"
    echo(f"{bundle}: {result}; {_size_text(database)}")


@profile_command.command("query")
@_DATABASE_OPTION
@_with_filter_options
@JSON_OPTION
def query_profiles_command(database: Path, as_json: bool, **filters: str | None) -> None:
    """List all profiles, or the profiles of a processor, configuration, drive or host.

    To compare a profile, select it by its id: chaosity compare profiles.duckdb#id=ID ...
    """
    from chaosity.store.csv_tables import BANDWIDTH
    from chaosity.store.profile_database import find_profiles

    profiles = find_profiles(database, **filters)
    if as_json:
        print_json(profiles)
        return
    if not profiles:
        given = ", ".join(f"{name} {value}" for name, value in filters.items() if value)
        problem = f"the database has no profile of {given}" if given else "the database is empty"
        raise UserError(problem, str(database))
    # The table has only bandwidths, since its columns have highest values, and the highest latency
    # is not the best.
    best = [
        {row["category"]: row for row in each["measured"] if row["metric"] == BANDWIDTH}
        for each in profiles
    ]
    categories = sorted({category for rows in best for category in rows})
    heads = [f"best {name.replace('_bandwidth', '').replace('_', ' ')}" for name in categories]
    rows = [
        [
            *_facts_of_profile(profile),
            *(_highest_values(of_profile.get(name)) for name in categories),
        ]
        for profile, of_profile in zip(profiles, best, strict=True)
    ]
    facts = ["id", "host", "processor", "memory", "drives", "measured"]
    print_table(rows, facts + heads, on_right=heads, whole=["id"])


def _facts_of_profile(profile: dict[str, Any]) -> list[str]:
    """Return id, host, processor, memory, drives and date of a profile as text."""
    host = [profile["host"], profile["configuration"]]
    packages = f"{profile['packages']} x " if profile["packages"] else ""
    drives = [f"{number} x {model}" for model, number in profile["drives"].items()]
    return [
        profile["id"],
        " ".join(filter(None, [*host, "(imported)" * (profile["origin"] == "imported")])),
        packages + short_processor_name(profile["cpu_model"]),
        profile["memory"] or format_binary_bytes(profile["memory_bytes"]),
        ", ".join(drives) or "none",
        (profile["measured_to"] or "unknown")[:10],
    ]


def _highest_values(row: dict[str, Any] | None) -> str:
    return format_quantity(row["metric"], row["highest"]) if row else "-"


@profile_command.command("normal")
@click.argument("folder", type=RESULTS_FOLDER)
@_DATABASE_OPTION
@JSON_OPTION
def compare_with_normal_values_command(folder: Path, database: Path, as_json: bool) -> None:
    """Say whether the memory of a host is as fast as is normal for its processor.

    FOLDER is results/HOST/CONFIGURATION. The command compares the host with published values of the
    processor (templates/processors) and, if the database exists, with other hosts in the database.
    """
    from chaosity.components import processor_model
    from chaosity.result_folders import existing_tidy_table
    from chaosity.store.measurements import Measurements
    from chaosity.store.values_normal_for_processor import (
        compare_with_other_profiles,
        compare_with_published_values,
    )
    from chaosity.text_templates import text_of_macro
    from chaosity.topology.topology_model import read_topology

    folder = folder.resolve()
    model = processor_model(folder)
    if model is None:
        raise UserError("the processor model is unknown", str(folder), "discover the host again")
    measured = Measurements.read(existing_tidy_table(folder))
    found = compare_with_published_values(
        [measured], model, read_topology(folder / "topology.json")
    )
    if database.exists() or is_option_typed("database"):
        found += compare_with_other_profiles(
            measured, model, folder.name, folder.parent.name, database
        )
    if as_json:
        print_json(
            [{**vars(each), "loss": each.loss, "clear": each.is_clearly_worse} for each in found]
        )
        return
    for each in found:
        echo(text_of_macro("overview", "normal", each=each, hosts=0))
    if not found:
        echo(f"no normal values are known for {model} in {folder.name}")


def _size_text(database: Path) -> str:
    """Return a sentence that says how many profiles are in the database."""
    from chaosity.store.profile_database import find_profiles

    return f"{database} has {format_count(len(find_profiles(database)), 'profile')}"
