"""``chaosity profile``: what all hosts were found to do, in one database, and bundles of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from chaosity.errors import UserError
from chaosity.store.node_matrix import BANDWIDTH
from chaosity.store.profile_building import collect
from chaosity.store.profile_bundles import import_bundle
from chaosity.store.profile_bundles import publish as publish_bundle
from chaosity.store.profile_database import IMPORTED, find_profiles
from chaosity.units import binary_bytes, count, quantity

FILE = click.Path(dir_okay=False, path_type=Path)
_DATABASE = click.option("--database", default="profiles.duckdb", show_default=True, type=FILE)


def _asked(command: Callable[..., None]) -> Callable[..., None]:
    """The options that choose profiles."""
    for name, words in (
        ("drive", "Model of a drive, or a part of it."),
        ("configuration", "Such as nps4."),
        ("cpu", "Model of the processor, or a part of it."),
        ("host", "Name of the host."),
        ("id", "Of the profile, or its beginning."),
    ):
        command = click.option(f"--{name}", name, help=words)(command)
    return command


@click.group()
def profile() -> None:
    """Keep what all hosts were found to do in one database, and share it."""


@profile.command("collect")
@click.argument("results", nargs=-1, required=True,
                type=click.Path(exists=True, file_okay=False, path_type=Path))  # fmt: skip
@_DATABASE
def collect_command(results: tuple[Path, ...], database: Path) -> None:
    """Put all hosts and configurations below RESULTS into the database.

    A newer run of a host and configuration replaces the older one; collecting twice changes
    nothing.
    """
    done = collect(results, database)
    said = {
        "new": done.added,
        "replaced by a newer run": done.replaced,
        "unchanged": done.unchanged,
        "older than what is there, left out": done.older,
    }
    for words, names in said.items():
        if names:
            click.echo(f"{words}: {', '.join(names)}")
    click.echo(f"{database} has {count(len(find_profiles(database)), 'profile')}")


@profile.command("publish")
@click.argument("bundle", type=FILE)
@_DATABASE
@_asked
@click.option("--with-names", is_flag=True,
              help="Leave names of hosts, serials and slots of drives in it.")  # fmt: skip
@click.option("--contact", help="Whom to ask; public as it stands.")
@click.option("--licence", help="Under which others may use it; public as it stands.")
def publish_command(
    bundle: Path,
    database: Path,
    with_names: bool,
    contact: str | None,
    licence: str | None,
    **asked: str | None,
) -> None:
    """Write the profiles that were measured here into a BUNDLE for others.

    Without names of hosts, serials, addresses, paths, command lines and reasons of failures.
    """
    manifest = publish_bundle(
        database, bundle, with_names=with_names, contact=contact, licence=licence, **asked
    )
    names = "with names of hosts and serials" if with_names else "without names"
    click.echo(f"{bundle}: {count(manifest['profiles'], 'profile')}, "
               f"{count(manifest['measurements'], 'row')}, {names}")  # fmt: skip


@profile.command("import")
@click.argument("bundle", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_DATABASE
def import_command(bundle: Path, database: Path) -> None:
    """Put the profiles of others' BUNDLE into the database."""
    new = import_bundle(bundle, database)
    said = f"{count(new, 'profile')} imported" if new else "it was imported before"
    click.echo(f"{bundle}: {said}; {database} has "
               f"{count(len(find_profiles(database)), 'profile')}")  # fmt: skip


@profile.command("query")
@_DATABASE
@_asked
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all that was measured.")
def query_command(database: Path, as_json: bool, **asked: str | None) -> None:
    """List profiles: all of them, or those of a processor, configuration, drive or host.

    To compare one, name it behind the database: chaosity compare profiles.duckdb#id=ID ...
    """
    found = find_profiles(database, **asked)
    if as_json:
        click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return
    if not found:
        given = ", ".join(f"{name} {value}" for name, value in asked.items() if value)
        raise UserError(f"has no profile of {given}" if given else "is empty", str(database))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("id", no_wrap=True)
    for column in ("host", "processor", "memory", "drives", "measured"):
        table.add_column(column, overflow="fold")
    rates = _rates(found)
    for category in rates:
        name = category.removesuffix("_bandwidth").replace("_", " ")
        table.add_column(f"best {name}", justify="right", overflow="fold")
    for one in found:
        table.add_row(*map(escape, _cells(one, rates)))
    Console(highlight=False).print(table)


def _rates(found: Sequence[dict[str, Any]]) -> list[str]:
    """Categories of which a bandwidth was measured; of times the highest says nothing."""
    rows = [row for one in found for row in one["measured"]]
    return sorted({row["category"] for row in rows if row["metric"] == BANDWIDTH})


def _cells(one: dict[str, Any], rates: Sequence[str]) -> list[str]:
    drives = ", ".join(f"{number} x {model}" for model, number in one["drives"].items())
    packages = f"{one['packages']} x " if one["packages"] else ""
    best = {row["category"]: quantity(row["metric"], row["highest"])
            for row in one["measured"] if row["metric"] == BANDWIDTH}  # fmt: skip
    imported = "(imported)" if one["origin"] == IMPORTED else None
    return [
        one["id"],
        " ".join(filter(None, (one["host"], one["configuration"], imported))),
        f"{packages}{_model(one['cpu_model'] or 'unknown')}",
        one["memory"] or binary_bytes(one["memory_bytes"]),
        drives or "none",
        (one["measured_to"] or "unknown")[:10],
        *(best.get(category, "-") for category in rates),
    ]


def _model(name: str) -> str:
    """A processor's name without trademark signs, number of cores and clock."""
    return re.sub(r"\((R|TM)\)| @ .*|( \d+-Core)? Processor$| CPU\b", "", name)
