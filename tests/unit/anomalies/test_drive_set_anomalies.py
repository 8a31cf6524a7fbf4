"""Drives that are slow together are found with their nodes, and nothing on healthy machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host
from chaosity.cpusets import format_cpu_list
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS

GB = 1e9
DRIVE, LIMIT, FAR = 7.0 * GB, 31.0 * GB, 20.0 * GB  # a drive, an initiator, a node from afar
PACKAGES = ((0, 1, 2, 3), (4, 5, 6, 7))
PER_NODE = 3

# Node -> numbers of its drives that are read.
DriveSet = Mapping[int, tuple[int, ...]]
Rate = Callable[[int, DriveSet], float]


def package(node: int) -> int:
    return node // 4


def drive(node: int, number: int) -> str:
    return f"drive-0000-{node}1-{number:02}-0"


def healthy(initiator: int, drives: DriveSet) -> float:
    """The bandwidth without a fault: of each node, and at most what the initiator can take."""
    near = [package(node) == package(initiator) for node in drives]
    each = [
        min(DRIVE * len(own), LIMIT if is_near else FAR)
        for own, is_near in zip(drives.values(), near, strict=True)
    ]
    return min(sum(each), LIMIT)


def sets(sizes: Iterable[int]) -> list[tuple[str, str, DriveSet]]:
    """Name, kind and drives: each drive, the first two, all of a node, of so many nodes."""
    every = tuple(range(PER_NODE))
    found: list[tuple[str, str, DriveSet]] = []
    for node in range(8):
        found += [(drive(node, number), "drive", {node: (number,)}) for number in every]
        found.append((f"node{node}drives2", "first_of_node", {node: every[:2]}))
        found.append((f"node{node}drives", "all_of_node", {node: every}))
    for size in sizes:
        for nodes in itertools.combinations(range(8), size):
            name = f"nodes{format_cpu_list(nodes)}drives"
            found.append((name, "all_of_nodes", dict.fromkeys(nodes, every)))
    return found


def table(
    rate: Rate = healthy,
    noise: float = 0.01,
    seed: int = 1,
    metric: str = "bandwidth",
    sizes: Iterable[int] = (2,),
) -> pd.DataFrame:
    """The tidy table of all sets, read from each node, with three replicates."""
    random = np.random.default_rng(seed)
    relations = ("same_node", "same_package", "other_package")
    rows = []
    for initiator, (name, kind, drives) in itertools.product(range(8), sets(sizes)):
        ways = [
            0 if node == initiator else 1 + (package(node) != package(initiator)) for node in drives
        ]
        for replicate in (1, 2, 3):
            row = {
                "host": "h",
                "experiment": "storage_bandwidth",
                "point": f"storage=node{initiator}+{name}",
                "replicate": replicate,
                "status": "valid",
                "load": "storage",
                "benchmark": "fio_sequential_read",
                "initiator": f"node{initiator}",
                "initiator_kind": "node",
                "initiator_nodes": str(initiator),
                "target": name,
                "target_kind": kind,
                "target_nodes": format_cpu_list(drives),
                "drives": sum(map(len, drives.values())),
                "file_backed": False,
                "relation": relations[max(ways)],
                "metric": f"{metric}_bytes_per_second" if metric == "bandwidth" else metric,
                "factors": "{}",
                "levels": "{}",
                "value": rate(initiator, drives) * float(np.exp(random.normal(0.0, noise))),
            }
            rows.append(row)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


FACTS = HostComponentFacts(
    packages=PACKAGES,
    models={drive(node, number): "m" for node in range(8) for number in range(PER_NODE)},
)


def found(tidy: pd.DataFrame, facts: HostComponentFacts = FACTS) -> tuple[Anomaly, ...]:
    return analyse_host(Measurements.from_table(tidy), facts).anomalies


def limited(nodes: set[int], limit: float, readers: set[int]) -> Rate:
    """A machine on which drives of these nodes share a path of this bandwidth to the readers."""

    def rate(initiator: int, drives: DriveSet) -> float:
        if initiator not in readers:
            return healthy(initiator, drives)
        shared = {node: own for node, own in drives.items() if node in nodes}
        others = {node: own for node, own in drives.items() if node not in nodes}
        through = min(limit, healthy(initiator, shared)) if shared else 0.0
        return min(through + (healthy(initiator, others) if others else 0.0), LIMIT)

    return rate


def test_a_path_that_two_nodes_share_is_named_with_its_loss_and_initiators():
    (one,) = found(table(limited({4, 7}, 24 * GB, {0, 1, 2, 3})))
    assert (one.kind, one.components) == (AnomalyKind.SLOW_PATH, ("node4", "node7"))
    assert (one.initiator, one.target, one.n) == (None, "nodes4,7drives", 3)
    assert one.loss_percent == pytest.approx(100 * (1 - 24 / 31), abs=2.0)
    assert one.loss_percent_low < 100 * (1 - 24 / 31) < one.loss_percent_high
    assert one.confidence > 0.999
    assert one.sentence.startswith(
        "The drives of nodes 4 and 7 are slow together, read from nodes 0, 1, 2 and 3:"
    )
    assert set(one.cells) == {(f"node{node}", "nodes4,7drives") for node in range(4)}
    assert "Read these drives from their own package" in one.advice
    assert one.evidence_sentence.startswith("Slow together: the drives of nodes 4 and 7; loss")
    several_sets = replace(one, components=("node7",), target=None)
    assert several_sets.suspected_words == "Slow together: the drives of node 7"


def test_that_a_new_drive_does_not_help_is_said_only_if_each_drive_is_known_to_be_fast():
    slow = limited({4, 7}, 24 * GB, {0, 1, 2, 3})
    said = ("None of these drives is slow alone, so replacing a drive does not help.",)
    (one,) = found(table(slow))
    assert one.also == said
    tidy = table(slow)
    (one,) = found(tidy[tidy["target"] != drive(4, 0)])  # not read alone
    assert one.also == ()
    slower = tidy.copy()
    slower.loc[slower["target"] == drive(4, 0), "value"] *= 0.9
    [pair] = [one for one in found(slower) if one.components == ("node4", "node7")]
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
            {"initiator": "node3", "target": drive(1, 0), "components": (drive(1, 0),)},
            "Slow path: node 3 reading drive 0000:11:00.0",
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
def test_a_path_says_who_uses_what(given, words):
    (one,) = found(table(limited({4, 7}, 24 * GB, {0, 1, 2, 3})))
    cells = ((given.get("initiator", 0), given.get("target", 1)),)
    unnamed = {"initiator": None, "target": None, "cells": cells}
    assert replace(one, **(unnamed | given)).suspected_words == words


def test_the_same_path_in_both_directions_is_two_findings_of_two_nodes():
    there = limited({4, 7}, 24 * GB, {0, 1, 2, 3})
    back = limited({0, 3}, 24 * GB, {4, 5, 6, 7})
    both = found(table(lambda i, drives: min(there(i, drives), back(i, drives))))
    assert {one.components for one in both} == {("node0", "node3"), ("node4", "node7")}


@pytest.mark.parametrize("nodes", [{4, 7}, {4, 5, 7}])
def test_a_path_that_carries_less_than_one_node_is_one_finding_of_all_its_nodes(nodes):
    (one,) = found(table(limited(nodes, 15 * GB, {0, 1, 2, 3}), sizes=(2, 3)))
    assert one.components == tuple(f"node{node}" for node in sorted(nodes))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("metric", "share"), [("reads_per_second", 0.9), ("completion_latency_ns", 3.0)]
)
def test_a_slow_drive_explains_the_loss_of_its_sets_once(metric, share):
    bandwidth, single = table(limited({4, 7}, 24 * GB, {0, 1, 2, 3})), table(metric=metric)
    bandwidth.loc[bandwidth["target"] == drive(4, 0), "value"] *= 0.9
    single.loc[single["target"] == drive(4, 0), "value"] *= share
    single = single[single["target_kind"] == "drive"].assign(experiment="storage_latency")
    paths = [one.components for one in found(pd.concat([bandwidth, single], ignore_index=True))]
    assert ((drive(4, 0),) in paths) and (("node4", "node7") in paths) == (share < 1.0)


def test_larger_sets_that_lose_as_much_are_explained_by_the_smallest():
    def rate(initiator: int, drives: DriveSet) -> float:
        slow = {4, 7} <= set(drives) and initiator < 4
        return healthy(initiator, drives) * (0.8 if slow else 1.0)

    (one,) = found(table(rate, sizes=(2, 3)))
    assert one.components == ("node4", "node7")
    # The finding has the cells of the larger sets too: six other nodes make a set of three.
    assert len(one.cells) == 4 * (1 + 6)


def test_a_port_of_two_drives_is_named_with_its_drives():
    def rate(initiator: int, drives: DriveSet) -> float:
        behind = len({0, 1} & set(drives.get(1, ())))
        return min(healthy(initiator, drives), sum(map(len, drives.values())) * DRIVE) - (
            DRIVE if behind == 2 and len(drives) == 1 else 0.0
        )

    (one,) = found(table(rate))
    assert one.components == ("node1", drive(1, 0), drive(1, 1))
    assert (
        "The first 2 drives of node 1 are slow together, read from all initiators" in one.sentence
    )
    assert one.loss_percent == pytest.approx(50, abs=2)


def test_the_path_from_the_drives_of_one_node_of_a_package_is_found():
    (one,) = found(table(limited({6}, 12 * GB, {0, 1, 2, 3})))
    assert one.components == ("node6",)
    assert one.loss_percent == pytest.approx(40, abs=2)


@pytest.mark.parametrize("unmeasured", [[], ["0", "1", "2"]])
def test_drives_of_a_whole_package_that_are_slow_for_another_are_one_path(unmeasured):
    """Also if most of the comparable sets that are measured use this path."""

    def rate(initiator: int, drives: DriveSet) -> float:
        each = [
            min(healthy(initiator, {node: own}), 14 * GB if initiator < 4 <= node else LIMIT)
            for node, own in drives.items()
        ]
        return min(sum(each), LIMIT)

    tidy = table(rate)
    fast = tidy["initiator"].isin(["node4", "node5", "node6", "node7"])
    tidy = tidy[~(fast & tidy["target_nodes"].isin(unmeasured))]
    (one,) = found(tidy)
    assert one.components == ("package0->package1",)
    assert (one.initiator, one.target) == ("package0", "package1")
    assert one.sentence.startswith("Package 0 reads the drives of package 1 slowly: ")
    assert one.loss_percent == pytest.approx(30, abs=2)


KNOWN_DRIVES = replace(
    FACTS, drives={node: [drive(node, number) for number in range(PER_NODE)] for node in range(8)}
)


def node_sets_of(rate: Rate) -> pd.DataFrame:
    """The table of a machine whose drives were read by whole nodes only, as in a short budget."""
    tidy = table(rate)
    return tidy[tidy["target_kind"] == "all_of_node"]


def test_a_slow_path_is_found_without_reading_drives_alone():
    tidy = node_sets_of(limited({6}, 12 * GB, {0, 1, 2, 3}))
    (one,) = found(tidy, KNOWN_DRIVES)
    assert one.kind == AnomalyKind.SLOW_PATH
    assert one.components[0] == "node6"
    # Unnamed drives have no model, so their nodes cannot be compared.
    assert found(tidy) == ()


def test_drives_that_were_not_read_alone_are_named_with_their_node():
    """One of them may be slow alone."""
    tidy = node_sets_of(limited({6}, 12 * GB, {0, 1, 2, 3}))
    (one,) = found(tidy, KNOWN_DRIVES)
    assert one.components == ("node6", *(drive(6, number) for number in range(PER_NODE)))


def test_healthy_node_sets_alone_have_no_finding():
    assert found(node_sets_of(healthy), KNOWN_DRIVES) == ()


def test_names_are_not_used_if_some_drives_of_a_node_were_left_out():
    """Which ones were read is then unknown."""
    tidy = node_sets_of(limited({6}, 12 * GB, {0, 1, 2, 3}))
    more = {node: [*names, f"system{node}"] for node, names in KNOWN_DRIVES.drives.items()}
    assert found(tidy, replace(FACTS, drives=more)) == ()


def test_two_nodes_of_one_node_packages_are_compared_with_each_other():
    tidy = table(limited({4}, 12 * GB, {0}))
    kept = tidy["initiator"].isin(["node0", "node4"]) & tidy["target_nodes"].isin(["0", "4", "0,4"])
    facts = HostComponentFacts(packages=((0,), (4,)), models=FACTS.models)
    (one,) = found(tidy[kept], facts)
    assert one.components == ("package0->package1",)


# Cases without a fault of several drives together.


def test_a_slow_initiator_is_not_a_slow_drive_set():
    assert (
        found(table(lambda i, drives: min(healthy(i, drives), 16 * GB if i == 2 else LIMIT))) == ()
    )


def test_a_slow_drive_explains_the_sets_with_it():
    """A set is not accused, even if it is read no faster than its slowest drive."""

    def rate(initiator: int, drives: DriveSet) -> float:
        return healthy(initiator, drives) * (0.3 if 1 in drives.get(5, ()) else 1.0)

    kinds = [(one.kind, one.components) for one in found(table(rate))]
    assert (AnomalyKind.SLOW_COMPONENT, (drive(5, 1),)) in kinds
    assert AnomalyKind.SLOW_PATH not in [kind for kind, _ in kinds]


def test_pairs_that_share_a_path_over_the_whole_machine_are_its_structure():
    pairs = ({0, 1}, {2, 3}, {4, 5}, {6, 7})

    def rate(initiator: int, drives: DriveSet) -> float:
        slow = any(pair <= set(drives) for pair in pairs)
        return healthy(initiator, drives) * (0.75 if slow else 1.0)

    def slow_paths() -> list[tuple[str, ...]]:
        return [one.components for one in found(table(rate)) if one.kind == AnomalyKind.SLOW_PATH]

    assert slow_paths() == []
    # One pair alone is a fault.
    pairs = ({0, 1},)
    assert slow_paths() == [("node0", "node1")]


def test_latencies_of_drive_sets_do_not_add_up():
    tidy = table(lambda _, drives: 1e-9 * sum(map(len, drives.values())), metric="latency_ns")
    assert found(tidy) == ()


def test_drives_of_unknown_models_are_not_compared_with_other_nodes():
    facts = HostComponentFacts(packages=PACKAGES)
    assert found(table(limited({6}, 12 * GB, set(range(8)))), facts) == ()


@pytest.mark.thorough
def test_noise_is_no_finding():
    """At most one of 20 machines has a finding; two would have one with a probability of 2 %."""
    true, random = table(noise=0.0), np.random.default_rng(1)
    noise = (np.exp(random.normal(0.0, 0.02, len(true))) for _ in range(20))
    assert sum(bool(found(true.assign(value=true["value"] * each))) for each in noise) <= 1
