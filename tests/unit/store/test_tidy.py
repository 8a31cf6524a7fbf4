"""Records to rows: values, failures, gaps and broken files are told apart."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from chaosity.errors import UserError
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.store.tidy_table_parquet import COLUMN_TYPES, read_parquet_table, write_parquet_table
from records_by_hand import RATE, load, point, record, write_point, write_record


@pytest.fixture
def folder(tmp_path):
    """A plan of one point with three replicates."""
    write_point(tmp_path, point())
    return tmp_path


def rows_of(folder, found=None, column="replicate"):
    """The rows of the point's replicates, of which the first one has a record."""
    if found is not None:
        write_record(folder, found)
    return build_tidy_table(folder / "points", folder).set_index(column)


def test_a_valid_record_gives_its_value_and_what_the_kernel_and_the_clock_showed(folder):
    seen = load(clock={"hertz": 3.1e9, "source": "APERF and MPERF"})
    by_node = {"0": 1_000_000, "1": 990_000_000, "3": 500_000_000}  # the first are stray pages
    seen["placement_seen"] = {"threads": [], "memory_bytes_by_node": by_node}
    write_record(folder, record(point(), 2), run=2)
    rows = rows_of(folder, record(point(), loads=[seen]))
    assert rows["status"].tolist() == ["valid", "valid", "missing"]
    assert rows.loc[1, "value"] == 500.0  # 1000 bytes in 2 s
    assert (rows.loc[1, "relation"], rows.loc[1, "seen_nodes"]) == ("same_package", "1,3")
    assert json.loads(rows.loc[1, "factors"]) == {"a": 1}
    assert (rows.loc[1, "clock_hertz"], pd.isna(rows.loc[2, "clock_hertz"])) == (3.1e9, True)
    assert rows["value"].isna().tolist() == [False, False, True]


def test_an_older_record_gives_its_values_under_the_present_names(folder):
    source = {"progress": True, "at_most": None, "formerly": RATE}
    added = {"event": "done", "key": "added", "formerly": None}
    metrics = {"read_bytes_per_second": source, "added_ns": added}
    write_point(folder, point(replicates=1, loads=[load(metrics=metrics)]))
    rows = rows_of(folder, record(point()), "metric")
    assert rows.loc["read_bytes_per_second", "value"] == 500.0
    assert pd.isna(rows.loc["added_ns", "value"])
    assert "older" in rows.loc["added_ns", "reason"]
    assert list(rows["status"]) == ["valid", "valid"]


FAILED = {"status": "failed", "reason": "measured: no", "checks": []}


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (record(point(), verdict=FAILED), "failed", "measured: no"),
        ("", "failed", "is not a complete record"),
        ("{", "failed", "is not a complete record"),
        ('{"schema_version": 1}', "failed", "it has no verdict"),
        (record(point(definition="d0")), "missing", ""),
        (record(point(), loads=[load(outputs={"stdout": "rubbish"})]), "failed", ""),
        *(
            (record(point()) | broken, "failed", "is not a complete record")
            for broken in (
                {"loads": None},
                {"verdict": {"status": "valid"}},
                {"point": {}},
                {"finished_at": None, "loads": 3},
            )
        ),
    ],
)
def test_what_is_no_valid_record_has_no_value(folder, found, status, reason):
    row = rows_of(folder, found).loc[1]
    assert (row["status"], pd.isna(row["value"])) == (status, True)
    assert reason in row["reason"]


def test_a_table_written_as_parquet_is_read_back(folder, tmp_path):
    write_record(folder, record(point()))
    write_record(folder, record(point(), 2, verdict=FAILED), run=2)
    written = build_tidy_table(folder / "points", folder)
    path = tmp_path / "table.parquet"
    write_parquet_table(written, path)
    pd.testing.assert_frame_equal(read_parquet_table(path), written)
    assert list(written.columns) == list(COLUMN_TYPES)


def test_a_file_that_is_not_parquet_is_reported(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_text("no")
    with pytest.raises(UserError, match="is not a measurements table"):
        read_parquet_table(path)


def test_a_table_of_an_earlier_version_is_read_with_null_columns(folder, tmp_path):
    write_record(folder, record(point()))
    path = tmp_path / "table.parquet"
    former = {
        name: kind for name, kind in COLUMN_TYPES.items() if name not in ("levels", "distance")
    }
    write_parquet_table(build_tidy_table(folder / "points", folder)[list(former)], path, former)
    found = read_parquet_table(path)
    assert list(found.columns) == list(COLUMN_TYPES)
    assert found["levels"].isna().all()


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "{}", '{"experiment": "e", "point": "other"}',
     '{"experiment": "e", "point": "p"}', '{"experiment": "e", "point": "p", "orders": 3}'],
)  # fmt: skip
def test_a_file_that_is_no_point_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "points" / "e" / "p.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(UserError, match=r"points/e/p"):
        build_tidy_table(tmp_path / "points", tmp_path)
