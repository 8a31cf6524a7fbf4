"""Firmware claims (SLIT and packages) that contradict the measurement."""

from __future__ import annotations

import numpy as np
import pytest

import faulty_machines as faulty
from chaosity.anomalies.matrix_anomalies import analyse_matrix
from chaosity.anomalies.slit_mismatch import few_nodes_of_all_pairs
from chaosity.store.csv_tables import NodeMatrix
from faulty_machines import LATENCY, measure

SLIT_MISMATCH = "slit_mismatch"
HONEST = [
    faulty.two_sockets(),
    faulty.two_packages(2),
    faulty.two_packages(4),
    faulty.ring(4),
    faulty.ring(8),
    faulty.full_mesh(8),
    faulty.mesh(2, 4),
]


def analysed(layout, distances=None, packages=None, **keys):
    return analyse_matrix(measure(layout, np.random.default_rng(4), **keys), packages, distances)


@pytest.mark.parametrize("metric", [faulty.BANDWIDTH, LATENCY])
@pytest.mark.parametrize("layout", HONEST, ids=lambda layout: layout.name)
def test_a_correct_slit_has_no_mismatch(layout, metric):
    found = analysed(layout, layout.distances(), layout.packages, metric=metric)
    assert found.anomalies == ()
    assert "the SLIT" in found.checked


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("metric", [faulty.BANDWIDTH, LATENCY])
@pytest.mark.parametrize(
    ("layout", "one", "other"),
    [
        (faulty.two_packages(4), (0, 1), (0, 5)),
        (faulty.ring(8), (0, 1), (0, 4)),
        (faulty.mesh(2, 4), (0, 4), (0, 7)),
    ],
    ids=["packages", "ring", "mesh"],
)
def test_swapped_entries_are_one_mismatch(layout, one, other, metric, n):
    fault = faulty.lying_table(layout, one, other)
    table = {**layout.distances(), **fault.entries}
    (found,) = analysed(layout, table, n=n, metric=metric).anomalies
    assert found.kind == SLIT_MISMATCH
    assert set(found.cells) <= fault.cells
    # Of a single run one of the four may depart too far to belong to a class.
    assert len(found.cells) >= (4 if n > 1 else 3)
    assert (found.initiator, found.target) in fault.cells
    assert set(found.components) == {f"node{node}" for pair in fault.cells for node in pair}
    assert found.sentence.startswith("SLIT entries ")
    assert f"{one[0]}->{one[1]}" in found.sentence
    assert 0.9 < found.confidence <= (0.95 if n == 1 else 0.9999)
    assert "firmware" in found.advice


def test_a_flat_slit_on_a_machine_with_near_and_far_nodes_is_a_mismatch():
    layout = faulty.ring(4)
    flat = {pair: 10.0 if pair[0] == pair[1] else 20.0 for pair in layout.distances()}
    (found,) = analysed(layout, flat).anomalies
    assert found.kind == SLIT_MISMATCH
    far = {pair for pair in flat if layout.distances()[pair] == max(layout.distances().values())}
    assert set(found.cells) == far
    assert "at the same distance" in found.sentence


def test_a_slit_with_inverted_order_is_a_mismatch():
    layout = faulty.two_packages(4)
    honest = layout.distances()
    near, far = honest[0, 1], honest[0, 4]
    turned = {pair: {near: far, far: near}.get(value, value) for pair, value in honest.items()}
    (found,) = analysed(layout, turned).anomalies
    assert found.kind == SLIT_MISMATCH
    assert set(found.cells) == {pair for pair, distance in turned.items() if distance == far}
    assert f"distance {far:g} " in found.sentence and f"distance {near:g} " in found.sentence
    assert found.loss_percent == pytest.approx(100 * (1 - 0.45 / 0.8), rel=0.1)


def test_the_slit_of_an_interleaved_machine_is_noted():
    found = analysed(faulty.interleaved(4), faulty.ring(4).distances())
    assert found.anomalies == ()
    assert any(
        "if the hardware interleaves memory over these nodes" in note for note in found.notes
    )


@pytest.mark.parametrize(
    ("each", "packages"),
    [(2, ((0, 2), (1, 3))), (4, ((0, 1, 2, 4), (3, 5, 6, 7))), (4, ((0, 2, 4, 6), (1, 3, 5, 7)))],
    ids=["alternating pairs", "two nodes changed places", "alternating"],
)
def test_packages_that_contradict_the_measurement_are_reported(each, packages):
    layout = faulty.two_packages(each)
    found = analysed(layout, packages=packages)
    (one,) = found.anomalies
    given = " | ".join(",".join(map(str, nodes)) for nodes in packages)
    measured = " | ".join(",".join(map(str, nodes)) for nodes in layout.packages)
    assert one.kind == SLIT_MISMATCH
    assert f"given packages are {given}" in one.sentence
    assert f"but the measurement shows the packages {measured}" in one.sentence
    assert found.packages == layout.packages


def test_the_order_of_packages_and_their_nodes_does_not_matter():
    found = analysed(faulty.two_packages(2), packages=((3, 2), (1, 0)))
    assert found.anomalies == ()


def test_a_slow_path_is_not_a_slit_mismatch():
    layout = faulty.two_packages(4)
    found = analysed(layout, layout.distances(), fault=faulty.slow_direction(layout, (0, 1), 0.3))
    assert {one.kind for one in found.anomalies} == {"slow_path"}


def test_swapped_cables_are_a_slit_mismatch():
    layout = faulty.two_packages(4)
    moved, fault = faulty.swapped(layout, 1, 5)
    found = analysed(moved, layout.distances())
    assert SLIT_MISMATCH in {one.kind for one in found.anomalies}
    assert all(set(one.cells) & fault.cells for one in found.anomalies)


def test_missing_slit_entries_are_noted():
    layout = faulty.two_packages(2)
    table = layout.distances()
    del table[0, 1], table[2, 3]
    assert any("no entry for 0->1 and 1 more" in note for note in analysed(layout, table).notes)


def with_other_memory(metric, near, far):
    """Four nodes with DRAM and four without cores; values of the other memory, near and far."""
    rows, columns = range(4), range(8)
    dram = (21.5e9, 20e9) if metric == faulty.BANDWIDTH else (130.0, 185.0)
    noise = np.random.default_rng(4)

    def value(i, j):
        return (dram[i != j] if j < 4 else (near, far)[j - 4 != i]) * np.exp(
            0.006 * noise.standard_normal()
        )

    cells = {(i, j): tuple(value(i, j) for _ in range(3)) for i in rows for j in columns}
    blocks = dict.fromkeys(cells, (1, 2, 3))
    matrix = NodeMatrix(metric, tuple(rows), tuple(columns), cells, blocks, "synthetic")
    # The firmware puts the other memory far away on purpose.
    distances = {
        (i, j): (10.0, 21.0)[i != j] if j < 4 else (31.0, 41.0)[j - 4 != i] for i, j in cells
    }
    return analyse_matrix(matrix, None, distances)


@pytest.mark.parametrize(("near", "far"), [(82e9, 78e9), (12e9, 9e9)], ids=["HBM", "CXL"])
def test_bandwidths_of_unlike_memory_say_nothing_about_the_slit(near, far):
    assert with_other_memory(faulty.BANDWIDTH, near, far).anomalies == ()


def test_bandwidths_of_other_memory_in_the_wrong_order_are_a_mismatch():
    (found,) = with_other_memory(faulty.BANDWIDTH, 40e9, 78e9).anomalies
    assert found.kind == SLIT_MISMATCH
    assert all(target >= 4 for _, target in found.cells)
    assert "cables" in found.advice


def test_latencies_of_unlike_memory_are_compared_without_blaming_cables():
    (found,) = with_other_memory(LATENCY, 155.0, 170.0).anomalies
    assert found.kind == SLIT_MISMATCH
    assert "distance 31" in found.sentence
    assert "cables" not in found.advice


@pytest.mark.parametrize(
    ("pairs", "nodes"),
    [
        # Nodes 3 and 7 changed places.
        ([(i, j) for i in (3, 7) for j in (0, 1, 2, 4, 5, 6)], [3, 7]),
        # One node is wrong for all others.
        ([(2, j) for j in (0, 1, 3)], [2]),
        # Of single pairs, either node can be the reason.
        ([(0, 1), (0, 5)], [0, 1, 5]),
        ([(0, 1), (1, 0)], [0, 1]),
    ],
)
def test_the_nodes_that_wrong_entries_share(pairs, nodes):
    assert few_nodes_of_all_pairs(pairs) == nodes
