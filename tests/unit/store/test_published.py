"""Measurements that others published go through the same table."""

from __future__ import annotations

import json
import re

import pytest

from chaosity.checked_yaml_files import PUBLISHED, read_yaml
from chaosity.errors import UserError
from chaosity.store.read_published_csv import read_published_csv
from chaosity.store.tidy_table_parquet import COLUMNS

HEAD = "mode,rank,core,cpu_node,mem_node,size_MB,latency_ns\n"
ROWS = [
    f"{mode},{core},{core},{node},{node},{size},{latency}"
    for mode, factor in (("serial", 1.0), ("concurrent", 1.5))
    for core, node in ((0, 0), (8, 0))
    for size, latency in ((1, 10.0), (1024, 100.0 * (factor if core == 0 else 1.0)))
]


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "sweep.csv"
    path.write_text(HEAD + "\n".join(ROWS) + "\n")
    return path


def test_a_row_becomes_a_row_of_the_tidy_table(sweep):
    table = read_published_csv(sweep, "numa_bench", "theirs")
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == len(ROWS)
    last = table.iloc[-1]
    assert (last["host"], last["initiator"], last["target"]) == ("theirs", "pu8", "node0")
    assert json.loads(last["factors"]) == {"bytes": 2**30, "mode": "concurrent", "pages": "unknown"}
    assert (last["metric"], last["value"]) == ("latency_ns", 100.0)
    assert "published" in last["label"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("serial,0,0,0,0,1,fast", "row 3: 'fast' is not a number"),
        ("serial,0,0,0,0,1,-3", "row 3: -3 is not a measurement"),
        ("serial,0,0,0,0,1,inf", "row 3: inf is not a measurement; values must be above 0 and fin"),
        ("serial,0,0,0,0,1,", "row 3"),
    ],
)
def test_a_value_that_is_not_a_measurement_is_reported_with_its_row(sweep, line, words):
    sweep.write_text(f"{HEAD}{ROWS[0]}\n{line}\n")
    with pytest.raises(UserError, match=words):
        read_published_csv(sweep, "numa_bench", "theirs")


def test_a_file_without_values_is_reported(sweep):
    sweep.write_text(HEAD)
    with pytest.raises(UserError, match=r"sweep\.csv: the file has no row of values"):
        read_published_csv(sweep, "numa_bench", "theirs")


@pytest.mark.parametrize("count", ["1.5", "1e+19"])
def test_a_count_that_is_not_whole_or_too_large_is_reported_with_its_row(tmp_path, count):
    path = tmp_path / "runs.csv"
    head = "policy,cpu_nodes,mem_nodes,slurm_job,triad_best_MBps"
    path.write_text(f"{head}\ninterleave,0,0,{count},9\n")
    with pytest.raises(
        UserError, match=rf"row 2: '{re.escape(count)}' is not a whole number below"
    ):
        read_published_csv(path, "stream_placement", "theirs")


def test_a_missing_column_is_named(sweep):
    sweep.write_text("mode,core\nserial,1\n")
    with pytest.raises(UserError, match="'mem_node' is undefined"):
        read_published_csv(sweep, "numa_bench", "theirs")


def test_the_error_of_a_row_with_too_many_cells_is_one_line(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(UserError, match="not a CSV file") as error:
        read_published_csv(path, "numa_bench", "theirs")
    assert str(error.value).isprintable()


def test_a_form_with_an_unknown_column_is_an_error(tmp_path, monkeypatch):
    form = read_yaml(PUBLISHED / "numa_bench.yaml")
    form["columns"]["mode"] = "{{ mode }}"
    (tmp_path / "numa_bench.yaml").write_text(json.dumps(form))
    monkeypatch.setattr("chaosity.store.read_published_csv.PUBLISHED", tmp_path)
    with pytest.raises(UserError, match="the tidy table has no column 'mode'"):
        read_published_csv(tmp_path / "x.csv", "numa_bench", "theirs")


def test_a_text_in_a_column_of_numbers_is_not_repeated(tmp_path):
    path = tmp_path / "x.csv"
    head = "mode,rank,core,cpu_node,mem_node,size_MB,latency_ns\n"
    path.write_text(head + f"serial,0,0,0,0,{'x' * 100_000},20\n")
    with pytest.raises(UserError, match="is not a number"):
        read_published_csv(path, "numa_bench", "theirs")


@pytest.mark.parametrize("number", ["9" * 5000, "1e999 + (latency_ns | float)"])
def test_a_number_of_a_form_with_too_many_digits_is_reported(sweep, tmp_path, monkeypatch, number):
    form = read_yaml(PUBLISHED / "numa_bench.yaml")
    (tmp_path / "numa_bench.yaml").write_text(json.dumps(form | {"value": f"{{{{ {number} }}}}"}))
    monkeypatch.setattr("chaosity.store.read_published_csv.PUBLISHED", tmp_path)
    with pytest.raises(UserError, match="cannot be filled in"):
        read_published_csv(sweep, "numa_bench", "theirs")
