"""Weights from paths measured with all workers at once: computed, kept and compared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from path_measurements import NODES, alone, measurements, together

from chaosity.campaign.measured_page_weights import MeasuredPageWeights, shares_agree
from chaosity.cli import chaosity
from chaosity.cli.weights import canonical_shares_of_workers, placement_argument_parser
from chaosity.errors import UserError
from chaosity.place.page_placement import CONTENDED
from chaosity.store.tidy_table_parquet import write_parquet_table
from chaosity.topology.topology_model import topology_to_json
from chaosity.weights import (
    PATH_BANDWIDTH,
    canonical_weights,
    compare_alone_and_contended_weights,
    find_contended_bandwidth_matrix,
)
from machines import run_chaosity, shipped_topology
from table_rows import table


@pytest.fixture
def folder(tmp_path):
    """Results of the server of document 000, before anything was measured."""
    topology = shipped_topology("epyc-7413-2s-nps4-30drives")
    (tmp_path / "topology.json").write_text(json.dumps(topology_to_json(topology)))
    (tmp_path / "topology.xml").write_text("<topology/>")
    return tmp_path


def measured(folder, *parts):
    write_parquet_table(table(*parts), folder / "measurements.parquet")
    return folder


def test_a_set_of_workers_has_the_matrix_of_its_own_point():
    found = measurements(together([0]), together([0, 1], lambda i, t: 1e9 * (1 + i + t)), alone())
    matrix = find_contended_bandwidth_matrix(found, [1, 0])
    assert matrix.initiators == (0, 1)
    assert matrix.targets == tuple(NODES)
    assert matrix.median_of_cell(1, 2) == 4e9
    assert canonical_weights(matrix, [0, 1])[0] == pytest.approx(1 / 36)
    assert find_contended_bandwidth_matrix(found, [0]).median_of_cell(0, 0) == 20e9
    assert find_contended_bandwidth_matrix(found, [0, 2]) is None
    failed = measurements(together([0, 1], status="failed"))
    assert find_contended_bandwidth_matrix(failed, [0, 1]) is None
    assert sorted(set(found.rows["load_count"])) == [1, 2]  # a metric by node is of one load


def test_chaosity_place_takes_the_paths_of_all_workers_at_once(folder):
    measured(folder, together([0, 1], lambda i, t: 1e9 * (1 + i + t)), alone())

    def shares_of(workers):
        given = ["--policy", CONTENDED, "--workers", workers, "--matrix", str(folder), "true"]
        return canonical_shares_of_workers(placement_argument_parser().parse_args(given))

    assert shares_of("0-1")[0] == pytest.approx(1 / 36)
    with pytest.raises(UserError, match=r"no measurement with all worker nodes .0,2. at once"):
        shares_of("0,2")


def test_there_are_no_weights_before_the_first_measurement(folder):
    weights = MeasuredPageWeights(folder)
    assert weights("canonical", (0, 1)) is None
    weights.write_weights()
    assert not weights.path.exists()


def test_weights_are_computed_written_and_read_elsewhere(folder):
    weights = MeasuredPageWeights(measured(folder, alone(), together([0, 1])))
    found = weights("canonical", (0,))
    assert found == pytest.approx({0: 40 / 110, **dict.fromkeys(range(1, 8), 10 / 110)})
    assert weights("canonical_contended", (0, 1))[0] == pytest.approx(1 / 8)
    assert weights("canonical_contended", (0, 2)) is None
    weights.write_weights()
    (folder / "measurements.parquet").unlink()
    elsewhere = MeasuredPageWeights(folder, recalculate=False)
    assert elsewhere("canonical", (0,)) == found
    assert elsewhere("canonical", (1,)) is None
    kept = json.loads(weights.path.read_text())["weights"]
    assert kept["canonical"]["0"]["source"] == "triad of tried, tried"
    assert kept["canonical_contended"]["0-1"]["source"] == "all_at_once, all workers at once"
    assert kept["canonical"]["0"]["since"].endswith("Z")


def test_weights_change_only_with_clear_changes_of_bandwidth(folder):
    first = MeasuredPageWeights(measured(folder, alone()))
    found = first("canonical", (0,))
    first.write_weights()
    text = first.path.read_text()
    again = MeasuredPageWeights(measured(folder, alone(local=41e9)))
    assert again("canonical", (0,)) == found
    again.write_weights()
    assert first.path.read_text() == text
    changed = MeasuredPageWeights(measured(folder, alone(local=60e9)))
    assert changed("canonical", (0,))[0] == pytest.approx(60 / 130)
    changed("canonical", (1,))
    changed.write_weights()
    assert first.path.read_text() != text
    unused = MeasuredPageWeights(folder)  # weights that this run does not use are kept
    unused.write_weights()
    assert set(json.loads(first.path.read_text())["weights"]["canonical"]) == {"0", "1"}


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}'])
def test_a_file_without_weights_is_refused(folder, text):
    (folder / "weights.json").write_text(text)
    with pytest.raises(UserError, match="the file has no weights; delete the file"):
        MeasuredPageWeights(folder)


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1), min_size=1), st.floats(-0.1, 0.1))
def test_shares_are_the_same_when_none_moved_by_more_than_allowed(shares, step):
    node = min(shares)
    moved = {**shares, node: shares[node] + step}
    assert shares_agree(shares, moved) == (abs(moved[node] - shares[node]) <= 0.02)
    assert not shares_agree(shares, {**shares, 99: 0.0})


def test_both_weights_are_compared():
    found = measurements(alone(), together([0], lambda i, t: 30e9 if t == 0 else 10e9))
    own = find_contended_bandwidth_matrix(found, [0])
    compared = compare_alone_and_contended_weights(_alone_matrix(), own, [0])
    node, difference = compared.node_with_largest_share_difference
    assert node == 0
    assert difference == pytest.approx(40 / 110 - 30 / 100)
    assert compared.expected_bandwidths["canonical_contended"] == pytest.approx(100e9)
    assert compared.expected_bandwidths["canonical"] == pytest.approx(30e9 / (40 / 110))


def _alone_matrix():
    rows = alone()
    contended = [{**one, "metric": PATH_BANDWIDTH, "point": "p", "load": "paths"} for one in rows]
    return find_contended_bandwidth_matrix(measurements(contended), list(NODES))


def test_the_command_takes_a_table_and_compares_both_weights(folder):
    path = str(measured(folder, alone(), together([0, 1])) / "measurements.parquet")
    command = "weights", path, "--workers", "0,1"
    found = json.loads(run_chaosity(*command, "--json"))["contended"]
    assert set(found["weights"]) == {"canonical", "canonical_contended"}
    assert sum(found["weights"]["canonical_contended"].values()) == pytest.approx(1.0)
    assert found["largest_difference"]["share"] >= 0.0
    assert set(found["expected_bandwidth_bytes_per_second"]) == set(found["weights"])
    assert "Largest difference: node" in run_chaosity(*command)
    measured(folder, alone())
    assert json.loads(run_chaosity(*command, "--json"))["contended"] is None
    with pytest.raises(UserError, match="a tidy table already gives the units"):
        chaosity.main(["weights", path, "--workers=0", "--unit=MB/s"], standalone_mode=False)
