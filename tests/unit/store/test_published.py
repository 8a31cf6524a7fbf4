"""Measurements that others published go through the same table."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
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
        ("serial,0,0,0,0,1,-3", "row 3: '-3"),
        ("serial,0,0,0,0,1,", "row 3"),
    ],
)
def test_a_value_that_is_not_a_measurement_is_reported_with_its_row(sweep, line, words):
    sweep.write_text(f"{HEAD}{ROWS[0]}\n{line}\n")
    with pytest.raises(UserError, match=words):
        read_published_csv(sweep, "numa_bench", "theirs")


def test_a_missing_column_is_named(sweep):
    sweep.write_text("mode,core\nserial,1\n")
    with pytest.raises(UserError, match="'mem_node' is undefined"):
        read_published_csv(sweep, "numa_bench", "theirs")


def test_the_figures_of_its_experiment_are_drawn(sweep, tmp_path):
    given = ["published", str(sweep), "--form", "numa_bench", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(chaosity, given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "Concurrent takes 1.22 times as long as serial at 1 GiB." in done.output
    slow = "slower than others of its node (1.50 times as long; 1.00 when serial): PU 0"
    assert slow in done.output
    assert (tmp_path / "out/figures/latency_by_size.svg").exists()
