"""Measurements that others published go through the same table."""

from __future__ import annotations

import json
import re

import pytest

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import PUBLISHED
from chaosity.errors import UserError
from chaosity.store.read_published_csv import read_published_csv

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
    monkeypatch.setattr("chaosity.store.read_published_csv.PUBLISHED", tmp_path)
    with pytest.raises(UserError, match="the tidy table has no column 'mode'"):
        read_published_csv(tmp_path / "x.csv", "numa_bench", "theirs")


@pytest.mark.parametrize("number", ["9" * 5000, "1e999 + (latency_ns | float)"])
def test_a_number_of_a_form_with_too_many_digits_is_reported(tmp_path, monkeypatch, number):
    form = read_yaml(PUBLISHED / "numa_bench.yaml")
    (tmp_path / "numa_bench.yaml").write_text(json.dumps(form | {"value": f"{{{{ {number} }}}}"}))
    monkeypatch.setattr("chaosity.store.read_published_csv.PUBLISHED", tmp_path)
    (tmp_path / "sweep.csv").write_text(HEAD + ROW)
    with pytest.raises(UserError, match="cannot be filled in"):
        read_published_csv(tmp_path / "sweep.csv", "numa_bench", "theirs")
