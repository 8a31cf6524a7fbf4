"""Results of measured hosts, and the rows of their profile database, for tests."""

from __future__ import annotations

import json

import duckdb
from report_inputs import system_document

from chaosity.store.profile_database import PROFILE_TABLES
from chaosity.store.tidy_table_parquet import write_parquet_table
from machines import measured_host


def machine(host="epyc1", **keys):
    names = ("memory_bandwidth", "storage_bandwidth")
    return measured_host("fleet", *names, **{"host": host, "seed": 5, "replicates": 2, **keys})


def write_results(folder, found, *, table=None, system=None, topology=None, components=None):
    place = folder / found.host / found.configuration
    (place / "components").mkdir(parents=True, exist_ok=True)
    write_parquet_table(found.tidy() if table is None else table, place / "measurements.parquet")
    documents = found.components() if components is None else components
    documents = {**documents, "system": system or system_document(found.configuration)}
    for name, document in documents.items():
        (place / f"components/{name}.json").write_text(json.dumps(document))
    (place / "topology.json").write_text(json.dumps(topology or found.topology()))
    return place


def rows_of(path):
    with duckdb.connect(str(path), read_only=True) as connection:
        return {
            name: connection.execute(f"FROM {name} ORDER BY ALL").df() for name in PROFILE_TABLES
        }
