"""The profile database, and the commands on it."""

from __future__ import annotations

import shutil

import duckdb
import pandas as pd
import pytest
from profile_results import machine, write_results

from chaosity.errors import UserError
from chaosity.store.profile_database import (
    find_profiles,
    open_database,
    read_profile_measurements,
    read_profile_tables,
    update_profiles_from_results,
)
from chaosity.store.tidy_table_parquet import (
    connect_isolated,
    read_parquet_table,
    write_parquet_table,
)


def test_profiles_hold_no_derived_metrics_and_no_missing_values(results, tmp_path):
    folder = shutil.copytree(results / "epyc1/nps4", tmp_path / "r/epyc1/nps4")
    path = folder / "measurements.parquet"
    table = read_parquet_table(path)
    some = table[table["status"] == "valid"].head(5)
    more = [some.assign(metric="speedup", reference=False), some.assign(value=pd.NA, metric="n")]
    whole = pd.concat([table, *more], ignore_index=True).astype(table.dtypes)
    write_parquet_table(whole, path)
    update_profiles_from_results([tmp_path / "r"], tmp_path / "p.duckdb")
    [found] = find_profiles(tmp_path / "p.duckdb")
    kept = read_profile_measurements(tmp_path / "p.duckdb", found["id"])
    assert len(kept) == len(table)
    assert set(kept["metric"]) == set(table["metric"])


def test_a_newer_run_replaces_a_profile_and_an_older_run_does_not(results, database, tmp_path):
    newer = machine(seed=9, day="2026-12-01")
    write_results(tmp_path / "later", newer)
    assert update_profiles_from_results([tmp_path / "later"], database)["replaced"] == [
        "epyc1 nps4"
    ]
    assert len(find_profiles(database)) == 3
    [found] = find_profiles(database, host="epyc1", configuration="nps4")
    assert found["measured_to"].startswith("2026-12-01")
    assert len(read_profile_measurements(database, found["id"])) == len(newer.tidy())
    assert update_profiles_from_results([results], database)["older"] == ["epyc1 nps4"]
    [found] = find_profiles(database, host="epyc1", configuration="nps4")
    assert found["measured_to"].startswith("2026-12-01")


def test_one_configuration_can_be_collected_and_an_empty_folder_is_an_error(results, tmp_path):
    own, all_of_host = results / "epyc1/nps4", results / "epyc1"
    assert update_profiles_from_results([own], tmp_path / "a.duckdb")["added"] == ["epyc1 nps4"]
    both = ["epyc1 nps1", "epyc1 nps4"]
    assert update_profiles_from_results([all_of_host], tmp_path / "b.duckdb")["added"] == both
    with pytest.raises(UserError, match=r"has no measurements.parquet"):
        update_profiles_from_results([results / "epyc1/nps4/components"], tmp_path / "c.duckdb")


def test_a_file_that_is_not_a_database_is_refused(tmp_path):
    other = tmp_path / "other.duckdb"
    other.write_text("hello, this is a text")
    with pytest.raises(UserError, match="is not a DuckDB database"):
        find_profiles(other)
    with pytest.raises(UserError, match=r"the database does not exist; run chaosity"):
        find_profiles(tmp_path / "none.duckdb")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE about SET schema_version = 9",
        "DELETE FROM about",
        "DROP TABLE about",
        "DROP TABLE profiles",
        # Nothing in a database of others is executed.
        "DROP TABLE profiles; CREATE VIEW profiles AS SELECT * FROM read_csv('/etc/passwd')",
        "CREATE MACRO median(x) AS (SELECT content FROM read_text('/etc/passwd'))",
        "CREATE VIEW other AS SELECT 1",
        "CREATE TABLE t (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1))",
    ],
)
def test_a_database_of_another_kind_is_refused(tmp_path, statement):
    is_newer = "= 9" in statement
    words = r"newer chaosity wrote this file \(schema 9; supported: 1\)"
    path = tmp_path / "p.duckdb"
    with open_database(path, write=True):
        pass
    assert find_profiles(path, drive="x' OR '1'='1", host="'; DROP TABLE profiles; --") == []
    with duckdb.connect(str(path)) as connection:
        connection.execute(statement)
    with pytest.raises(UserError, match=words if is_newer else "not a profile database"):
        find_profiles(path)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO 'HERE/out.csv'",
        "ATTACH 'HERE/other.db'",
        "LOAD httpfs",
        "SET enable_external_access = true",
    ],
)
def test_sql_in_a_database_reaches_no_file_and_no_extension(database, tmp_path, statement):
    with connect_isolated(database) as connection, pytest.raises(duckdb.Error):
        connection.execute(statement.replace("HERE", str(tmp_path))).fetchall()
    assert list(tmp_path.iterdir()) == [database]


def test_a_damaged_database_is_an_error(database):
    whole = database.read_bytes()
    refused = 0
    for at in range(4096, len(whole), len(whole) // 12):
        database.write_bytes(whole[:at] + b"\xff" * 64 + whole[at + 64 :])
        try:
            for profile in find_profiles(database):
                read_profile_tables(database, [profile["id"]])
        except UserError as error:
            assert str(error).isprintable()
            refused += 1
    assert refused > 1


def test_a_table_with_values_of_other_types_is_an_error(tmp_path):
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        query = "SELECT 'often' AS replicate, 'fast' AS value, 'yes' AS reference"
        connection.sql(query).write_parquet(str(path))
    with pytest.raises(UserError, match="not a measurements table") as error:
        read_parquet_table(path)
    assert str(error.value).isprintable()
