"""The forms for what others published, each on a file as it was published."""

from __future__ import annotations

import json

import pytest

from chaosity.errors import UserError
from chaosity.store.read_published_csv import parse_number_with_si_prefix, read_published_csv
from shipped_data import PUBLISHED_TABLES


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
