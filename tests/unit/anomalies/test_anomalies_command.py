"""``chaosity anomalies`` on matrices and on results folders."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.store.tidy_table_parquet import write_parquet_table
from machines import MeasuredHost, planned

HEAD = "cpu_node,mem_0,mem_1,mem_2,mem_3"
ROWS = [
    "0,40.1,20.2,20.1,20.0",
    "1,20.1,40.2,19.9,20.1",
    "2,20.0,20.1,30.0,20.2",
    "3,20.3,20.0,20.1,40.0",
]
DISTANCES = "node,0,1,2,3\n0,10,20,20,20\n1,20,10,20,20\n2,20,20,10,20\n3,20,20,20,10\n"
BANDWIDTH = ["--metric", "bandwidth"]


def run(*arguments):
    found = CliRunner().invoke(chaosity, ["anomalies", *map(str, arguments)])
    if found.exception and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


@pytest.fixture
def write(tmp_path):
    def write(text, name="m_GBps.csv"):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else "\n".join(text) + "\n")
        return path

    return write


@pytest.fixture
def file(write):
    return write([HEAD, *ROWS])


def test_json_has_anomalies_groups_and_verdict(file):
    found = json.loads(run(file, *BANDWIDTH, "--json").output)
    assert {"anomalies", "classes", "verdict"} <= set(found)
    (one,) = found["anomalies"]
    assert {
        "kind",
        "initiator",
        "target",
        "components",
        "observed",
        "expected",
        "loss_percent",
        "confidence",
        "advice",
    } <= set(one)
    assert (one["kind"], one["initiator"], one["target"]) == ("slow_component", 2, 2)
    assert one["components"] == ["node2"]
    assert one["observed"] == pytest.approx(30e9)
    assert one["expected"] == pytest.approx(40.1e9, rel=0.01)
    assert one["loss_percent"] == pytest.approx(25.0, abs=0.5)
    assert 0.9 < one["confidence"] <= 0.95
    assert "dmidecode" in one["advice"]
    assert [(each["name"], each["n_cells"]) for each in found["classes"]] == [
        ("local", 4),
        ("remote", 12),
    ]
    assert found["verdict"].startswith("1 anomaly in 4 x 4 nodes; the worst: Node 2 is slow")


def test_a_healthy_machine_has_no_anomalies(write):
    sound = write([HEAD, *ROWS[:2], ROWS[2].replace("30.0", "40.0"), ROWS[3]])
    found = json.loads(run(sound, *BANDWIDTH, "--json").output)
    assert found["anomalies"] == []
    assert found["verdict"].startswith("No anomaly was detected in 4 x 4 nodes at n = 1")


def test_rows_of_the_same_initiator_are_replicates(write):
    found = json.loads(run(write([HEAD, *ROWS, *ROWS, *ROWS]), *BANDWIDTH, "--json").output)
    assert [one["n"] for one in found["anomalies"]] == [3]
    assert found["anomalies"][0]["confidence"] > 0.95


def test_latencies_that_are_longer_are_worse(write):
    rows = ["0,80,140", "1,140,110"]
    found = json.loads(
        run(write(["from,0,1", *rows], "m_ns.csv"), "--metric", "latency", "--json").output
    )
    assert found["metric"] == "latency_ns"
    (one,) = found["anomalies"]
    assert (one["kind"], one["components"]) == ("slow_component", ["node1"])
    assert one["loss_percent"] == pytest.approx(37.5)


def test_a_given_slit_is_checked(file, write):
    honest = write(DISTANCES, "slit.csv")
    said = run(file, *BANDWIDTH, "--distances", honest).output
    assert "the SLIT" in said
    assert "contradict" not in said


@pytest.mark.parametrize("packages", ["0,1;2,3", "0-1;2-3", " 0,1 ; 2,3 "])
def test_packages_can_be_given(file, packages):
    assert run(file, *BANDWIDTH, "--packages", packages).exit_code == 0


def test_a_results_folder_is_read_with_its_components(tmp_path):
    slow = "drive-0000-11-00-0"
    fault = {"fault": "slow_drive", "drive": slow, "remaining": 0.2}
    simulated = planned("two_packages", None, [fault], experiments=["storage_bandwidth"])
    machine = MeasuredHost(simulated)
    folder = tmp_path / "h" / "nps4"
    (folder / "components").mkdir(parents=True)
    write_parquet_table(machine.tidy(), folder / "measurements.parquet")
    for name, document in machine.components().items():
        (folder / "components" / f"{name}.json").write_text(json.dumps(document))
    (folder / "topology.json").write_text(json.dumps(machine.topology()))
    for path in (folder, folder / "measurements.parquet"):
        found = json.loads(run(path, "--json").output)
        assert found["anomalies"][0]["components"] == [slow]
    with pytest.raises(UserError, match="--metric is allowed for a CSV matrix only"):
        run(folder, *BANDWIDTH)


BAD = {
    "empty": ([], "is empty"),
    "only a header": ([HEAD], "has column names but no row"),
    "ragged": ([HEAD, ROWS[0], "1,20,40"], "row 3: the row has 3 cells, but the first row has 5"),
    "text": ([HEAD, "0,40,fast,1,1"], "row 2, column mem_1: 'fast' is not a number"),
    "negative": ([HEAD, "0,40,20,-20,20"], "row 2, column mem_2: -20 is not a measurement"),
    "zero": ([HEAD, *ROWS[:3], "3,20,20,20,0"], "row 5, column mem_3: 0 is not a measurement"),
    "NaN": ([HEAD, "0,40,20,nan,20"], "row 2, column mem_2: nan is not a measurement"),
    "absurd": (
        [HEAD, "0,40,20,4e7,20"],
        "row 2, column mem_2: 4e+07 GB/s is above the bandwidth of any memory",
    ),
    "a column twice": (["from,mem_0,0", "0,40,20"], "target node 0 has two columns"),
    "no number": ([HEAD, "0,-,,-,"], "has no number"),
}


@pytest.mark.parametrize(("lines", "said"), BAD.values(), ids=BAD)
def test_a_bad_matrix_gives_an_error_of_one_sentence(write, lines, said):
    with pytest.raises(UserError) as error:
        run(write(lines), *BANDWIDTH)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--metric is required for a CSV matrix"),
        ([*BANDWIDTH, "--unit", "furlongs"], "furlongs is not a unit of bandwidth"),
        (["--metric", "latency"], "the file name ends in a unit of bandwidth, not of latency"),
        ([*BANDWIDTH, "--packages", "a;b"], "'a' is not a list of nodes"),
        ([*BANDWIDTH, "--packages", "0,1;1,2,3"], "node 1 is in two packages"),
        ([*BANDWIDTH, "--packages", "0,1;2"], "node 3 of the matrix is in no package"),
        ([*BANDWIDTH, "--packages", "0,1;2,3,7"], "node 7 is not in the matrix"),
    ],
)
def test_a_bad_option_gives_an_error_of_one_sentence(file, options, said):
    with pytest.raises(UserError) as error:
        run(file, *options)
    assert said in str(error.value)


def test_a_file_of_latencies_is_refused_as_bandwidth(write):
    with pytest.raises(UserError, match="the file name ends in a unit of latency"):
        run(write("from,0,1\n0,80,130\n1,130,80\n", "idle_ns.csv"), *BANDWIDTH)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (DISTANCES.replace("3,20,20,20,10\n", ""), "the distance from node 3 to node 0 is missing"),
        (DISTANCES.replace("0,10,20", "0,10,0"), "row 2, column 1: 0 is not a distance"),
        ("", "is empty"),
    ],
    ids=["incomplete", "zero", "empty"],
)
def test_a_bad_slit_file_is_refused(file, write, table, said):
    with pytest.raises(UserError) as error:
        run(file, *BANDWIDTH, "--distances", write(table, "slit.csv"))
    assert said in str(error.value)


def test_a_folder_without_a_table_is_refused(tmp_path):
    (tmp_path / "points").mkdir()
    with pytest.raises(UserError, match=r"measurements\.parquet is missing"):
        run(tmp_path)


def test_a_missing_file_gives_status_2(tmp_path):
    assert run(tmp_path / "none.csv", *BANDWIDTH).exit_code == 2
