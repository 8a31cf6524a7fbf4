"""Drives that are slow together are found with their nodes, and nothing on healthy machines."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host
from chaosity.cpusets import parse_cpu_list
from chaosity.documents.machines import Fault
from chaosity.store.measurements import Measurements
from machines import SimulatedHost, planned
from table_rows import scaled

# A drive of node 4, and one of node 5.
DRIVE, OTHER = "drive-0000-41-00-0", "drive-0000-51-00-0"
NEAR, FAR = [f"node{node}" for node in range(4)], [f"node{node}" for node in range(4, 8)]


def server(*faults: Fault, most_nodes: int = 2, noise: float = 0.01) -> SimulatedHost:
    """A server with two packages of four nodes, and 30 drives; sets of so many nodes are read."""
    change = {"noise": {"between_runs": noise}}
    names = ["storage_bandwidth"]
    host = planned("epyc_7413", "epyc_7413_nps4", faults, change=change, experiments=names)
    return host.where(lambda point: len(point["loads"][0]["target"]["nodes"]) <= most_nodes)


def shared(*nodes: int, remaining: float = 0.5, to_package: int = 0) -> Fault:
    """The drives of these nodes share a path to a package."""
    path: Fault = {"fault": "shared_drive_path", "drive_nodes": [*nodes], "remaining": remaining}
    return {**path, "to_package": to_package}


def slow_path(node: int, remaining: float = 0.4) -> Fault:
    """The drives of a node of the second package have a slow path to the first."""
    path: Fault = {"fault": "slow_drive_path", "drive_node": node, "remaining": remaining}
    return {**path, "to_package": 0}


FACTS = server().component_facts
WITHOUT_NAMES = replace(FACTS, drives={})


def found(table: Measurements, facts: HostComponentFacts = FACTS) -> tuple[Anomaly, ...]:
    return analyse_host(table, facts).anomalies


def sets_with(table: Measurements, nodes: Collection[int]) -> list[str]:
    """The drive sets with drives of all these nodes."""
    sets = table.rows.drop_duplicates("target")
    own = [set(nodes) <= set(parse_cpu_list(text)) for text in sets["target_nodes"]]
    return sets.loc[own, "target"].to_list()


@pytest.fixture(scope="module")
def healthy() -> Measurements:
    return server().table(1)


@pytest.fixture(scope="module")
def slow_pair() -> Measurements:
    return server(shared(4, 7)).table(1)


def test_a_path_that_two_nodes_share_is_named_with_its_loss_and_initiators(slow_pair):
    (one,) = found(slow_pair)
    assert (one.kind, one.components) == (AnomalyKind.SLOW_PATH, ("node4", "node7"))
    assert (one.initiator, one.target, one.n) == (None, "nodes4,7drives", 3)
    true = server().true_table, server(shared(4, 7)).true_table
    fast, slow = (
        each.where(initiator="node0", target="nodes4,7drives").rows["value"].iloc[0]
        for each in true
    )
    assert one.loss_percent == pytest.approx(100 * (1 - slow / fast), abs=2.0)
    assert one.loss_percent_low < 100 * (1 - slow / fast) < one.loss_percent_high
    assert one.confidence > 0.999
    assert one.sentence.startswith(
        "The drives of nodes 4 and 7 are slow together, read from nodes 0, 1, 2 and 3:"
    )
    assert set(one.cells) == {(node, "nodes4,7drives") for node in NEAR}
    assert "Read these drives from their own package" in one.advice
    assert one.evidence_sentence.startswith("Slow together: the drives of nodes 4 and 7; loss")


def test_that_a_new_drive_does_not_help_is_said_only_if_each_drive_is_known_to_be_fast(slow_pair):
    said = ("None of these drives is slow alone, so replacing a drive does not help.",)
    (one,) = found(slow_pair)
    assert one.also == said
    not_alone = slow_pair.rows["target"] != DRIVE
    (one,) = found(slow_pair.select(not_alone))
    assert one.also == ()
    slower = found(scaled(slow_pair, 0.9, target=DRIVE))
    [pair] = [one for one in slower if one.components == ("node4", "node7")]
    assert pair.also == ()
    # Only its latency shows that the drive is slow.
    latency = scaled(slow_pair.where(target_kind="drive"), 1.1, target=DRIVE)
    latency = latency.with_columns(metric="completion_latency_ns", experiment="storage_latency")
    slower = found(Measurements.concatenated([slow_pair, latency]))
    [pair] = [one for one in slower if one.components == ("node4", "node7")]
    assert pair.also == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"components": ("package0->package1",), "cells": ((0, 4),)},
            "Slow path: accesses by package 0 to the memory of package 1",
        ),
        (
            {"components": ("node1->node3",), "cells": ((1, 3), (3, 1))},
            "Slow path: accesses by node 1 to the memory of node 3, and in the opposite direction",
        ),
        (
            {"components": ("package0->package1",), "cells": (("node0", "node4drives"),)},
            "Slow path: package 0 reading the drives of package 1",
        ),
        (
            {"initiator": "node3", "target": DRIVE, "components": (DRIVE,)},
            "Slow path: node 3 reading drive 0000:41:00.0",
        ),
        (
            {"target": 3, "components": ("node3",), "cells": ((0, 3), (1, 3))},
            "Slow path: all accesses from other nodes to the memory of node 3",
        ),
        (
            {"kind": AnomalyKind.SLOW_COMPONENT, "components": ("link package1->package0",)},
            "Slow component: the link from package 1 to package 0",
        ),
    ],
)
def test_a_path_says_who_uses_what(given, words, slow_pair):
    (one,) = found(slow_pair)
    cells = ((given.get("initiator", 0), given.get("target", 1)),)
    unnamed = {"initiator": None, "target": None, "cells": cells}
    assert replace(one, **(unnamed | given)).heading == words


def test_the_same_path_in_both_directions_is_two_findings_of_two_nodes():
    both = found(server(shared(4, 7), shared(0, 3, to_package=1)).table(1))
    assert {one.components for one in both} == {("node0", "node3"), ("node4", "node7")}


@pytest.mark.parametrize("nodes", [(4, 7), (4, 5, 7)])
def test_a_path_that_carries_less_than_one_node_is_one_finding_of_all_its_nodes(nodes):
    host = server(shared(*nodes, remaining=0.15), most_nodes=3)
    (one,) = found(host.table(1))
    assert one.components == tuple(f"node{node}" for node in nodes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("metric", "share"), [("reads_per_second", 0.9), ("completion_latency_ns", 3.0)]
)
def test_a_slow_drive_explains_the_loss_of_its_sets_once(metric, share, healthy, slow_pair):
    alone = scaled(healthy.where(target_kind="drive"), share, target=DRIVE)
    alone = alone.with_columns(metric=metric, experiment="storage_latency")
    both = Measurements.concatenated([scaled(slow_pair, 0.9, target=DRIVE), alone])
    paths = [one.components for one in found(both)]
    assert ((DRIVE,) in paths) and (("node4", "node7") in paths) == (share < 1.0)


def test_larger_sets_that_lose_as_much_are_explained_by_the_smallest():
    table = server(most_nodes=3).table(1)
    (one,) = found(scaled(table, 0.8, target=sets_with(table, {4, 7}), initiator=NEAR))
    assert one.components == ("node4", "node7")
    # The finding has the cells of the larger sets too: six other nodes make a set of three.
    assert len(one.cells) == 4 * (1 + 6)


@pytest.mark.parametrize("unmeasured", [[], ["1", "2"]])
def test_drives_of_a_whole_package_that_are_slow_for_another_are_one_path(unmeasured):
    """Also if most of the comparable sets that are measured use this path."""
    table = server(*(slow_path(node) for node in range(5, 8))).table(1)
    left_out = table.rows["initiator"].isin(FAR) & table.rows["target_nodes"].isin(unmeasured)
    left_out |= table.rows["target"].isin([*sets_with(table, {0}), *sets_with(table, {4})])
    (one,) = found(table.select(~left_out))  # other nodes have four drives and not three
    assert one.components == ("package0->package1",)
    assert (one.initiator, one.target) == ("package0", "package1")
    assert one.sentence.startswith(
        "From package 0, the 4 drives of one node of package 1 are read slowly: "
    )


def test_nodes_with_fewer_drives_are_part_of_the_path_between_their_packages():
    """Node 4 has three drives: parts of other nodes have as many, and are as slow."""
    table = server(*(slow_path(node) for node in range(4, 8))).table(1)
    left_out = table.rows["initiator"].isin(FAR) & table.rows["target_nodes"].isin(["1", "2"])
    (one,) = found(table.select(~left_out))
    assert one.components == ("package0->package1",)


def test_the_path_from_the_drives_of_one_node_of_a_package_is_found():
    (one,) = found(server(slow_path(6)).table(1))
    assert one.components == ("node6",)


@pytest.mark.parametrize(
    ("node4_readers", "unmeasured"),
    [(NEAR, "12"), (NEAR, "012"), (["node0"], "12"), (["node0"], "012")],
)
def test_three_slow_paths_are_not_the_path_of_a_package_with_a_fast_fourth(
    node4_readers, unmeasured
):
    """Also if they are most of the comparable paths that were measured."""
    table = server(*(slow_path(node) for node in (5, 6, 7))).table(1)
    rows = table.rows
    left_out = rows["initiator"].isin(FAR) & rows["target_nodes"].isin([*unmeasured])
    unread = rows["target"].isin(sets_with(table, {4})) & rows["initiator"].isin(NEAR)
    left_out |= unread & ~rows["initiator"].isin(node4_readers)
    reported = found(table.select(~left_out))
    assert {one.target for one in reported} == {"node5drives", "node6drives", "node7drives"}
    assert {one.components for one in reported} == {("node5",), ("node6",), ("node7",)}


def test_the_drives_of_one_node_do_not_show_that_the_path_of_its_package_is_slow():
    table = server(slow_path(5)).table(1)
    read = [name for node in (4, 6, 7) for name in sets_with(table, {node})]
    left_out = table.rows["initiator"].isin(NEAR) & table.rows["target"].isin(read)
    (one,) = found(table.select(~left_out))
    assert one.components == ("node5",)


def test_the_numbers_of_a_path_between_packages_are_those_of_comparable_sets():
    """The path carries as much for three drives as for four, so it loses less with three."""
    table = server(*(slow_path(node, 0.7) for node in range(4, 8))).table(1)
    read = table.rows["initiator"].isin(NEAR) & table.rows["target_nodes"].isin(["6", "7"])
    table = table.select(~read)
    (one,) = found(table)
    assert one.sentence.startswith("From package 0, the 4 drives of one node of package 1 are")
    observed = table.where(initiator=NEAR, target="node5drives").rows["value"].median()
    others = [f"node{node}drives" for node in (1, 2, 3)]
    expected = table.where(initiator=FAR, target=others).rows["value"].median()
    assert one.observed == pytest.approx(observed, rel=0.01)
    assert one.expected == pytest.approx(expected, rel=0.01)
    assert one.loss_percent == pytest.approx(100 * (1 - observed / expected), abs=1.0)
    assert one.loss_percent_low < one.loss_percent < one.loss_percent_high
    assert ("node0", "node4drives") in one.cells


def test_a_pair_that_loses_more_than_the_slow_path_of_its_package_is_found():
    table = server(*(slow_path(node) for node in range(4, 8))).table(1)
    both = found(scaled(table, 0.75, initiator=NEAR, target="nodes4,7drives"))
    assert {one.components for one in both} == {("package0->package1",), ("node4", "node7")}


@pytest.mark.parametrize(
    ("faults", "measured"),
    [
        ([slow_path(node, 0.3) for node in (5, 6, 7)], "13"),
        ([shared(4, 5, remaining=0.25), slow_path(6, 0.3)], "123"),
    ],
)
def test_drives_of_three_nodes_carry_at_most_the_sum_of_their_slow_parts(faults, measured):
    """Also if no drives of two nodes were measured."""
    table = server(*faults, most_nodes=3).table(1)
    counts = [str(len(parse_cpu_list(nodes))) for nodes in table.rows["target_nodes"].astype(str)]
    reported = found(table.select([count in measured for count in counts]))
    slow = [fault.get("drive_nodes", [fault.get("drive_node")]) for fault in faults]
    assert {one.components for one in reported} == {
        tuple(f"node{node}" for node in nodes) for nodes in slow
    }


@pytest.mark.parametrize(
    ("readers", "share", "components"),
    [
        # Node 2 should read no other set that was measured faster than this, so it may be slow.
        (["node2"], 0.9, []),
        # It reads the drives of single nodes faster.
        (["node2"], 0.6, [("node4", "node7")]),
        # Four initiators are not slow at the same time.
        (NEAR, 0.9, [("package0->package1",)]),
    ],
)
def test_the_only_pair_that_was_read_is_accused_if_its_reader_is_not_slow(
    readers, share, components, healthy
):
    pair, rows = "nodes4,7drives", healthy.rows
    others = (rows["target_kind"] == "all_of_nodes") & (rows["target"] != pair)
    table = healthy.select(~(others & rows["initiator"].isin(readers)))
    reported = found(scaled(table, share, initiator=readers, target=pair))
    assert [one.components for one in reported] == components


def test_a_slow_path_of_a_drive_to_one_node_explains_no_loss_of_other_nodes(slow_pair):
    reported = found(scaled(slow_pair, 0.3, initiator="node0", target=DRIVE))
    [pair] = [one for one in reported if one.components == ("node4", "node7")]
    assert {node for node, _ in pair.cells} == {"node1", "node2", "node3"}


def test_larger_sets_are_explained_for_initiators_that_did_not_read_the_smallest():
    table = server(most_nodes=3).table(1)
    rows = table.rows
    pair_from_far = rows["initiator"].isin(FAR) & (rows["target"] == "nodes4,7drives")
    slow = scaled(table, 0.8, target=sets_with(table, {4, 7}))
    (one,) = found(slow.select(~pair_from_far))
    assert one.components == ("node4", "node7")


@pytest.fixture(scope="module")
def node_sets() -> Measurements:
    """A table with reads of the drives of whole nodes only, as in a short budget."""
    return server(slow_path(6)).table(1).where(target_kind="all_of_node")


def test_a_slow_path_is_found_without_reading_drives_alone(node_sets):
    (one,) = found(node_sets)
    assert one.kind == AnomalyKind.SLOW_PATH
    # One of the drives may be slow alone.
    assert one.components == ("node6", *FACTS.drives[6])
    # Unnamed drives have no model, so their nodes cannot be compared.
    assert found(node_sets, WITHOUT_NAMES) == ()


def test_names_are_not_used_if_some_drives_of_a_node_were_left_out(node_sets):
    """Which ones were read is then unknown."""
    more = {node: [*names, f"system{node}"] for node, names in FACTS.drives.items()}
    assert found(node_sets, replace(FACTS, drives=more)) == ()


def test_two_nodes_of_one_node_packages_are_compared_with_each_other():
    table = server(slow_path(5)).table(1)
    two = table.where(initiator=["node1", "node5"], target_nodes=["1", "5", "1,5"])
    (one,) = found(two, HostComponentFacts(packages=((1,), (5,)), models=FACTS.models))
    assert one.components == ("package0->package1",)


@pytest.mark.parametrize("share", [0.99, 0.96])
def test_an_initiator_that_reads_other_sets_a_little_faster_is_not_slow(share, healthy):
    """Noise explains a difference of 1 %, but not of 4 %, which is less than a loss."""
    rows, pair = healthy.rows, "nodes4,7drives"
    own = rows["initiator"] == "node2"
    others = (rows["target_kind"] == "all_of_nodes") & (rows["target"] != pair)
    table = healthy.select(~(own & others))
    medians = table.where(initiator="node2").rows.groupby("target")["value"].median()
    fastest = medians.drop(pair).max()
    table = scaled(table, share * fastest / medians[pair], initiator="node2", target=pair)
    assert [one.components for one in found(table)] == [("node4", "node7")] * (share < 0.97)


# Cases without a fault of several drives together.


def test_healthy_node_sets_alone_have_no_finding(healthy):
    assert found(healthy.where(target_kind="all_of_node")) == ()


def test_a_slow_initiator_is_not_a_slow_drive_set(healthy):
    several = ["first_of_node", "all_of_node", "all_of_nodes"]
    assert found(scaled(healthy, 0.5, initiator="node2", target_kind=several)) == ()


def test_a_slow_drive_explains_the_sets_with_it():
    """A set is not accused, even if it is read no faster than its slowest drive."""
    slow: Fault = {"fault": "slow_drive", "drive": OTHER, "remaining": 0.3}
    kinds = [(one.kind, one.components) for one in found(server(slow).table(1))]
    assert (AnomalyKind.SLOW_COMPONENT, (OTHER,)) in kinds
    assert AnomalyKind.SLOW_PATH not in [kind for kind, _ in kinds]


@pytest.mark.parametrize(
    ("pairs", "paths"),
    [
        ([{0, 1}, {2, 3}, {4, 5}, {6, 7}], []),
        # One pair alone is a fault.
        ([{0, 1}], [("node0", "node1")]),
    ],
)
def test_pairs_that_share_a_path_over_the_whole_machine_are_its_structure(pairs, paths, healthy):
    slow = [name for pair in pairs for name in sets_with(healthy, pair)]
    reported = found(scaled(healthy, 0.75, target=slow))
    assert [one.components for one in reported if one.kind == AnomalyKind.SLOW_PATH] == paths


def test_paths_between_far_nodes_of_each_package_are_its_structure(healthy):
    """Each node reads the drives of one node of its package slowly, as across a die."""
    table = healthy
    for node in range(8):
        far = node ^ 2
        own = [name for name in sets_with(healthy, {far}) if name.startswith(f"node{far}")]
        table = scaled(table, 0.75, initiator=f"node{node}", target=own)
    assert found(table) == ()


@pytest.mark.parametrize("readers", [("node0", "node5"), ("node0", "node1")])
def test_two_slow_initiators_neither_hide_a_slow_path_nor_make_one(readers, healthy):
    """They read the drives of all nodes slowly, and some sets have no other initiators."""
    slow = {(reader,) for reader in readers}
    assert {one.components for one in found(scaled(healthy, 0.6, initiator=[*readers]))} == slow
    table = scaled(server(shared(4, 7, remaining=0.25)).table(1), 0.6, initiator=[*readers])
    assert {one.components for one in found(table)} == {*slow, ("node4", "node7")}


def test_a_drive_without_comparable_drives_explains_the_loss_of_its_set():
    """Of two drives of a model, either can be the slow one; their sets are not slow together."""
    slow: Fault = {"fault": "slow_drive", "drive": OTHER, "remaining": 0.5}
    two = server(slow).table(1).where(initiator=["node1", "node5"], target_nodes=["1", "5"])
    models = {
        drive: f"model {number}"
        for node in (1, 5)
        for number, drive in enumerate(sorted(FACTS.drives[node]))
    }
    assert found(two, replace(FACTS, models=models)) == ()


def test_latencies_of_drive_sets_do_not_add_up(healthy):
    latency = 1e-9 * healthy.rows["drives"].astype(float)
    assert found(healthy.with_columns(metric="latency_ns", value=latency)) == ()


def test_drives_of_unknown_models_are_not_compared_with_other_nodes():
    everywhere: Fault = {"fault": "slow_drive_path", "drive_node": 6, "remaining": 0.4}
    facts = HostComponentFacts(packages=FACTS.packages)
    assert found(server(everywhere).table(1), facts) == ()


@pytest.mark.thorough
def test_noise_is_no_finding():
    """At most one of 20 machines has a finding; two would have one with a probability of 2 %."""
    host = server(noise=0.02)
    assert sum(bool(found(host.table(seed))) for seed in range(20)) <= 1
