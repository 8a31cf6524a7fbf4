"""Fill the profile database from results, with a profile of each host in each configuration."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from chaosity import __version__
from chaosity.errors import MALFORMED, UserError
from chaosity.records.atomic_writes_and_record_files import read_regular_file
from chaosity.records.record_types_and_verdict import VALID
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.store.measurements import Measurements
from chaosity.store.profile_database import (
    COMPONENT_COLUMNS,
    LOCAL,
    MEASUREMENT_COLUMNS,
    PROFILE_COLUMNS,
    PROFILE_KEYS,
    ProfileTables,
    insert_rows,
    open_database,
)
from chaosity.store.tidy_table_parquet import Row, read_parquet_table, rows_to_table
from chaosity.topology.host_fact_types import HostFacts, MemoryModuleSlot
from chaosity.topology.topology_json import topology_from_json
from chaosity.topology.topology_model import Topology


def update_profiles_from_results(results: Iterable[Path], database: Path) -> dict[str, list[str]]:
    """Put the results of every host and configuration in `results` into the database.

    A newer run replaces the profile of its host and configuration; an older run changes nothing.

    Args:
        results: folders of all hosts, of one host, or of one configuration.
        database: path of the file, which is created if it is missing.

    Returns:
        What happened (`added`, `replaced`, `unchanged`, or `older` than the run in the database) ->
            hosts with their configurations.

    Raises:
        UserError: a folder has no measurements table, or a file is not such a table.
    """
    done: dict[str, list[str]] = {"added": [], "replaced": [], "unchanged": [], "older": []}
    paths = [path for folder in results for path in _measurement_files(folder)]
    built = [tables for tables in map(_build_profile, paths) if tables is not None]
    with open_database(database, write=True) as connection:
        for tables in built:
            profile = tables["profiles"].iloc[0]
            known = connection.execute(
                "SELECT fingerprint, measured_to FROM profiles WHERE id = ?", [profile["id"]]
            ).fetchone()
            if known is None:
                action = "added"
            elif known[0] == profile["fingerprint"]:
                action = "unchanged"
            else:
                action = "older" if known[1] > profile["measured_to"] else "replaced"
            done[action].append(f"{profile['host']} {profile['configuration']}")
            if action in ("added", "replaced"):
                for name, key in PROFILE_KEYS.items():
                    connection.execute(f"DELETE FROM {name} WHERE {key} = ?", [profile["id"]])
                    insert_rows(connection, name, tables[name])
    return done


def _measurement_files(folder: Path) -> list[Path]:
    """Return the tidy tables in a folder, or else in its folders of hosts or configurations."""
    for pattern in (MEASUREMENTS_FILE, f"*/{MEASUREMENTS_FILE}", f"*/*/{MEASUREMENTS_FILE}"):
        if found := sorted(folder.glob(pattern)):
            return found
    remedy = "give the folder of results or a folder in it"
    raise UserError(f"the folder has no {MEASUREMENTS_FILE}", str(folder), remedy)


def _build_profile(path: Path) -> ProfileTables | None:
    """Return the profile in the folder of a tidy table, or None when nothing was measured."""
    table = read_parquet_table(path)
    # A profile holds measured values: no derived metric, and no optional metric without a value.
    unmeasured = (table["status"] == VALID) & table["value"].isna()
    table = table[table["reference"].isna() & ~unmeasured]
    owners = table[["host", "configuration"]].drop_duplicates()
    if len(owners) > 1:
        raise UserError("the table has several hosts or configurations", str(path))
    if Measurements(table).is_simulated:
        remedy = "a profile database has only measured values"
        raise UserError("the table is of a simulated host", str(path), remedy)
    if table.empty or not (table["status"] == VALID).any():
        return None
    host, configuration = (str(name) for name in owners.iloc[0])
    folder = path.parent
    documents = {file.stem: _read_json(file) for file in folder.glob("components/[!.]*.json")}
    identity = hashlib.sha256(f"{host}\0{configuration}".encode()).hexdigest()[:12]
    times = table["measured_at"].dropna().astype(str)
    profile: Row = {
        "host": host,
        "configuration": configuration,
        **_host_columns(_read_json(folder / "topology.json"), documents.get("system", {})),
        "origin": LOCAL,
        "measured_from": min(times, default=None),
        "measured_to": max(times, default=""),
        "chaosity_version": __version__,
        "provenance": json.dumps({"origin": LOCAL}),
    }
    components = [
        {
            **{key: document.get(key) for key in COMPONENT_COLUMNS},
            "profile": identity,
            "component": name,
            "kind": document["component"],
            "size_bytes": document.get("size_bytes") or document.get("memory_bytes"),
        }
        for name, document in sorted(documents.items())
        if document.get("component") in ("drive", "gpu")
    ]
    content = [table.to_csv(index=False), json.dumps([profile, components], sort_keys=True)]
    fingerprint = hashlib.sha256("\0".join(content).encode()).hexdigest()
    profile |= {"id": identity, "fingerprint": fingerprint}
    return {
        "profiles": rows_to_table([profile], PROFILE_COLUMNS),
        "components": rows_to_table(components, COMPONENT_COLUMNS),
        "measurements": table.assign(profile=identity)[list(MEASUREMENT_COLUMNS)],
    }


def _host_columns(document: Row, system: Row) -> Row:
    """Return the columns that describe a host, from its topology (JSON) and system component."""
    try:
        topology = topology_from_json(document)
    except MALFORMED:
        topology = Topology()
    facts = cast(HostFacts, {**topology.host, **system})
    firmware = facts.get("firmware") or {}
    texts = [firmware.get("bios_vendor"), firmware.get("bios_version")]
    if facts.get("microcode"):
        texts.append(f"microcode {facts['microcode']}")
    return {
        "cpu_model": facts.get("cpu_model"),
        "packages": topology.counts.packages,
        "cores": topology.counts.cores,
        "pus": topology.counts.pus,
        "nodes": len(topology.nodes) or None,
        "memory_bytes": topology.total_memory_bytes,
        "memory": _memory_text(facts.get("memory_modules") or []),
        "kernel": facts.get("kernel_release"),
        "firmware": " ".join(text for text in texts if text) or None,
        "topology": json.dumps(document, sort_keys=True),
    }


def _memory_text(modules: Iterable[MemoryModuleSlot]) -> str | None:
    """Return the memory modules by kind, "16 x 32 GB DDR4 3200 MT/s"; None if unknown."""
    kinds = Counter(
        " ".join(filter(None, (slot.get("size"), slot.get("type"), slot.get("configured_speed"))))
        for slot in modules
    )
    return ", ".join(f"{number} x {kind}" for kind, number in kinds.items() if kind) or None


def _read_json(path: Path) -> Row:
    """Return the JSON document in a file; empty if the file is missing or broken."""
    try:
        return dict(json.loads(read_regular_file(path)))
    except (OSError, *MALFORMED):
        return {}
