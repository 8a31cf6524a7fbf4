"""Records to rows: values, failures, gaps and broken files are told apart."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from chaosity.errors import UserError
from chaosity.store.tidy_table_from_records import build_tidy_table
from chaosity.store.tidy_table_parquet import COLUMNS, read_parquet_table, write_parquet_table
from published_schemas import schema_errors


def load(name="memory", amount=1000.0):
    line = {"event": "sample", "begin": 0, "end": 2, "amount": amount}
    return {
        "name": name,
        "benchmark": "b",
        "category": "c",
        "kernel": "triad",
        "label": "variant of STREAM",
        "initiator": {"name": "node0", "kind": "node", "nodes": [0], "cpus": "0-1", "threads": 2},
        "target": {
            "name": "node1",
            "kind": "node",
            "nodes": [1],
            "drives": [],
            "relation": "same_package",
        },
        "metrics": {"bandwidth_bytes_per_second": {"progress": True, "at_most": None}},
        "progress": {"event": "sample", "begin": "begin", "end": "end", "amount": "amount"},
        "outputs": {"stdout": json.dumps(line), "stderr": ""},
        "command": ["x"],
        "program": {},
        "exit_status": 0,
        "signalled": None,
        "placement_seen": None,
    }


def point(replicates=3):
    return {
        "host": "h",
        "configuration": "nps1",
        "experiment": "e",
        "point": "memory=node0+node1+triad",
        "definition": "d1",
        "orders": list(range(replicates)),
        "factors": {"a": 1},
        "loads": [load()],
    }


def record(replicate=1, status="valid", reason=None, definition="d1"):
    return {
        "schema_version": 1,
        "point": {**point(), "definition": definition},
        "replicate": replicate,
        "order": replicate - 1,
        "stopping": {},
        "measured_on": "h",
        "began_at": "2026-01-01T00:00:00.000Z",
        "finished_at": "2026-01-01T00:00:02.000Z",
        "environment_before": {"realtime_minus_monotonic_seconds": 0.0},
        "loads": [load()],
        "verdict": {"status": status, "reason": reason, "checks": []},
    }


@pytest.fixture
def folder(tmp_path):
    """A plan of one point with three replicates, and where its records go."""
    (tmp_path / "points/e").mkdir(parents=True)
    (tmp_path / "points/e/memory=node0+node1+triad.json").write_text(json.dumps(point()))
    (tmp_path / "e/memory=node0+node1+triad").mkdir(parents=True)
    return tmp_path


def put(folder, replicate, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / f"e/memory=node0+node1+triad/rep{replicate}.json").write_text(text)


def table(folder):
    return build_tidy_table(folder / "points", folder).set_index("replicate")


def test_a_valid_record_gives_its_value(folder):
    put(folder, 1, record())
    rows = table(folder)
    assert rows.loc[1, "status"] == "valid"
    assert rows.loc[1, "value"] == 500.0  # 1000 bytes in 2 s
    assert rows.loc[1, "relation"] == "same_package"
    assert json.loads(rows.loc[1, "factors"]) == {"a": 1}


def test_an_older_record_gives_its_values_under_the_present_names(folder):
    planned = point(1)
    source = planned["loads"][0]["metrics"].pop("bandwidth_bytes_per_second")
    planned["loads"][0]["metrics"] = {
        "read_bytes_per_second": {**source, "formerly": "bandwidth_bytes_per_second"},
        "added_ns": {"event": "done", "key": "added", "formerly": None},
    }
    (folder / "points/e/memory=node0+node1+triad.json").write_text(json.dumps(planned))
    put(folder, 1, record())
    rows = build_tidy_table(folder / "points", folder).set_index("metric")
    assert rows.loc["read_bytes_per_second", "value"] == 500.0
    assert pd.isna(rows.loc["added_ns", "value"])
    assert "older" in rows.loc["added_ns", "reason"]
    assert list(rows["status"]) == ["valid", "valid"]


def test_an_unmeasured_point_is_missing_and_not_failed(folder):
    rows = table(folder)
    assert list(rows["status"]) == ["missing"] * 3
    assert rows["value"].isna().all()


def test_a_failed_record_keeps_its_reason_and_has_no_value(folder):
    put(folder, 2, record(2, "failed", "measured: no"))
    rows = table(folder)
    assert rows.loc[2, "reason"] == "measured: no"
    assert pd.isna(rows.loc[2, "value"])


@pytest.mark.parametrize("text", ["", "{", '{"schema_version": 1}'])
def test_a_truncated_record_is_failed(folder, text):
    put(folder, 1, text)
    assert table(folder).loc[1, "status"] == "failed"


def test_a_record_of_another_definition_does_not_count(folder):
    put(folder, 1, record(definition="d0"))
    assert table(folder).loc[1, "status"] == "missing"


def test_a_record_with_unreadable_output_is_failed(folder):
    broken = record()
    broken["loads"][0]["outputs"]["stdout"] = "rubbish"
    put(folder, 1, broken)
    assert table(folder).loc[1, "status"] == "failed"


def test_a_table_written_as_parquet_is_read_back(folder, tmp_path):
    put(folder, 1, record())
    put(folder, 2, record(2, "failed", "no"))
    written = build_tidy_table(folder / "points", folder)
    path = tmp_path / "table.parquet"
    write_parquet_table(written, path)
    pd.testing.assert_frame_equal(read_parquet_table(path), written)
    assert list(written.columns) == list(COLUMNS)


def test_an_empty_table_is_a_table(tmp_path):
    path = tmp_path / "table.parquet"
    write_parquet_table(build_tidy_table(tmp_path, tmp_path), path)
    assert len(read_parquet_table(path)) == 0


def test_a_file_that_is_not_parquet_is_reported(tmp_path):
    path = tmp_path / "table.parquet"
    path.write_text("no")
    with pytest.raises(UserError, match="is not a measurements table"):
        read_parquet_table(path)


def test_the_records_of_these_tests_fit_the_schema():
    assert schema_errors(record(), "record") == []


def test_a_table_of_an_earlier_version_is_read_with_null_columns(folder, tmp_path):
    put(folder, 1, record())
    path = tmp_path / "table.parquet"
    former = {name: kind for name, kind in COLUMNS.items() if name not in ("levels", "distance")}
    write_parquet_table(build_tidy_table(folder / "points", folder)[list(former)], path, former)
    found = read_parquet_table(path)
    assert list(found.columns) == list(COLUMNS)
    assert found["levels"].isna().all()


def test_a_load_has_its_role_and_levels_in_columns(folder):
    planned = point(1)
    names = ("chase-pu0", "chase-pu8")
    planned["loads"] = [
        {**load(name), "role": "chase", "levels": {"bytes": 4096, "pages": "thp"}} for name in names
    ]
    (folder / "points/e/memory=node0+node1+triad.json").write_text(json.dumps(planned))
    rows = build_tidy_table(folder / "points", folder)
    assert rows["load"].tolist() == ["chase", "chase"]
    assert json.loads(rows["levels"].iloc[0]) == {"bytes": 4096, "pages": "thp"}
    assert json.loads(rows["factors"].iloc[0]) == {"a": 1, "bytes": 4096, "pages": "thp"}


def test_seen_nodes_exclude_stray_pages(folder):
    seen = record()
    by_node = {"0": 1_000_000, "1": 990_000_000, "3": 500_000_000}
    seen["loads"][0]["placement_seen"] = {"threads": [], "memory_bytes_by_node": by_node}
    put(folder, 1, seen)
    assert build_tidy_table(folder / "points", folder)["seen_nodes"].iloc[0] == "1,3"


def test_the_clock_is_a_column_of_every_row_and_older_records_have_none(folder):
    newer, older = record(), record()
    newer["loads"][0]["clock"] = {"hertz": 3.1e9, "source": "APERF and MPERF"}
    put(folder, 1, newer)
    put(folder, 2, older)
    rows = build_tidy_table(folder / "points", folder).set_index("replicate")
    assert rows.loc[[1], "clock_hertz"].eq(3.1e9).all()
    assert rows.loc[[2], "clock_hertz"].isna().all()


@pytest.mark.parametrize(
    "broken",
    [
        {"loads": None},
        {"verdict": {"status": "valid"}},
        {"point": {}},
        {"finished_at": None, "loads": 3},
    ],
)
def test_a_record_of_another_form_is_a_failed_replicate(tmp_path, broken):
    path = tmp_path / "points" / "e" / "p.json"
    path.parent.mkdir(parents=True)
    point = {
        **{"host": "h", "configuration": "c", "experiment": "e", "point": "p", "definition": "d"},
        **{"orders": [0], "factors": {}, "loads": [load()]},
    }
    path.write_text(json.dumps(point))
    record = tmp_path / "e" / "p" / "rep1.json"
    record.parent.mkdir(parents=True)
    whole = {
        **{"schema_version": 1, "point": point, "replicate": 1, "order": 0, "loads": [load()]},
        **{"finished_at": "2026", "verdict": {"status": "valid", "reason": None, "checks": []}},
    }
    record.write_text(json.dumps({**whole, **broken}))
    [row] = build_tidy_table(tmp_path / "points", tmp_path).to_dict("records")
    assert row["status"] == "failed" and "is not a complete record" in row["reason"]


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
