"""Names of initiators, targets and factor levels: how they sort, group and read on an axis.

`node2` comes before `node10`, nodes of one package stand together, drives of one node stand
together, drive sets are grouped by how many nodes they span.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chaosity.cpusets import parse_cpu_list
from chaosity.units import format_binary_bytes

# Kinds in the order in which they follow one another on an axis: small to large, near to far.
_KINDS = (
    *("pu", "core", "l3", "core_kind", "node", "package", "level", "machine"),
    *("nodes", "file", "drive", "first", "nodeset", "unlocated", "all", "gpu", "opencl"),
    *("relation", "number", "size", "text"),
)
NUMERIC = ("number", "size")
_PLURALS = {
    "pu": "processing units",
    "l3": "L3 domains",
    "core_kind": "kinds of cores",
    "opencl": "OpenCL devices",
    "nodes": "groups of nodes",
    "drive": "single drives",
    "first": "first drives of a node",
    "nodeset": "all drives of nodes",
    "unlocated": "drives of unknown node",
    "all": "all drives",
}
_RELATIONS = {
    name: rank
    for rank, name in enumerate(
        (
            *("alone", "same_node", "same_nodes", "same_package", "other_package"),
            *("both_packages", "unknown"),
        )
    )
}
_MODES = ("serial", "concurrent")
_LEVELS = {
    "pu": "one PU",
    "core": "one core",
    "l3": "one L3 domain",
    "node": "one node",
    "package": "one package",
    "machine": "machine",
}
# Name -> kind; groups are what sorts. From the naming rules of points.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pu", re.compile(r"pu(\d+)")),
    ("core", re.compile(r"core(\d+)")),
    ("l3", re.compile(r"l3_?(\d+)")),
    ("node", re.compile(r"node(\d+)")),
    ("package", re.compile(r"package(\d+)")),
    ("gpu", re.compile(r"gpu(\d+)")),
    ("opencl", re.compile(r"opencl(\d+)")),
    ("core_kind", re.compile(r"(efficiency|performance)_cores|kind\d+")),
    ("machine", re.compile(r"machine")),
    ("nodes", re.compile(r"nodes([\d,-]+)")),
    ("file", re.compile(r"file(\d+)")),
    ("drive", re.compile(r"drive-(.+)")),
    ("first", re.compile(r"(node|package)(\d+)drives(\d+)")),
    ("packageset", re.compile(r"package(\d+)drives")),
    ("nodeset", re.compile(r"nodes?([\d,-]+)drives")),
    ("all", re.compile(r"alldrives")),
    ("unlocated", re.compile(r"unknowndrives(\d*)")),
)
_TITLES = {"drives": "Number of drives", "bytes": "Working set", "distance": "Distance (SLIT)"}
_PCI = re.compile(r"([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-9a-f])", re.IGNORECASE)


@dataclass(frozen=True)
class AxisValue:
    """One value on an axis.

    Attributes:
        name: as in the tidy table.
        kind: what it is: pu, core, l3, core_kind, node, package, machine, nodes, file, drive, first
            (the first drives of a node), nodeset (all drives of nodes), unlocated (drives of which
            no node is known), all, gpu, opencl, level, relation, number, size (a number of bytes),
            text.
        sort: sorts within its kind.
        short: label where the axis title says the kind.
        long: label that stands alone.
        nodes: memory nodes it belongs to, empty when unknown.
    """

    name: str
    kind: str
    sort: tuple[Any, ...]
    short: str
    long: str
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True)
class AxisGroup:
    """Neighbours on an axis: places[start:stop]."""

    label: str
    start: int
    stop: int


def natural_sort_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in which numbers inside a text count as numbers."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts if part)


def text_value(text: str) -> AxisValue:
    """Words that stand as they are, in the order in which they come."""
    return AxisValue(text, "text", (text,), text, text)


def is_size(column: str) -> bool:
    """Whether a column holds numbers of bytes, which people read as KiB, MiB and GiB."""
    name = column.split(".")[-1]
    return name == "bytes" or name.endswith("_bytes")


def axis_value_of(value: Any, nodes: tuple[int, ...] = (), column: str = "") -> AxisValue:
    """What a value of a column is.

    Args:
        value: a cell of the tidy table or a factor's level.
        nodes: memory nodes it belongs to, as far as known.
        column: that holds it; numbers of a column of sizes are sizes.
    """
    if isinstance(value, bool):
        return AxisValue(str(value), "text", (value,), "yes" if value else "no", str(value), nodes)
    if isinstance(value, int | float):
        # Sizes are long numbers that may differ in the last digit.
        text = str(int(value)) if float(value).is_integer() else f"{value:g}"
        if is_size(column):
            words = format_binary_bytes(float(value))
            return AxisValue(text, "size", (float(value),), words, words, nodes)
        return AxisValue(text, "number", (float(value),), text, text, nodes)
    name = str(value)
    if name in _RELATIONS:
        words = name.replace("_", " ") if name != "unknown" else "unknown place"
        return AxisValue(name, "relation", (_RELATIONS[name],), words, words, nodes)
    if name in _MODES:
        return AxisValue(name, "text", ((0, _MODES.index(name), ""),), name, name, nodes)
    if name in _LEVELS and name != "machine":
        words = _LEVELS[name]
        return AxisValue(name, "level", (list(_LEVELS).index(name),), words, words, nodes)
    for kind, pattern in _PATTERNS:
        if match := pattern.fullmatch(name):
            return _known(name, kind, match.groups(), nodes)
    words = name.replace("_", " ")
    return AxisValue(name, "text", natural_sort_key(name), words, words, nodes)


def _known(name: str, kind: str, parts: tuple[str, ...], nodes: tuple[int, ...]) -> AxisValue:
    """A place whose name follows the naming rules."""
    if kind == "machine":
        return AxisValue(name, kind, (0,), "machine", "machine", nodes)
    if kind == "all":
        return AxisValue(name, kind, (0,), "all", "all drives", nodes)
    if kind == "drive":
        return AxisValue(name, kind, natural_sort_key(parts[0]), *_drive_labels(parts[0]), nodes)
    if kind == "first":
        word, index, number = parts[0], int(parts[1]), int(parts[2])
        many = f"first {number}" if number > 1 else "first"
        own = nodes or ((index,) if word == "node" else ())
        return AxisValue(name, kind, (index, number), str(number), f"{many} of {word} {index}", own)
    if kind == "packageset":
        return AxisValue(
            name, kind, (int(parts[0]),), parts[0], f"drives of package {parts[0]}", nodes
        )
    if kind == "unlocated":
        words = f"{parts[0] or 'all'} drives of unknown node"
        return AxisValue(name, kind, (int(parts[0] or 10**6),), parts[0] or "all", words, nodes)
    if kind in ("nodes", "nodeset"):
        members = tuple(parse_cpu_list(parts[0]))
        long = f"{'node' if len(members) == 1 else 'nodes'} {parts[0]}"
        return AxisValue(name, kind, (len(members), members), parts[0], long, members)
    if kind == "core_kind":
        words = name.replace("_", " ")
        return AxisValue(name, kind, natural_sort_key(name), words, words, nodes)
    index = int(parts[0])
    word = {"pu": "PU", "l3": "L3", "opencl": "OpenCL device"}.get(kind, kind)
    own = (index,) if kind == "node" else nodes
    return AxisValue(name, kind, (index,), str(index), f"{word} {index}", own)


def _drive_labels(rest: str) -> tuple[str, str]:
    """Short and long label of a drive from what follows `drive-` in its name."""
    if match := _PCI.fullmatch(rest):
        domain, bus, device, function = match.groups()
        address = f"{bus}:{device}.{function}"
        address = address if int(domain, 16) == 0 else f"{domain}:{address}"
        return address, f"drive {address}"
    return rest, f"drive {rest}"


@dataclass(frozen=True)
class MachineOrder:
    """Where things are on a machine, for the order in which they stand on an axis.

    Attributes:
        packages: package of each memory node.
        nodes: memory node of each processing unit.
        domains: L3 domain of each processing unit.
    """

    packages: Mapping[int, int]
    nodes: Mapping[int, int]
    domains: Mapping[int, int]

    def placed(self, place: AxisValue) -> AxisValue:
        """A processing unit with its node, and sorted by it and its L3 domain."""
        if place.kind != "pu":
            return place
        index = place.sort[0]
        node = self.nodes.get(index)
        nodes = place.nodes or (() if node is None else (node,))
        return replace(place, nodes=nodes, sort=(self.domains.get(index, -1), index))


def machine_order(topology: Mapping[str, Any]) -> MachineOrder:
    """The map of a machine, as far as the topology's JSON says."""
    nodes = {
        pu: int(node["os_index"])
        for node in topology.get("nodes") or ()
        for pu in parse_cpu_list(node.get("cpus") or "")
    }
    domains = {
        pu: number
        for number, domain in enumerate(topology.get("l3_domains") or ())
        for pu in parse_cpu_list(domain.get("cpus") or "")
    }
    return MachineOrder(packages_of_nodes(topology), nodes, domains)


def packages_of_nodes(topology: Mapping[str, Any]) -> dict[int, int]:
    """Package of each memory node, as far as the topology's JSON says."""
    owner: dict[int, int] = {}
    hierarchy = topology.get("hierarchy") or {}
    for package in hierarchy.get("packages") or ():
        for node in package.get("nodes") or ():
            owner.setdefault(int(node), int(package["os_index"]))
    for node in topology.get("nodes") or ():
        if node.get("package") is not None:
            owner.setdefault(int(node["os_index"]), int(node["package"]))
    return owner


def sort_and_group(
    places: Iterable[AxisValue], packages: Mapping[int, int]
) -> tuple[list[AxisValue], list[AxisGroup]]:
    """Places in their natural_sort_key order, and the groups that a gap separates.

    Args:
        places: each once.
        packages: package of each node.

    Returns:
        The places and their groups; one group without a label when there is nothing to separate.
    """
    found = list(places)
    # All drives are also all drives of all nodes: one more set, by the nodes it spans.
    if {place.kind for place in found} == {"nodeset", "all"}:
        found = [_as_node_set(place) for place in found]
    mixed = len({place.kind for place in found}) > 1
    keyed = [(_group_key(place, packages, mixed), place) for place in found]
    keyed.sort(key=lambda pair: (_KINDS.index(pair[1].kind), pair[0][0], pair[1].sort))
    ordered = [place for _, place in keyed]
    groups: list[AxisGroup] = []
    for position, ((_, label), _) in enumerate(keyed):
        if groups and groups[-1].label == label:
            groups[-1] = replace(groups[-1], stop=position + 1)
        else:
            groups.append(AxisGroup(label, position, position + 1))
    if len(groups) < 2 or all(group.stop - group.start == 1 for group in groups):
        groups = [AxisGroup("", 0, len(ordered))] if ordered else []
    return ordered, groups


def _as_node_set(place: AxisValue) -> AxisValue:
    """The set of all drives, seen as all drives of all their nodes."""
    if place.kind == "nodeset":
        return place
    return replace(place, kind="nodeset", sort=(len(place.nodes), place.nodes))


def _group_key(place: AxisValue, packages: Mapping[int, int], mixed: bool) -> tuple[Any, str]:
    """What places of one group share (sortable) and the group's label."""
    if mixed:
        return 0, _PLURALS.get(place.kind, f"{place.kind}s")
    if place.kind in ("nodeset", "nodes"):
        number = len(place.nodes)
        return number, "1 node" if number == 1 else f"{number} nodes"
    if place.kind == "node":
        package = packages.get(place.sort[0])
        return (1, 0) if package is None else (0, package), (
            "no package" if package is None else f"package {package}"
        )
    if place.kind in ("pu", "core", "l3", "drive", "first", "gpu"):
        if not place.nodes:
            return (1, ()), "node unknown"
        listed = ",".join(map(str, place.nodes))
        return (0, place.nodes), f"node {listed}" if len(place.nodes) == 1 else f"nodes {listed}"
    return 0, ""


def axis_title(column: str, places: Iterable[AxisValue]) -> str:
    """Title of an axis from the column it shows and what is on it."""
    kinds = {place.kind for place in places}
    role = column.split(".")[-1]
    if role not in ("initiator", "target", "responder"):
        return _TITLES.get(role, role.replace("_", " ").capitalize())
    side = role.capitalize()
    titles = {
        "pu": f"{side} processing unit",
        "core": f"{side} core",
        "l3": f"{side} L3 domain",
        "node": f"{side} node",
        "package": f"{side} package",
        "gpu": f"{side} GPU",
        "opencl": f"{side} OpenCL device",
        "nodes": f"{side} nodes",
        "drive": f"{side} drive (PCI address)",
        "first": "First drives of a node",
        "nodeset": "Drives of nodes",
    }
    if kinds == {"nodeset", "all"}:
        return titles["nodeset"]
    return titles.get(next(iter(kinds)), side) if len(kinds) == 1 else side
