"""Measurements that others published go through the same table, by the form of their file."""

from __future__ import annotations

import json
import re

import pytest

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import PUBLISHED
from chaosity.errors import UserError
from chaosity.store.read_csv_published_elsewhere import (
    parse_number_with_si_prefix,
    read_published_csv,
)
from shipped_data import PUBLISHED_TABLES

HEAD = "mode,rank,core,cpu_node,mem_node,size_MB,latency_ns\n"
ROW = "serial,0,0,0,0,1,20\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEAD}{ROW}serial,0,0,0,0,1,fast\n", "row 3: 'fast' is not a number"),
        (f"{HEAD}{ROW}serial,0,0,0,0,1,-3\n", "row 3: -3 is not a measurement"),
        (f"{HEAD}{ROW}serial,0,0,0,0,1,inf\n", "inf is not a measurement; values must be above 0"),
        (f"{HEAD}{ROW}serial,0,0,0,0,1,\n", "row 3"),
        (f"{HEAD}serial,0,0,0,0,{'x' * 100_000},20\n", "is not a number"),
        (HEAD, r"sweep\.csv: the file has no row of values"),
        ("mode,core\nserial,1\n", "'mem_node' is undefined"),
        ("", r"sweep\.csv: the file has no row of values"),
        (f"{HEAD}{ROW}\nserial,0,0,0,0,1,20,9\n", "row 4: the row has 8 cells, but the first row"),
    ],
)
def test_a_file_that_is_not_of_the_form_is_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "sweep.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        read_published_csv(path, "numa_bench", "theirs")
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@pytest.mark.parametrize("count", ["1.5", "1e+19"])
def test_a_count_that_is_not_whole_or_too_large_is_reported_with_its_row(tmp_path, count):
    path = tmp_path / "runs.csv"
    head = "policy,cpu_nodes,mem_nodes,slurm_job,triad_best_MBps"
    path.write_text(f"{head}\ninterleave,0,0,{count},9\n")
    with pytest.raises(
        UserError, match=rf"row 2: '{re.escape(count)}' is not a whole number below"
    ):
        read_published_csv(path, "stream_placement", "theirs")


def test_a_form_with_an_unknown_column_is_an_error(tmp_path, monkeypatch):
    form = read_yaml(PUBLISHED / "numa_bench.yaml")
    form["columns"]["mode"] = "{{ mode }}"
    (tmp_path / "numa_bench.yaml").write_text(json.dumps(form))
    monkeypatch.setattr("chaosity.store.read_csv_published_elsewhere.PUBLISHED", tmp_path)
    with pytest.raises(UserError, match="the tidy table has no column 'mode'"):
        read_published_csv(tmp_path / "x.csv", "numa_bench", "theirs")


@pytest.mark.parametrize("number", ["9" * 5000, "1e999 + (latency_ns | float)"])
def test_a_number_of_a_form_with_too_many_digits_is_reported(tmp_path, monkeypatch, number):
    form = read_yaml(PUBLISHED / "numa_bench.yaml")
    (tmp_path / "numa_bench.yaml").write_text(json.dumps(form | {"value": f"{{{{ {number} }}}}"}))
    monkeypatch.setattr("chaosity.store.read_csv_published_elsewhere.PUBLISHED", tmp_path)
    (tmp_path / "sweep.csv").write_text(HEAD + ROW)
    with pytest.raises(UserError, match="cannot be filled in"):
        read_published_csv(tmp_path / "sweep.csv", "numa_bench", "theirs")


@pytest.mark.parametrize(
    ("name", "form", "first"),
    [
        ("nes_penguin_stream_triad_5gb_8t.csv", "stream_matrix", 16837.9e6),
        ("mlc_hyrise_koroneia_bandwidth_MBps.csv", "bandwidth_matrix", 139828.1e6),
        ("mlc_vsc_genius_skylake_bandwidth_MBps.csv", "mlc_bandwidth_matrix", None),
        ("mlc_vsc_genius_cascadelake_idle_latency_ns.csv", "latency_matrix", 80.8),
    ],
)
def test_a_matrix_becomes_rows_with_initiator_and_target(name, form, first):
    table = read_published_csv(PUBLISHED_TABLES / name, form, "theirs")
    nodes = table["initiator"].nunique()
    assert len(table) == nodes * nodes == table["point"].nunique()
    if first is not None:
        assert table["value"].iloc[0] == pytest.approx(first)
    assert set(table.loc[table["initiator"] == table["target"], "relation"]) == {"same_node"}
    assert set(table["label"]) == {"published by others"}


def test_repeated_rows_of_a_matrix_are_replicates(tmp_path):
    file = tmp_path / "twice_ns.csv"
    file.write_text("node,0,1\n0,80,130\n1,131,81\n0,82,-\n1,129,83\n")
    table = read_published_csv(file, "latency_matrix", "theirs")
    assert len(table) == 7
    own = table[(table["initiator"] == "node0") & (table["target"] == "node0")]
    assert list(own["replicate"]) == [1, 2] and list(own["value"]) == [80.0, 82.0]
    assert own["point"].nunique() == 1


def test_a_unit_can_be_given_where_the_file_has_none(tmp_path):
    file = tmp_path / "matrix.csv"
    file.write_text("node,0,1\n0,30,10\n1,10,30\n")
    table = read_published_csv(file, "bandwidth_matrix", "theirs", "GiB/s")
    assert table["value"].iloc[0] == 30 * 2**30
    with pytest.raises(UserError, match="has a unit of its own"):
        read_published_csv(file, "fio_numa", "theirs", "GiB/s")


def test_a_column_has_numbers_or_texts(tmp_path):
    file = tmp_path / "sweep.csv"
    head = "mode;rank;core;cpu_node;mem_node;size_MB;latency_ns\n"
    file.write_text(f"{head}a;0;0;0;0; 1.5 ;20\n\n;;1;0;0;64;2e1\n7;0;2;0;0;.5;20\n")
    table = read_published_csv(file, "numa_bench", "theirs")
    levels = [json.loads(text) for text in table["levels"]]
    assert [each["bytes"] for each in levels] == ["1572864.0", "67108864.0", "524288.0"]
    assert [each["mode"] for each in levels] == ["a", "", 7]
    assert list(table["value"]) == [20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("189M", 189e6),
        ("47.2K", 47200.0),
        (12, 12.0),
        ("1.5 G", 1.5e9),
        ("M", "M"),
        ("1.2.3", "1.2.3"),
        ("9X", "9X"),
    ],
)
def test_numbers_with_a_prefix(text, value):
    assert parse_number_with_si_prefix(text) == value
