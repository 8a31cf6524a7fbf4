"""Sort the points of a plan by how much they show of a machine that is not measured yet.

A run with a budget measures points of priority 0 first and always, then points of priority 1, and
so on. The priority follows from the structure of a point's loads, so it holds for every experiment.

n nodes with drives have 2^n - 1 drive sets. A set with more drives never gets less bandwidth, and a
set never gets more than its parts together. So the bandwidth of most sets follows from their parts,
and from the drives of two nodes together, which show whether these nodes share a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from chaosity.cpusets import parse_cpu_list
from chaosity.records.record_format import Load, Point
from chaosity.rounds.round_types import OVERHEAD_SECONDS, PointKey, point_key
from chaosity.topology.topology_model import Topology

NODE, NODES = "node", "nodes"
# Kinds of initiators with all cores of all nodes of a package or of the machine.
WHOLE_PARTS = ("package", "machine")
# Name of the level with the size of a working set; `store.measurements` has it too, but imports
# pandas.
_WORKING_SET = "bytes"
# Name of the level with the second core of a core-to-core transfer.
_RESPONDER = "responder"
# Drives of at most this many nodes are measured early, since two nodes show whether they share a
# path.
_PAIR = 2


class Priority(IntEnum):
    """Which points a run with a budget chooses first: those with the smallest number.

    The points of a round are then measured in random order.
    """

    # Node matrices: initiators to memory, to all drives of each node, and to all drives; memory of
    # whole packages.
    MATRIX = 0
    # Drives of two nodes of one package together, read by one node of each other package.
    SHARED_LINKS = 1
    DRIVES = 2  # each drive from its own node, and all drives of a package
    # Drives of any other two nodes together, read by one node of each package. Transfers between
    # the first cores of two nodes.
    SHARED_PATHS = 3
    ALONE = 4  # other loads alone: caches, cores, other pairs, and some drives of their own node
    TOGETHER = 5  # several loads at the same time; points that equal an earlier point of the plan
    OTHER_INITIATORS = 6  # pairs of nodes from other initiators, and drives from other nodes
    PREDICTED = 7  # drives of more nodes, whose bandwidth follows from their parts


def point_priorities(points: Iterable[Point], topology: Topology) -> dict[PointKey, Priority]:
    """Return the priority of each point of a plan.

    A point that runs the same commands as an earlier point of the plan shows nothing new. An
    example is the load alone to which an interference refers; such a point has the priority
    `TOGETHER`.
    """
    found: dict[PointKey, Priority] = {}
    seen: set[object] = set()
    for point in points:
        commands = tuple(
            (*load["command"], *load["files"].items(), *load["environment"].items())
            for load in point["loads"]
        )
        priority = point_priority(point, topology)
        if commands in seen:
            priority = max(priority, Priority.TOGETHER)
        found[point_key(point)] = priority
        seen.add(commands)
    return found


def point_priority(point: Point, topology: Topology) -> Priority:
    """Return the priority of a point on a machine, without regard to other points of the plan."""
    loads = point["loads"]
    of_memory = not loads[0]["target"]["drives"]
    if of_memory and (is_node_matrix_cell(loads) or _is_of_packages(loads)):
        return Priority.MATRIX
    if len(loads) > 1:
        return Priority.TOGETHER
    [load] = loads
    if not load["target"]["drives"]:
        cores = _RESPONDER in load.get("levels", {}) and _is_pair_of_first_cores(load, topology)
        return Priority.SHARED_PATHS if cores else Priority.ALONE
    nodes, initiators = set(load["target"]["nodes"]), set(load["initiator"]["nodes"])
    if len(nodes) <= 1:
        own = not nodes or nodes <= initiators
        if load["target"]["kind"] == "all_of_node" or _is_first_drive_of_its_node(load, topology):
            return Priority.MATRIX
        if not own:
            return Priority.OTHER_INITIATORS
        return Priority.DRIVES if load["target"]["kind"] == "drive" else Priority.ALONE
    packages = _nodes_of_packages(topology)
    if nodes == {drive.node for drive in topology.drives if drive.name}:
        return Priority.MATRIX
    if nodes in packages.values():
        return Priority.DRIVES
    if len(nodes) > _PAIR:
        return Priority.PREDICTED
    first = {min(members) for members in packages.values() if members}
    if not initiators & first:
        return Priority.OTHER_INITIATORS
    crosses = any(nodes <= members and not initiators & members for members in packages.values())
    return Priority.SHARED_LINKS if crosses else Priority.SHARED_PATHS


def kind_of_contention(point: Point, topology: Topology) -> frozenset[object] | None:
    """Return which kinds of shared resources a point loads; None for most loads of one node.

    A load of one core also has a kind: it shows whether cores or a shared resource limit the loads
    of several cores. Points of one kind load resources of the same kinds: drives or memory, the
    controllers of the initiator's node, links within a package, and links to other packages.
    """
    loads = point["loads"]
    if len(loads) == 1 and len(loads[0]["initiator"]["nodes"]) <= 1:
        [load] = loads
        memory = not load["target"]["drives"] and "latency_ns" not in load["metrics"]
        one_core = memory and len(load["placement"]["cpus"]) == 1
        return frozenset({"one core"}) if one_core else None
    packages = {node: own for own, nodes in _nodes_of_packages(topology).items() for node in nodes}
    return frozenset(
        (
            bool(load["target"]["drives"]),
            "latency_ns" in load["metrics"],
            _WORKING_SET in load.get("levels", {}),
            0 if target == node else 1 if packages.get(target) == packages.get(node) else 2,
        )
        for load in loads
        for node in load["initiator"]["nodes"]
        for target in load["target"]["nodes"]
    )


def is_node_matrix_cell(loads: list[Load]) -> bool:
    """Return whether a point measures one node's memory, by a node's cores or a latency load.

    A point of a sweep over sizes of working sets, or of a pair of cores, is no cell of such a
    matrix.
    """
    [load, *others] = loads
    levels = load.get("levels", {})
    return (
        not others
        and load["target"]["kind"] == NODE
        and len(load["target"]["nodes"]) == 1
        and (load["initiator"]["kind"] == NODE or "latency_ns" in load["metrics"])
        and levels.keys().isdisjoint({_WORKING_SET, _RESPONDER})
    )


def _is_pair_of_first_cores(load: Load, topology: Topology) -> bool:
    """Return whether each core of a load is the first core of a node."""
    first = {node.cpus[0] for node in topology.initiator_nodes}
    return first.issuperset(parse_cpu_list(load["placement"]["cpus"]))


def _is_of_packages(loads: list[Load]) -> bool:
    """Return whether all cores of a package or machine access the memory of several nodes.

    Such points are few, and no other points fill the links between packages.
    """
    [load, *others] = loads
    return (
        not others and load["target"]["kind"] == NODES and load["initiator"]["kind"] in WHOLE_PARTS
    )


def _is_first_drive_of_its_node(load: Load, topology: Topology) -> bool:
    """Return whether a load reads one drive that is the only drive of its node."""
    [drive, *others] = load["target"]["drives"]
    beside = [each for each in topology.drives if each.node == drive["node"]]
    return not others and len(beside) <= 1


def _nodes_of_packages(topology: Topology) -> Mapping[int, set[int]]:
    """Return package -> the nodes of this package."""
    return {package.os_index: set(package.nodes) for package in topology.packages}


def least_budget_seconds(points: Sequence[Point], topology: Topology) -> float:
    """Return the seconds that are enough to measure every cell of the node matrices once."""
    priorities = point_priorities(points, topology)
    matrix = [each for each in points if priorities[point_key(each)] == Priority.MATRIX]
    return sum(point["estimated_seconds"] + OVERHEAD_SECONDS for point in matrix)
