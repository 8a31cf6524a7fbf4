"""Databases of others hold tables; nothing in them is executed."""

from __future__ import annotations

import duckdb
import pytest

from chaosity.errors import UserError
from chaosity.store.profile_database import find_profiles, open_database
from chaosity.store.tidy_table_parquet import connect_isolated


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "p.duckdb"
    with open_database(path, write=True):
        pass
    return path


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE measurements;"
        " CREATE VIEW measurements AS SELECT * FROM read_csv('/etc/passwd')",
        "CREATE MACRO median(x) AS (SELECT content FROM read_text('/etc/passwd'))",
        "CREATE VIEW other AS SELECT 1",
        "ALTER TABLE profiles ADD COLUMN x INTEGER; CREATE TABLE t (a INTEGER,"
        " b INTEGER GENERATED ALWAYS AS (a + 1))",
    ],
    ids=["view as table", "macro", "view", "generated column"],
)
def test_a_database_with_code_of_others_is_refused(database, statement):
    with duckdb.connect(str(database)) as connection:
        connection.execute(statement)
    with pytest.raises(UserError, match="not a profile database"):
        find_profiles(database)


def test_sql_in_a_database_of_others_reaches_no_file_and_no_extension(database, tmp_path):
    for statement in (
        "SELECT * FROM read_text('/etc/passwd')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.db'",
        "LOAD httpfs",
        "SET enable_external_access = true",
    ):
        with connect_isolated(database) as connection, pytest.raises(duckdb.Error):
            connection.execute(statement).fetchall()
    assert list(tmp_path.iterdir()) == [database]


def test_a_hostile_serial_of_a_drive_is_data_in_a_query(database):
    assert find_profiles(database, drive="x' OR '1'='1", host="'; DROP TABLE profiles; --") == []
    assert find_profiles(database) == []
