"""The structure that is learned from a matrix."""

from __future__ import annotations

import numpy as np
import pytest

import faulty_machines as faulty
from chaosity.anomalies.matrix_anomalies import analyse_matrix
from faulty_machines import BANDWIDTH, LATENCY, matrix_of

PACKAGES = ("local", "same package", "other package")
# What each layout of tests/support/faulty_machines.py is: names of the classes, and the packages.
EXPECTED = {
    "two packages": (("local", "remote"), None),
    "2 packages x 2 nodes": (PACKAGES, ((0, 1), (2, 3))),
    "2 packages x 4 nodes": (PACKAGES, ((0, 1, 2, 3), (4, 5, 6, 7))),
    "full mesh of 4": (("local", "remote"), None),
    "full mesh of 8": (("local", "remote"), None),
    "ring of 4": (("local", "near", "far"), None),
    "ring of 8": (("local", *(f"step {number}" for number in range(1, 5))), None),
    "one-way ring of 6": (("local", *(f"step {number}" for number in range(1, 6))), None),
    "mesh 2 x 4": (("local", "1 hop", "2 hops", "3 hops", "4 hops"), None),
    "mesh 2 x 3": (("local", "1 hop", "2 hops", "3 hops"), None),
    "interleaved, 4 nodes": (("all",), None),
    "interleaved, 8 nodes": (("all",), None),
    "clusters on die": (PACKAGES, ((0, 1), (2, 3))),
}


def names(found):
    return tuple(one.name for one in found.groups)


def test_every_layout_has_an_expectation():
    assert {layout.name for layout in faulty.LAYOUTS} == set(EXPECTED)


@pytest.mark.parametrize("metric", [BANDWIDTH, LATENCY])
@pytest.mark.parametrize("layout", faulty.LAYOUTS, ids=lambda layout: layout.name)
def test_the_structure_is_seen_without_noise(layout, metric):
    rows = 40e9 * layout.table() if metric == BANDWIDTH else 100.0 / layout.table()
    found = analyse_matrix(matrix_of(rows, metric=metric))
    assert (names(found), found.packages) == EXPECTED[layout.name]
    assert found.anomalies == ()


@pytest.mark.parametrize("metric", [BANDWIDTH, LATENCY])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("layout", faulty.LAYOUTS, ids=lambda layout: layout.name)
def test_the_structure_is_seen_through_noise(layout, n, metric):
    found = analyse_matrix(faulty.measure(layout, np.random.default_rng(11), n=n, metric=metric))
    assert (names(found), found.packages) == EXPECTED[layout.name]
    assert found.anomalies == ()


@pytest.mark.parametrize(
    ("layout", "missing"),
    [
        (faulty.ring(4), ()),
        (faulty.ring(8), ((0, 1),)),
        (faulty.mesh(2, 3), ((1, 2),)),
        (faulty.ring(6, one_way=True), ((0, 1), (3, 5))),
        # Node 0 was not measured with the only package that is far from it.
        (faulty.ring_of_packages(), ((0, 4), (0, 5), (4, 0), (5, 0))),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_neighbours_are_seen_through_much_noise_and_gaps(layout, missing):
    for seed in range(10):
        full = faulty.measure(layout, np.random.default_rng(seed), n=3, noise=0.08)
        assert not analyse_matrix(faulty.without(full, missing)).anomalies


def test_each_cell_is_in_one_group_and_the_best_group_is_first():
    layout = faulty.two_packages(4)
    found = analyse_matrix(faulty.measure(layout, np.random.default_rng(1)))
    cells = [cell for one in found.groups for cell in one.cells]
    assert sorted(cells) == [(i, j) for i in range(8) for j in range(8)]
    assert [one.typical for one in found.groups] == pytest.approx([40e9, 32e9, 18e9], rel=0.05)
    assert "same package" in found.structure and "0,1,2,3 | 4,5,6,7" in found.structure


def test_packages_can_have_alternating_nodes():
    layout = faulty.Layout(
        "crosswise", lambda i, j: 1.0 if i == j else 0.8 if i % 2 == j % 2 else 0.45, 8
    )
    found = analyse_matrix(faulty.measure(layout, np.random.default_rng(1)))
    assert found.packages == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_steps_of_a_one_way_ring_are_directed():
    found = analyse_matrix(matrix_of(40e9 * faulty.ring(6, one_way=True).table()))
    first = next(one for one in found.groups if one.name == "step 1")
    assert set(first.cells) == {(i, (i + 1) % 6) for i in range(6)}


@pytest.mark.parametrize(("nodes", "near"), [(5, (1, 2)), (7, (1, 2, 4))])
def test_near_nodes_in_one_direction_are_seen_without_a_ring(nodes, near):
    """No path leads through equally near nodes, so hops do not explain these values."""
    layout = faulty.Layout(
        "one-way", lambda i, j: 1.0 if i == j else 0.7 if (j - i) % nodes in near else 0.45, nodes
    )
    found = analyse_matrix(faulty.measure(layout, np.random.default_rng(1), n=3))
    assert (names(found), found.anomalies) == (("local", "near", "far"), ())
    slow = faulty.slow_cores(layout, 1, 0.25)
    found = analyse_matrix(faulty.measure(layout, np.random.default_rng(1), slow, n=3))
    assert [one.components for one in found.anomalies] == [("node1",)]


def test_an_interleaved_machine_has_no_structure():
    found = analyse_matrix(matrix_of(np.full((4, 4), 40e9)))
    assert found.structure.startswith("none: all nodes reach all memory equally")
    assert found.verdict.endswith("The matrix has no structure.")


@pytest.mark.parametrize("targets", [1, 2])
def test_memory_without_processing_units_is_a_separate_group(targets):
    more = [[20e9 if t == i else 12e9 for t in range(targets)] for i in range(2)]
    rows = [[40e9, 25e9, *more[0]], [25e9, 40e9, *more[1]]]
    found = analyse_matrix(matrix_of(rows, targets=(0, 1, 8, 9)[: 2 + targets]))
    assert names(found)[:2] == ("local", "remote")
    assert "other memory, rank 1" in names(found)
    assert found.anomalies == ()
    alone = any(
        note.startswith("Not tested, since they have no comparable cell") for note in found.notes
    )
    assert alone == (targets == 1)


def test_an_initiator_without_memory_does_not_change_the_structure():
    rows = [[40e9, 25e9], [25e9, 40e9], [20e9, 12e9]]
    found = analyse_matrix(matrix_of(rows, initiators=(0, 1, 2), targets=(0, 1)))
    assert names(found)[:2] == ("local", "remote")
    assert found.anomalies == ()


@pytest.mark.parametrize(
    "rows",
    [[[40e9]], [[40e9, 20e9, 10e9]], [[40e9], [20e9], [10e9]]],
    ids=["1 x 1", "one initiator", "one target"],
)
def test_cells_without_comparable_cells_are_not_tested(rows):
    found = analyse_matrix(matrix_of(rows))
    assert found.structure.startswith("unknown")
    assert (found.anomalies, found.detectable_loss_percent) == ((), None)
    assert found.verdict.startswith("Not tested: no cell of ")


def test_memory_without_any_local_initiator_is_not_tested():
    found = analyse_matrix(matrix_of([[40e9, 20e9], [20e9, 40e9]], targets=(8, 9)))
    assert found.structure.startswith("unknown")
    assert found.anomalies == ()
