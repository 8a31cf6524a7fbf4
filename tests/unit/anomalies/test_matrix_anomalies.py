"""Faults of synthetic machines are found, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import faulty_machines as faulty
from chaosity.anomalies.anomaly_results import AnomalyKind
from chaosity.anomalies.cell_log_scores import score_cells
from chaosity.anomalies.matrix_anomalies import analyse_matrix, analyse_one_of_matrices
from chaosity.store.csv_tables import read_matrix_csv
from faulty_machines import BANDWIDTH, LATENCY, measure

REGULAR = [
    *(faulty.two_packages(4), faulty.ring_of_packages()),
    *(faulty.full_mesh(8), faulty.ring(8), faulty.mesh(2, 4)),
]
by_name = pytest.mark.parametrize("layout", REGULAR, ids=lambda layout: layout.name)
few = settings(deadline=None, max_examples=5)


def rng(seed=3):
    return np.random.default_rng(seed)


def found_in(layout, fault, **keys):
    return analyse_matrix(measure(layout, rng(), fault, **keys))


def percent(loss, metric):
    """A bandwidth that loses a share, and the time that is inverse to it."""
    return 100.0 * (loss if metric == BANDWIDTH else 1.0 / (1.0 - loss) - 1.0)


def check(one, loss, metric, n):
    assert one.kind in tuple(AnomalyKind) and one.metric == metric and one.n == n
    truth = percent(loss, metric)
    assert one.loss_percent == pytest.approx(truth, rel=0.15)
    assert one.loss_percent_low <= truth <= one.loss_percent_high
    assert 0.9 < one.confidence <= (0.95 if n == 1 else 0.9999)
    better = one.observed < one.expected if metric == LATENCY else one.observed > one.expected
    assert not better
    assert one.sentence and one.advice and one.compared_with


@by_name
@pytest.mark.parametrize(("metric", "n"), [(BANDWIDTH, 1), (LATENCY, 5)])
@pytest.mark.parametrize(
    ("make", "loss", "initiator", "target"),
    [
        (faulty.weak_channel, 0.3, 2, 2),
        (faulty.slow_memory, 0.2, None, 5),
        (faulty.slow_cores, 0.2, 1, None),
    ],
)
def test_a_slow_part_of_a_node_is_one_anomaly(layout, metric, n, make, loss, initiator, target):
    node = initiator if target is None else target
    fault = make(layout, node, loss)
    reported = found_in(layout, fault, n=n, metric=metric)
    # One disturbed run could be a single cell that is slow.
    (one,) = reported.suspicions if n == 1 and len(fault.cells) == 1 else reported.anomalies
    assert (one.kind, one.initiator, one.target) == ("slow_component", initiator, target)
    assert one.components == (f"node{node}",)
    assert set(one.cells) == fault.cells
    check(one, loss, metric, n)


@by_name
@pytest.mark.parametrize("metric", [BANDWIDTH, LATENCY])
def test_a_slow_direction_is_a_slow_path(layout, metric):
    (one,) = found_in(layout, faulty.slow_direction(layout, (6, 1), 0.3), metric=metric).anomalies
    assert (one.kind, one.initiator, one.target) == ("slow_path", 6, 1)
    assert one.components == ("node6->node1",)
    assert one.cells == ((6, 1),)
    assert len(one.also) == 1  # on the opposite direction
    check(one, 0.3, metric, 5)


def test_a_direction_as_slow_as_paths_to_a_far_package_is_not_taken_for_one():
    layout = faulty.ring_of_packages()
    (one,) = found_in(layout, faulty.slow_direction(layout, (6, 1), 0.4)).anomalies
    assert one.components == ("node6->node1",)


@by_name
@pytest.mark.parametrize("metric", [BANDWIDTH, LATENCY])
def test_a_link_that_is_slow_both_ways_is_one_slow_path(layout, metric):
    fault = faulty.slow_link(layout, (0, 3), 0.3)
    (one,) = found_in(layout, fault, metric=metric).anomalies
    assert (one.kind, one.components) == ("slow_path", ("node0->node3",))
    assert set(one.cells) == fault.cells
    assert one.loss_percent == pytest.approx(percent(0.3, metric), rel=0.15)


# A slow pair of nodes whose values are those of a worse group: layout, pair, number of the group.
AS_SLOW_AS_STRUCTURE = [
    # Within a package, as slow as between packages.
    (faulty.two_packages(4), (0, 1), 0.45),
    (faulty.ring_of_packages(), (0, 1), 0.5),
    (faulty.ring_of_packages(), (0, 1), 0.3),
    # Between neighbouring packages, as slow as between others.
    (faulty.ring_of_packages(), (0, 2), 0.3),
    # Between neighbours in a ring or mesh, as slow as over more hops.
    *((faulty.ring(8), (0, 1), share) for share in (0.45, 0.35, 0.28)),
    *((faulty.mesh(2, 4), (0, 1), share) for share in (0.5, 0.4, 0.33)),
    (faulty.mesh(2, 3), (0, 1), 0.5),
    # Between nodes that are no neighbours.
    (faulty.ring(8), (0, 2), 0.35),
    (faulty.mesh(2, 4), (0, 3), 0.33),
]


@pytest.mark.parametrize("known", ["nothing", "packages", "SLIT", "both"])
@pytest.mark.parametrize(("layout", "pair", "share"), AS_SLOW_AS_STRUCTURE)
def test_a_pair_that_is_as_slow_as_a_worse_group_is_not_taken_for_structure(
    layout, pair, share, known
):
    fault = faulty.slow_link(layout, pair, 1.0 - share / layout.table()[pair])
    packages = layout.packages if known in ("packages", "both") else None
    distances = layout.distances() if known in ("SLIT", "both") else None
    for seed in range(3):
        measured = measure(layout, rng(seed), fault, n=3, noise=0.01)
        (one,) = analyse_matrix(measured, packages, distances).anomalies
        assert (one.kind, set(one.cells)) == ("slow_path", fault.cells)
        assert "in both directions" in one.sentence


@pytest.mark.parametrize(
    ("layout", "share", "pairs"),
    [
        # It would also be a ring without this link.
        (faulty.ring(4), 0.45, {(0, 1), (1, 0)}),
        # A mesh with a slow path from 0 to 5 has the same values.
        (faulty.mesh(2, 3), 0.4, {(0, 1), (1, 0), (0, 5), (5, 0), (2, 3), (3, 2)}),
    ],
)
def test_values_that_a_fault_and_a_structure_explain_equally_well_are_named(layout, share, pairs):
    fault = faulty.slow_link(layout, (0, 1), 1.0 - share / layout.table()[0, 1])
    for seed in range(3):
        found = analyse_matrix(measure(layout, rng(seed), fault, n=3, noise=0.01))
        assert found.anomalies == ()
        (note,) = (note for note in found.notes if note.startswith("Undecided"))
        assert all(f"{i}->{j}" in note for i, j in pairs)
        # The SLIT decides which pairs should be neighbours.
        measured = measure(layout, rng(seed), fault, n=3, noise=0.01)
        decided = analyse_matrix(measured, None, layout.distances())
        assert "node0" in decided.anomalies[0].components[0]


@pytest.mark.parametrize(
    ("layout", "neighbours", "also"),
    [
        (faulty.ring(6), (2, 3), [(3, 0), (3, 3), (3, 4), (3, 5), (5, 3)]),
        (faulty.mesh(2, 3), (1, 2), [(0, 4), (2, 0), (3, 5), (4, 0), (4, 2), (4, 4)]),
        (
            faulty.mesh(3, 2),
            (1, 3),
            [(1, 2), (1, 4), (3, 0), (4, 0), (5, 1), (5, 3), (5, 5)],
        ),
    ],
)
def test_unmeasured_neighbours_do_not_make_other_paths_slow(layout, neighbours, also):
    """Without these neighbours, a ring is a row, in which any two nodes could be neighbours."""
    missing = [neighbours, neighbours[::-1], *also]
    for seed in range(4):
        measured = measure(layout, rng(seed), n=3, noise=0.01)
        found = analyse_matrix(faulty.without(measured, missing))
        assert found.anomalies == ()
        assert not any(note.startswith("Undecided") for note in found.notes)


def test_noise_between_equally_fast_hops_accuses_no_path():
    """In this mesh, paths of five hops are as fast as paths of four."""
    layout = faulty.mesh(3, 4)
    assert layout.share(0, 11) == layout.share(0, 10)
    for seed in range(12):
        found = analyse_matrix(measure(layout, rng(seed), n=3))
        assert found.anomalies == ()
        assert not any(note.startswith("Undecided") for note in found.notes)


@pytest.mark.parametrize("unmeasured", [(2, 7), (3, 7)])
def test_an_unmeasured_pair_does_not_hide_slow_neighbours(unmeasured):
    layout = faulty.mesh(2, 4)
    fault = faulty.slow_link(layout, (0, 1), 1.0 - 0.4 / layout.table()[0, 1])
    measured = measure(layout, rng(1), fault, n=3, noise=0.01)
    found = analyse_matrix(faulty.without(measured, [unmeasured, unmeasured[::-1]]))
    assert [one.components for one in found.anomalies] == [("node0->node1",)]


def test_a_slow_pair_within_a_package_is_found_without_the_own_memory_of_its_nodes():
    layout = faulty.ring_of_packages()
    fault = faulty.slow_link(layout, (0, 1), 1.0 - 0.5 / layout.table()[0, 1])
    measured = measure(layout, rng(1), fault, n=3, noise=0.01)
    found = analyse_matrix(faulty.without(measured, [(0, 0)]))
    assert [one.components for one in found.anomalies] == [("node0->node1",)]
    assert found.packages == layout.packages


def test_a_slow_pair_in_packages_of_two_nodes_is_the_path_between_them():
    """Slow paths to and from either node would have the same cells."""
    layout = faulty.two_packages(2)
    measured = measure(layout, rng(), faulty.slow_link(layout, (0, 1), 0.4))
    (one,) = analyse_matrix(measured, layout.packages).anomalies
    assert (one.kind, one.components) == ("slow_path", ("node0->node1",))


def test_all_paths_between_two_packages_are_one_anomaly():
    layout = faulty.two_packages(4)
    cells = {(i, j) for i in range(4) for j in range(4, 8)}
    fault = faulty.Fault("slow block", dict.fromkeys(cells, 0.75), cells=frozenset(cells))
    (one,) = found_in(layout, fault).anomalies
    assert (one.kind, one.components) == ("slow_path", ("package0->package1",))
    assert set(one.cells) == cells
    assert one.sentence.startswith("The path from package 0 to package 1 is slow")
    check(one, 0.25, BANDWIDTH, 5)


@pytest.mark.parametrize(("metric", "n"), [(BANDWIDTH, 1), (LATENCY, 3), (BANDWIDTH, 5)])
@pytest.mark.parametrize("layout", faulty.LAYOUTS, ids=lambda layout: layout.name)
def test_healthy_machines_have_no_anomalies(layout, n, metric):
    found = analyse_matrix(measure(layout, rng(21), n=n, metric=metric))
    assert found.anomalies == ()
    assert not any(note.startswith("Undecided") for note in found.notes)
    assert found.verdict.startswith("No anomaly was detected in ")
    assert f"n = {n}" in found.verdict
    assert found.detectable_loss_percent > 5.0


@pytest.mark.parametrize("layout", faulty.LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("gaps", [1, 2, 5])
def test_cells_that_were_not_measured_make_no_anomaly(layout, gaps):
    random = rng(22)
    complete = measure(layout, random, n=3)
    lost = [tuple(pair) for pair in random.permutation([*complete.samples])]
    missing = lost[: min(gaps, layout.nodes)]
    for packages in {None, layout.packages}:
        assert analyse_matrix(faulty.without(complete, missing), packages).anomalies == ()


@pytest.mark.parametrize("make", [faulty.slow_direction, faulty.slow_link])
def test_a_slow_path_is_no_structure_if_each_node_has_a_gap(make):
    """Each node may then have an unmeasured cell in any group."""
    layout = faulty.full_mesh(8)
    complete = measure(layout, rng(), make(layout, (0, 3), 0.3), n=3)
    found = analyse_matrix(faulty.without(complete, [(i, (i + 1) % 8) for i in range(8)]))
    assert [one.components for one in found.anomalies] == [("node0->node3",)]


@pytest.mark.parametrize("make", [faulty.slow_memory, faulty.slow_cores])
def test_two_nodes_with_the_same_fault_are_no_structure(make):
    """All other nodes have slow cells then, but in one direction only."""
    layout = faulty.full_mesh(8)
    faults = make(layout, 1, 0.25), make(layout, 2, 0.25)
    found = analyse_matrix(measure(layout, rng(), faulty.both_of(*faults), n=3))
    cells = {one.components: set(one.cells) for one in found.anomalies}
    assert cells == {("node1",): faults[0].cells, ("node2",): faults[1].cells}


def test_from_few_cells_a_slow_path_is_only_suspected():
    layout = faulty.full_mesh(4)
    complete = measure(layout, rng(23), faulty.slow_direction(layout, (0, 1), 0.3), n=3)
    found = analyse_matrix(faulty.without(complete, [p for p in complete.samples if 3 in p]))
    assert [one.components for one in found.anomalies] == []
    assert [one.components for one in found.suspicions] == [("node0->node1",)]
    assert "Fewer than 75 % of the cells were measured" in found.suspicions[0].doubt


def test_disturbed_replicates_of_healthy_machines_are_not_reported():
    random = rng(5)
    alarms = sum(
        bool(analyse_matrix(measure(layout, random, disturbed=0.02)).anomalies)
        for layout in faulty.LAYOUTS
        for _ in range(2)
    )
    assert alarms <= 1  # of 26


@by_name
def test_a_small_loss_is_not_reported(layout):
    assert found_in(layout, faulty.weak_channel(layout, 0, 0.03)).anomalies == ()


def test_a_pattern_in_every_package_is_structural():
    layout = faulty.clusters_on_die()
    found = analyse_matrix(measure(layout, rng()), layout.packages)
    assert found.anomalies == ()
    assert any("the same pattern recurs across the machine" in note for note in found.notes)
    # The same in one package alone is a fault.
    layout = faulty.two_packages(2)
    fault = faulty.slow_direction(layout, (0, 1), 0.1)
    assert "slow_path" in {one.kind for one in found_in(layout, fault).anomalies}


@pytest.mark.parametrize(
    ("losses", "missing", "found"),
    [
        # Each package has a far node.
        ({0: 0.08, 4: 0.08}, (), {}),
        ({0: 0.09, 4: 0.07}, (), {}),
        # Node 4 has no measured path within its package, so it may be as far as node 0.
        ({0: 0.08, 4: 0.08}, [pair for i in (5, 6, 7) for pair in ((4, i), (i, 4))], {}),
        # Node 0 loses more than the far node of the other package does: the position of node 0
        # explains a part of a loss that is similar, and nothing of a loss that is not.
        ({0: 0.17, 4: 0.08}, (), {("node0",): 9}),
        ({0: 0.12, 4: 0.03}, (), {("node0",): 12}),
    ],
)
def test_only_what_far_nodes_of_all_packages_lose_is_structural(losses, missing, found):
    layout = faulty.two_packages(4)
    complete = measure(layout, rng(1), faulty.far_nodes(layout, losses), n=3, noise=0.01)
    anomalies = analyse_matrix(faulty.without(complete, missing), layout.packages).anomalies
    percents = {one.components: one.loss_percent for one in anomalies}
    assert percents == pytest.approx(found, abs=1.5)


@pytest.mark.parametrize("losses", [{}, {0: 0.08, 4: 0.08}])
def test_packages_are_learned_although_a_node_has_no_path_within_its_package(losses):
    """Without packages, the far nodes of both packages would be accused."""
    layout = faulty.two_packages(4)
    missing = [pair for i in (5, 6, 7) for pair in ((4, i), (i, 4))]
    complete = measure(layout, rng(1), faulty.far_nodes(layout, losses), n=3, noise=0.01)
    found = analyse_matrix(faulty.without(complete, missing))
    assert (found.anomalies, found.packages) == ((), layout.packages)


def test_two_nodes_without_paths_within_their_packages_are_in_different_packages():
    layout = faulty.two_packages(4)
    missing = [
        pair for i, first in ((3, 0), (7, 4)) for j in range(first, i) for pair in ((i, j), (j, i))
    ]
    found = analyse_matrix(faulty.without(measure(layout, rng(1), n=3), missing))
    assert (found.anomalies, found.packages) == ((), layout.packages)


def test_unmeasured_paths_join_no_nodes_if_the_packages_then_have_different_sizes():
    """Nodes 3 and 7 may then be in either package."""
    layout = faulty.two_packages(4)
    missing = [pair for i in (3, 7) for j in range(8) if j % 4 != 3 for pair in ((i, j), (j, i))]
    found = analyse_matrix(faulty.without(measure(layout, rng(1), n=3), missing))
    assert (found.anomalies, found.packages) == ((), None)


def test_a_gap_in_a_package_does_not_hide_a_slow_node_of_another():
    layout = faulty.two_packages(4)
    complete = measure(layout, rng(1), faulty.slow_cores(layout, 1, 0.25), n=3)
    (one,) = analyse_matrix(faulty.without(complete, [(4, 5), (6, 7)]), layout.packages).anomalies
    assert (one.kind, one.components) == ("slow_component", ("node1",))


def test_a_path_that_is_no_reference_does_not_count_as_an_unmeasured_far_node():
    """Node 0 has one other node in its package, and reaches it better than its own memory."""
    layout = faulty.two_packages(2)
    fault = faulty.Fault("wiring, slow path", {(0, 1): 1.5, (2, 3): 0.88})
    found = analyse_matrix(measure(layout, rng(1), fault, n=3, noise=0.01), layout.packages)
    assert {one.components for one in found.anomalies} == {("node0",), ("node2->node3",)}


def test_remote_memory_that_is_better_than_local_is_reported():
    layout = faulty.full_mesh(4)
    found = found_in(layout, faulty.weak_channel(layout, 1, 0.7))
    (one,) = found.anomalies
    assert (one.kind, one.components) == ("slow_component", ("node1",))
    (sentence,) = one.also
    assert "43 % less than remotely" in sentence


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_anomalies_of_a_noisy_single_run_are_clear(noise):
    for seed in range(4):
        found = analyse_matrix(measure(faulty.two_packages(4), rng(seed), n=1, noise=noise))
        assert all(0.9 <= one.confidence <= 0.95 for one in found.anomalies)
        assert all(one.loss_percent_low > 0.0 for one in found.anomalies)


@pytest.mark.parametrize(
    "layout", [faulty.two_packages(4), faulty.ring(8)], ids=lambda layout: layout.name
)
def test_replicates_with_large_scatter_give_no_anomalies(layout):
    for seed in range(3):
        found = analyse_matrix(measure(layout, rng(seed), noise=0.3))
        assert found.anomalies == ()
        assert found.detectable_loss_percent > 40.0


def test_two_nodes_at_three_runs():
    layout = faulty.two_sockets()
    assert analyse_matrix(measure(layout, rng(), n=3)).anomalies == ()
    (one,) = found_in(layout, faulty.weak_channel(layout, 1, 0.3), n=3).anomalies
    assert (one.kind, one.components) == ("slow_component", ("node1",))


def test_sixteen_nodes_with_a_slow_direction():
    layout = faulty.two_packages(8)
    found = found_in(layout, faulty.slow_direction(layout, (3, 9), 0.3))
    assert found.packages == (tuple(range(8)), tuple(range(8, 16)))
    assert {one.components for one in found.anomalies} == {("node3->node9",)}


def test_equal_replicates_have_limited_confidence():
    rows = np.where(np.eye(4) > 0, 40e9, 20e9)
    rows[1, 1] = 32e9
    (one,) = analyse_matrix(faulty.matrix_of(rows, n=3)).anomalies
    assert one.confidence == 0.9999
    assert one.loss_percent == pytest.approx(20.0)


def test_more_tables_of_one_machine_lower_each_confidence():
    layout = faulty.full_mesh(8)
    measured = measure(layout, rng(2), faulty.weak_channel(layout, 0, 0.1), n=3)
    alone, among = (analyse_one_of_matrices(measured, tests_count=count)[0] for count in (1, 1000))
    assert alone and len(among) <= len(alone)
    assert not among or among[0].confidence <= alone[0].confidence


# What has to hold for every machine.

faults = st.sampled_from(
    [faulty.HEALTHY]
    + [
        make(layout, 2, 0.25)
        for layout in (faulty.two_packages(2),)
        for make in (faulty.weak_channel, faulty.slow_memory, faulty.slow_cores)
    ]
    + [faulty.slow_direction(faulty.two_packages(2), (1, 3), 0.25)]
)
seeds = st.integers(0, 10_000)


def key(found, of=lambda node: node):
    """What was found, apart from words: kind, cells under other names, loss."""
    return sorted(
        (one.kind, sorted((of(i), of(j)) for i, j in one.cells), round(one.loss_percent, 4))
        for one in found.anomalies
    )


@few
@given(faults, seeds, st.floats(1e-3, 1e3), st.permutations(range(4)), st.permutations(range(4)))
def test_neither_unit_nor_order_nor_ascending_numbers_matter(fault, seed, factor, rows, columns):
    measured = measure(faulty.two_packages(2), rng(seed), fault)
    other = (3, 8, 9, 252)
    samples = {pair: tuple(factor * v for v in own) for pair, own in measured.samples.items()}
    changed = replace(measured, initiators=tuple(rows), targets=tuple(columns), samples=samples)
    changed = faulty.renamed(changed, other)
    assert key(analyse_matrix(changed)) == key(analyse_matrix(measured), other.__getitem__)


@few
@given(seeds, st.permutations(range(4)), st.integers(0, 3))
@example(140, [0, 3, 2, 1], 0)  # by chance the pairs 0, 1 and 2, 3 are 3.5 % faster than the others
def test_equal_nodes_can_change_numbers(seed, order, slow):
    layout = faulty.full_mesh(4)
    measured = measure(layout, rng(seed), faulty.slow_memory(layout, slow, 0.25))
    found = key(analyse_matrix(measured), order.__getitem__)
    assert found
    assert key(analyse_matrix(faulty.renamed(measured, order))) == found


@few
@given(seeds, st.floats(0.12, 0.3), st.floats(0.05, 0.4))
def test_the_loss_grows_with_the_fault(seed, loss, more):
    layout = faulty.two_packages(2)
    losses = []
    for share in (loss, loss + more):
        found = analyse_matrix(measure(layout, rng(seed), faulty.weak_channel(layout, 1, share)))
        one = next(one for one in found.anomalies if one.kind == "slow_component")
        losses.append(one.loss_percent)
    assert losses[0] < losses[1]


def test_a_remote_cell_above_local_is_not_the_reference_of_its_group(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("node,0,1\n0,100,120\n1,40,100\n")
    found = analyse_matrix(read_matrix_csv(path, "bandwidth"))
    assert (found.anomalies, [one.kind for one in found.suspicions]) == (
        (),
        ["remote_better_than_local"],
    )
    assert (found.suspicions[0].initiator, found.suspicions[0].target) == (0, 1)


@pytest.mark.parametrize(("replicated", "known"), [(1, False), (7, False), (8, True), (16, True)])
def test_a_few_replicated_cells_among_many_single_ones_do_not_decide_the_noise(replicated, known):
    samples = {
        (i, j): [40e9, 40.4e9][: 1 + (4 * i + j < replicated)] for i in range(4) for j in range(4)
    }
    values = pd.Series(samples).explode()
    assert (score_cells(BANDWIDTH, values, range(4), range(4)).freedom > 0.0) == known


def capped(layout, node, most, noise=0.01, n=3):
    """A matrix of a machine on which the memory of a node carries at most a share of local."""
    shares = layout.table()
    shares[:, node] = np.minimum(shares[:, node], most)
    limited = faulty.Layout(
        layout.name, lambda i, j: float(shares[i, j]), layout.nodes, layout.packages
    )
    return measure(limited, rng(7), n=n, noise=noise)


@pytest.mark.parametrize("most", [0.7, 0.6])
def test_a_memory_that_limits_only_near_nodes_is_one_finding(most):
    layout = faulty.two_packages(4)
    (one,) = analyse_matrix(capped(layout, 5, most), layout.packages).anomalies
    assert (one.kind, one.components) == ("slow_component", ("node5",))
    # The far nodes get 45 % of local bandwidth, as they always did.
    assert set(one.cells) == {(4, 5), (5, 5), (6, 5), (7, 5)}


@pytest.mark.parametrize(("values", "found"), [((0.7, 0.7), True), ((1.0, 0.5), False)])
def test_two_replicates_that_contradict_each_other_are_no_evidence(values, found):
    layout = faulty.two_packages(2)
    measured = measure(layout, rng(), n=2, noise=0.005)
    first, second = measured.samples[2, 2]
    samples = {**measured.samples, (2, 2): (first * values[0], second * values[1])}
    assert bool(analyse_matrix(replace(measured, samples=samples)).anomalies) == found


def test_a_block_of_few_cells_has_no_drift():
    samples = {(i, j): [40e9, 40e9] if i == j == 0 else [40e9] for i in range(4) for j in range(4)}
    samples[0, 0] = [20e9, 40e9]  # disturbed, and measured again
    values = pd.Series(samples).explode()
    blocks = [block for own in samples.values() for block in range(1, 1 + len(own))]
    cells = score_cells(BANDWIDTH, values, range(4), range(4), blocks)
    assert np.exp(cells.log_score[0, 0]) == pytest.approx(np.sqrt(20e9 * 40e9))
