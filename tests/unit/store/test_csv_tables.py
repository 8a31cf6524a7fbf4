"""Matrices of nodes and published measurements, read from CSV files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.shipped_documents import PUBLISHED_FOLDER
from chaosity.errors import UserError
from chaosity.store.csv_tables import (
    parse_number_with_si_prefix,
    read_distances_csv,
    read_matrix_csv,
    read_published_csv,
)
from shipped_data import PUBLISHED_TABLES

GOOD = "from,0,1\n0,40,10\n1,20,40\n"


@pytest.fixture
def write(tmp_path):
    def write(text, name="m.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("metric", "name", "unit", "cell", "value", "said"),
    [
        ("bandwidth", "m_MBps.csv", None, "40000", 40e9, "MB/s, by the file name"),
        ("bandwidth", "m_GiBps.csv", None, "40", 40 * 2**30, "GiB/s, by the file name"),
        ("bandwidth", "m_MiBps.csv", None, "40000", 40000 * 2**20, "MiB/s, by the file name"),
        ("bandwidth", "m_Bps.csv", None, "40000000", 40e6, "B/s, by the file name"),
        ("bandwidth", "m.csv", None, "40", 40e9, "GB/s, by the magnitude of the numbers"),
        ("bandwidth", "m.csv", None, "40000", 40e9, "MB/s, by the magnitude of the numbers"),
        ("bandwidth", "m.csv", None, "4e10", 40e9, "B/s, by the magnitude of the numbers"),
        ("bandwidth", "m_MBps.csv", "GB/s", "40", 40e9, "GB/s, as given"),
        # Who says the unit knows better than the name.
        ("bandwidth", "m_ns.csv", "GB/s", "40", 40e9, "GB/s, as given"),
        ("latency", "m.csv", None, "90", 90.0, "ns"),
        ("latency", "m_us.csv", None, "90", 90e3, "by the file name"),
        ("latency", "m.csv", "us", "90", 90e3, "as given"),
    ],
)
def test_the_unit_of_the_values_and_its_origin(write, metric, name, unit, cell, value, said):
    found = read_matrix_csv(write(f"from,0\n0,{cell}\n", name), metric, unit)
    names = {"bandwidth": "bandwidth_bytes_per_second", "latency": "latency_ns"}
    assert (found.metric, found.samples[0, 0]) == (names[metric], pytest.approx((value,)))
    assert said in found.unit


def test_rows_that_repeat_an_initiator_are_replicates(write):
    found = read_matrix_csv(write("from,0,1\n0,40,10\n1,20,40\n0,41,11\n1,21,\n"), "bandwidth")
    assert (found.initiators, found.targets) == ((0, 1), (0, 1))
    assert found.samples[0, 1] == pytest.approx((10e9, 11e9))
    assert found.samples[1, 1] == pytest.approx((40e9,))
    assert found.median_of_cell(0, 0) == pytest.approx(40.5e9)


def test_cells_may_be_missing(write):
    found = read_matrix_csv(write("from,0,1\n0,40,-\n1,,40\n"), "bandwidth")
    assert set(found.samples) == {(0, 0), (1, 1)}
    assert found.median_of_cell(0, 1) is None
    assert found.share_of_measured_cells == 0.5


@pytest.mark.parametrize(
    "text",
    [
        "from;0;1\n0;40;10\n1;20;40\n",
        "from\t0\t1\n0\t40\t10\n1\t20\t40\n",
        "\N{ZERO WIDTH NO-BREAK SPACE}" + GOOD,
        GOOD.replace("\n", "\r\n"),
        "# MLC 3.9\n\n" + GOOD + "\n\n",
        "cpu_node, mem_0 , mem_1\nnode0, 40 , 10\nnode1,20,40",
        '"from","0","1"\n"0","40","10"\n"1","20","40"\n',
    ],
    ids=["semicolons", "tabs", "byte order mark", "CR LF", "comments", "names", "quotes"],
)
def test_delimiters_comments_and_encodings_are_recognised(write, text):
    found = read_matrix_csv(write(text), "bandwidth")
    assert (found.initiators, found.targets) == ((0, 1), (0, 1))
    assert found.samples[0, 1] == pytest.approx((10e9,))
    assert found.samples[1, 0] == pytest.approx((20e9,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "m.csv: the file has no row of values; write a row of column names, then rows"),
        ("from,0,1\n\n# nothing\n", "m.csv: the file has no row of values"),
        ("from\n0\n", "row 1: the first row has no target node"),
        ("from,0,1\n0,40\n", "row 2: the row has 2 cells, but the first row has 3"),
        (
            "from,0,1\n0,40,10\n\n1,20,40,50\n",
            "row 4: the row has 4 cells, but the first row has 3",
        ),
        ("from,0,1\n0,40,fast\n", "row 2, column 1: 'fast' is not a number"),
        ("from,0,mem_1\n0,40,-3\n", "row 2, column mem_1: -3 is not a measurement"),
        ("from,0\n0,0\n", "row 2, column 0: 0 is not a measurement"),
        ("from,0\n0,nan\n", "row 2, column 0: nan is not a measurement"),
        ("from,0\n0,inf\n", "row 2, column 0: inf is not a measurement"),
        (
            "from,0,1,2\n0,40,40,40000\n",
            "row 2, column 2: 40000 GB/s is above the bandwidth of any memory bus",
        ),
        ("from,0,1\n0,40,1e-9\n", "below the bandwidth of any memory"),
        ("from,0,node0\n0,40,10\n", "row 1: target node 0 has two columns"),
        ("from,0,total\n0,40,10\n", "row 1: column 'total' is not a node"),
        ("from,0,1\nsum,40,10\n", "row 2: 'sum' in the first column is not a node"),
        ("from,0,1\n0,-,\n", "m.csv: no cell has a value"),
        (b"from,0\n0,\xff\n", "m.csv: the file is not a CSV file"),
        ("from 0 1\n0 40 10\n1 20 40\n", "separate columns by commas, semicolons or tabs"),
        (f"x,node0\nnode{'9' * 5000},1\n", "is not a node"),
    ],
)
def test_errors_in_a_matrix_name_row_and_column(write, text, said):
    with pytest.raises(UserError) as error:
        read_matrix_csv(write(text), "bandwidth")
    assert said in str(error.value)


def test_distances_have_the_same_form(write):
    found = read_distances_csv(write("node,0,1\n0,10,32\n1,32,10\n"))
    assert found == {(0, 0): 10.0, (0, 1): 32.0, (1, 0): 32.0, (1, 1): 10.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node,0,1\n0,10,0\n", "row 2, column 1: 0 is not a distance"),
        ("node,0,1\n0,10,inf\n", "row 2, column 1: inf is not a distance"),
        ("node,0\n0,10\n0,12\n", "initiator node 0 has two rows"),
    ],
)
def test_errors_in_a_distance_table_name_row_and_column(write, text, said):
    with pytest.raises(UserError) as error:
        read_distances_csv(write(text))
    assert said in str(error.value)


cells = st.floats(0.001, 8000.0)
nodes = st.lists(st.integers(0, 300), min_size=1, max_size=5, unique=True)


@settings(deadline=None, max_examples=20)
@given(nodes, nodes, st.integers(1, 3), st.data())
def test_a_written_matrix_is_read_back(tmp_path_factory, initiators, targets, runs, data):
    row = st.lists(st.none() | cells, min_size=len(targets), max_size=len(targets))
    written = [(node, data.draw(row)) for _ in range(runs) for node in initiators]
    expected = {}
    for node, values in written:
        for target, value in zip(targets, values, strict=True):
            if value is not None:
                expected.setdefault((node, target), []).append(value * 1e9)
    lines = [",".join(["from", *(f"mem_{node}" for node in targets)])]
    lines += [
        ",".join([f"node{node}", *("-" if value is None else repr(value) for value in values)])
        for node, values in written
    ]
    path = tmp_path_factory.mktemp("matrix") / "m_GBps.csv"
    path.write_text("\n".join(lines) + "\n")
    if not expected:
        with pytest.raises(UserError, match="no cell has a value"):
            read_matrix_csv(path, "bandwidth")
        return
    found = read_matrix_csv(path, "bandwidth")
    assert (found.initiators, found.targets) == (tuple(initiators), tuple(targets))
    assert set(found.samples) == set(expected)
    for pair, values in expected.items():
        assert found.samples[pair] == pytest.approx(values)


MLC = Path(__file__).parents[2] / "data/mlc_bandwidth_matrix.txt"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_matrix_as_intel_mlc_prints_it(write, line_end):
    text = MLC.read_text()
    found = read_matrix_csv(write(text.replace("\n", line_end), "mlc.txt"), "bandwidth")
    same = read_matrix_csv(write("node,0,1\n0,90935.7,34457.4\n1,34387.1,90870.6\n"), "bandwidth")
    assert (found.samples, found.initiators, found.targets) == (same.samples, (0, 1), (0, 1))
    absent = read_matrix_csv(write(text.replace("34457.4", "-      ") + "\nDone\n"), "bandwidth")
    assert absent.samples.keys() == found.samples.keys() - {(0, 1)}
    with pytest.raises(UserError, match="row 12: the row has 2 cells, but the first row has 3"):
        read_matrix_csv(write(text.replace(" 90870.6", "")), "bandwidth")


HEAD = "mode,rank,core,cpu_node,mem_node,size_MB,latency_ns\n"
ROW = "serial,0,0,0,0,1,20\n"
PLACEMENT = "policy,cpu_nodes,mem_nodes,slurm_job,triad_best_MBps\ninterleave,0,0,{},9\n"


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
        (PLACEMENT.format("1.5"), r"row 2: '1\.5' is not a whole number below"),
        (PLACEMENT.format("1e+19"), r"row 2: '1e\+19' is not a whole number below"),
    ],
)
def test_a_file_that_is_not_of_the_form_is_refused_in_one_line(write, text, words):
    form = "stream_placement" if text.startswith("policy") else "numa_bench"
    with pytest.raises(UserError, match=words) as error:
        read_published_csv(write(text, "sweep.csv"), form, "theirs")
    assert str(error.value).isprintable() and len(str(error.value)) < 1000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"columns": {"mode": "{{ mode }}"}}, "the tidy table has no column 'mode'"),
        ({"value": f"{{{{ {'9' * 5000} }}}}"}, "cannot be filled in"),
        ({"value": "{{ 1e999 + (latency_ns | float) }}"}, "cannot be filled in"),
    ],
)
def test_a_wrong_form_is_an_error(write, monkeypatch, change, words):
    path = write(HEAD + ROW, "sweep.csv")
    form = read_yaml(PUBLISHED_FOLDER / "numa_bench.yaml") | change
    (path.parent / "numa_bench.yaml").write_text(json.dumps(form))
    monkeypatch.setattr("chaosity.store.csv_tables.PUBLISHED_FOLDER", path.parent)
    with pytest.raises(UserError, match=words):
        read_published_csv(path, "numa_bench", "theirs")


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


def test_repeated_rows_of_a_matrix_are_replicates(write):
    file = write("node,0,1\n0,80,130\n1,131,81\n0,82,-\n1,129,83\n", "twice_ns.csv")
    table = read_published_csv(file, "latency_matrix", "theirs")
    assert len(table) == 7
    own = table[(table["initiator"] == "node0") & (table["target"] == "node0")]
    assert list(own["replicate"]) == [1, 2] and list(own["value"]) == [80.0, 82.0]
    assert own["point"].nunique() == 1


def test_a_unit_can_be_given_where_the_file_has_none(write):
    file = write("node,0,1\n0,30,10\n1,10,30\n")
    table = read_published_csv(file, "bandwidth_matrix", "theirs", "GiB/s")
    assert table["value"].iloc[0] == 30 * 2**30
    with pytest.raises(UserError, match="already gives the unit"):
        read_published_csv(file, "fio_numa", "theirs", "GiB/s")


def test_a_column_has_numbers_or_texts(write):
    head = HEAD.replace(",", ";")
    file = write(f"{head}a;0;0;0;0; 1.5 ;20\n\n;;1;0;0;64;2e1\n7;0;2;0;0;.5;20\n")
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
