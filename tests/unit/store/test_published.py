"""Measurements that others published go through the same table."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.documents.shipped_documents import PUBLISHED, yaml_file_names
from chaosity.documents.yaml_files import read_yaml
from chaosity.errors import UserError
from chaosity.store.read_published_csv import read_published_csv
from chaosity.store.tidy_table_parquet import COLUMNS

FORMS = {form: read_yaml(PUBLISHED / f"{form}.yaml") for form in yaml_file_names(PUBLISHED)}
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


def test_the_figures_of_its_experiment_are_drawn(sweep, tmp_path):
    given = ["published", str(sweep), "--form", "numa_bench", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(chaosity, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (
        "Latency with mode concurrent is 1.22 times the latency with mode serial at 1 GiB."
        in done.output
    )
    slow = "slower than others of its node (1.50 times the latency of the others; "
    slow += "1.00 times with mode serial)"
    assert f"{slow}: PU 0" in done.output
    assert (tmp_path / "out/figures/latency_by_size.svg").exists()


@pytest.mark.parametrize("form", [form for form in FORMS if "matrix" in FORMS[form]])
def test_a_published_matrix_is_drawn_as_a_heat_map_of_all_its_cells(tmp_path, form):
    path = tmp_path / "matrix.csv"
    path.write_text("node,0,1,2\n0,40000,30000,20000\n1,30100,41000,20200\n2,20100,20300,42000\n")
    unit = {"bandwidth": "MB/s", "latency": "ns"}[FORMS[form]["matrix"]]
    given = ["published", path, "--form", form, "--unit", unit, "--output", tmp_path / "out"]
    done = CliRunner().invoke(chaosity, [*map(str, given)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    figures = json.loads((tmp_path / "out/figures/figures.json").read_text())
    drawn = [(each["kind"], each["marks"]) for each in figures if each["svg"]]
    assert drawn[0] == ("heatmap", 9)


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
