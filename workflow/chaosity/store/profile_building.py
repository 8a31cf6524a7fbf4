"""Fills the profile database from results: a profile of each host in each configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from chaosity import __version__
from chaosity.errors import UserError
from chaosity.records import VALID
from chaosity.store.profile_database import (
    COMPONENT_COLUMNS,
    LOCAL,
    MEASUREMENT_COLUMNS,
    PROFILE_COLUMNS,
    Parts,
    frame,
    insert,
    open_database,
    remove,
)
from chaosity.store.result_folders import TABLE
from chaosity.store.tidy_table import read_table


@dataclass(frozen=True)
class Collected:
    """What collecting did, as names of host and configuration."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    unchanged: tuple[str, ...]
    older: tuple[str, ...]


def collect(results: Iterable[Path], database: Path) -> Collected:
    """Put every host and configuration below some folders into the database.

    A profile that is there already is replaced by a newer run of the same host and configuration;
    an older one changes nothing.

    Args:
        results: folders of results, of a host, or of a configuration.
        database: the file; is made when missing.

    Raises:
        UserError: a folder has no table below it, or a table is none.
    """
    done: dict[str, list[str]] = {"added": [], "replaced": [], "unchanged": [], "older": []}
    found = [table for folder in results for table in _tables(folder)]
    parts = [part for part in map(profile_of, found) if part is not None]
    with open_database(database, write=True) as connection:
        for part in parts:
            profile = part.profiles.iloc[0]
            known = connection.execute(
                "SELECT fingerprint, measured_to FROM profiles WHERE id = ?", [profile["id"]]
            ).fetchone()
            if known is None:
                what = "added"
            elif known[0] == profile["fingerprint"]:
                what = "unchanged"
            else:
                what = "older" if known[1] > profile["measured_to"] else "replaced"
            done[what].append(f"{profile['host']} {profile['configuration']}")
            if what in ("added", "replaced"):
                remove(connection, [profile["id"]])
                insert(connection, part)
    return Collected(**{name: tuple(listed) for name, listed in done.items()})


def _tables(folder: Path) -> list[Path]:
    """The tidy tables of a folder: its own, or those of hosts or configurations below it."""
    for pattern in (TABLE, f"*/{TABLE}", f"*/*/{TABLE}"):
        if found := sorted(folder.glob(pattern)):
            return found
    raise UserError(f"has no {TABLE} below it", str(folder), "name the folder of results")


def profile_of(path: Path) -> Parts | None:
    """The profile that a tidy table and what lies beside it make; None without a valid value.

    Raises:
        UserError: the table is none, or of several hosts.
    """
    table = read_table(path)
    # A profile holds what was measured: no derived metric, and no optional one without a value.
    unmeasured = (table["status"] == VALID) & table["value"].isna()
    table = table[table["reference"].isna() & ~unmeasured]
    places = table[["host", "configuration"]].drop_duplicates()
    if len(places) > 1:
        raise UserError("is of several hosts or configurations", str(path))
    if table.empty or not (table["status"] == VALID).any():
        return None
    host, configuration = (str(name) for name in places.iloc[0])
    folder = path.parent
    topology = _json(folder / "topology.json")
    documents = {file.stem: _json(file) for file in folder.glob("components/[!.]*.json")}
    identity = hashlib.sha256(f"{host}\0{configuration}".encode()).hexdigest()[:12]
    profile = _profile(host, configuration, topology, documents.get("system", {}), table)
    components = [_component(identity, name, one) for name, one in sorted(documents.items())
                  if one.get("component") in ("drive", "gpu")]  # fmt: skip
    content = [table.to_csv(index=False), json.dumps([profile, components], sort_keys=True)]
    fingerprint = hashlib.sha256("\0".join(content).encode()).hexdigest()
    profile |= {"id": identity, "fingerprint": fingerprint}
    return Parts(
        profiles=frame([profile], PROFILE_COLUMNS),
        components=frame(components, COMPONENT_COLUMNS),
        measurements=table.assign(profile=identity)[list(MEASUREMENT_COLUMNS)],
    )


def _profile(
    host: str,
    configuration: str,
    topology: Mapping[str, Any],
    system: Mapping[str, Any],
    table: pd.DataFrame,
) -> dict[str, Any]:
    """What a host is, in columns; null where nobody wrote it down."""
    facts = {**(topology.get("host") or {}), **system}
    firmware = facts.get("firmware") or {}
    said = [firmware.get("bios_vendor"), firmware.get("bios_version")]
    if facts.get("microcode"):
        said.append(f"microcode {facts['microcode']}")
    nodes = topology.get("nodes") or []
    sizes = [node.get("present_bytes") or node.get("memory_bytes") or 0 for node in nodes]
    times = table["measured_at"].dropna().astype(str)
    return {
        "origin": LOCAL,
        "host": host,
        "configuration": configuration,
        "cpu_model": facts.get("cpu_model"),
        **{name: topology.get(name) for name in ("packages", "cores", "pus")},
        "nodes": len(nodes) or None,
        "memory_bytes": sum(sizes) or None,
        "memory": memory_words(facts.get("memory_modules") or []),
        "kernel": facts.get("kernel_release"),
        "firmware": " ".join(word for word in said if word) or None,
        "measured_from": times.min() if len(times) else None,
        "measured_to": times.max() if len(times) else "",
        "chaosity_version": __version__,
        "topology": json.dumps(topology, sort_keys=True),
        "provenance": json.dumps({"origin": LOCAL}),
    }


def memory_words(modules: Iterable[Mapping[str, Any]]) -> str | None:
    """Memory modules by kind: "16 x 32 GB DDR4 3200 MT/s"; None when nobody knows."""
    kinds: dict[str, int] = {}
    for module in modules:
        told = (module.get(key) for key in ("size", "type", "configured_speed"))
        if words := " ".join(str(word) for word in told if word):
            kinds[words] = kinds.get(words, 0) + 1
    return ", ".join(f"{number} x {words}" for words, number in kinds.items()) or None


def _component(profile: str, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: document.get(key) for key in COMPONENT_COLUMNS if key not in ("profile", "kind")}
    size = document.get("size_bytes") or document.get("memory_bytes")
    told = {"profile": profile, "component": name, "kind": document["component"]}
    return {**kept, **told, "size_bytes": size}


def _json(path: Path) -> dict[str, Any]:
    """A document beside the table; nothing when it is missing or a person broke it."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}
