"""Axes of named values: the order and groups of values, and labels and titles.

`node2` comes before `node10`. Nodes of one package are neighbours, and so are drives of one node.
Drive sets are grouped by their number of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from chaosity.place_names import PlaceName, natural_sort_key, parse_place_name, place_in_words
from chaosity.text_templates import texts_of_yaml_file
from chaosity.topology.topology_model import Topology
from chaosity.units import format_binary_bytes

# Kinds of values with their words, in the order of the kinds on an axis; also the words for names
# whose order is not that of their letters.
_WORDS = texts_of_yaml_file("axes")
_KINDS: dict[str, dict[str, str]] = _WORDS["kinds"]


@dataclass(frozen=True)
class AxisValue:
    """A value on an axis."""

    name: str  # name of the value in the tidy table
    # Kind of the value in ``templates/texts/axes.yaml``, which decides the order of values of
    # different kinds, and the labels of groups.
    kind: str
    # Sort key among values of the same kind; the first entry of a number's key is the number.
    sort_key: tuple[Any, ...]
    short_label: str  # label on an axis whose title names the kind
    long_label: str  # label that is clear without the title of an axis
    nodes: tuple[int, ...] = ()  # memory nodes to which the value belongs; empty if unknown

    @property
    def number(self) -> float:
        """Return the number, or the size in bytes, that the value stands for."""
        return float(self.sort_key[0])


@dataclass(frozen=True)
class AxisGroup:
    """A group of neighbouring values on an axis, which are ``axis.values[start:stop]``."""

    label: str
    start: int
    stop: int

    @property
    def value_count(self) -> int:
        """Return the number of values in the group."""
        return self.stop - self.start


@dataclass(frozen=True)
class Axis:
    """An axis of a figure, with its values in their order."""

    column: str  # the column that the axis shows, as in the figure's YAML
    title: str  # title of the axis in the figure
    values: tuple[AxisValue, ...]  # values in their order
    groups: tuple[AxisGroup, ...]  # groups of neighbouring values; each value is in one group

    @property
    def value_names(self) -> list[str]:
        """Return the names of the values in the tidy table, in the order of the axis."""
        return [value.name for value in self.values]

    @property
    def is_numeric(self) -> bool:
        """Return whether all values are numbers or sizes, so that the axis has a scale."""
        return all(value.kind in ("number", "size") for value in self.values)

    @property
    def has_byte_sizes(self) -> bool:
        """Return whether values of the axis are sizes in bytes."""
        return any(value.kind == "size" for value in self.values)

    @property
    def has_mixed_kinds(self) -> bool:
        """Return whether the values are of several kinds, so that labels must name the kind."""
        return len({value.kind for value in self.values}) > 1

    def find_value_by_name(self, name: str) -> AxisValue:
        """Return the value with this name in the tidy table."""
        return next(value for value in self.values if value.name == name)

    def in_order(self, table: pd.DataFrame, column: str) -> pd.DataFrame:
        """Return a table sorted like the axis; `column` has the names of the axis' values."""
        rank = {name: number for number, name in enumerate(self.value_names)}
        return table.sort_values(column, key=lambda names: names.map(rank), kind="stable")

    def tick_label(self, value: AxisValue) -> str:
        """Return a value's label on the axis: the short one if the axis title names the kind."""
        full = self.has_mixed_kinds or value.kind in ("all_drives", "file")
        return value.long_label if full else value.short_label

    def legend_label(self, value: AxisValue) -> str:
        """Return a value's label in a legend; before a number stands the axis title."""
        return f"{self.title} {value.short_label}" if value.kind == "number" else value.long_label

    def with_values(self, values: Iterable[AxisValue]) -> Axis:
        """Return the axis with other values in a single group."""
        kept = tuple(values)
        return replace(self, values=kept, groups=(AxisGroup("", 0, len(kept)),))


def axis_of_texts(title: str, texts: Iterable[str]) -> Axis:
    """Return an axis of texts in the order in which they first appear."""
    values = (AxisValue(text, "text", (text,), text, text) for text in dict.fromkeys(texts))
    return Axis(title, title, (), ()).with_values(values)


def is_byte_column(column: str) -> bool:
    """Return whether a column has numbers of bytes, which are shown as KiB, MiB and GiB."""
    name = column.split(".")[-1]
    return name == "bytes" or name.endswith("_bytes")


def make_axis_value(value: object, nodes: tuple[int, ...] = (), column: str = "") -> AxisValue:
    """Return a cell of the tidy table, or a level of a factor, as a value of an axis.

    Args:
        value: a cell of the tidy table or a level of a factor.
        nodes: memory nodes to which the value belongs, if these are known.
        column: column of the value; numbers in a column of bytes are sizes.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return AxisValue(str(value), "text", (value,), "yes" if value else "no", str(value), nodes)
    if isinstance(value, int | float):
        # All digits are kept, since sizes are long numbers that may differ in the last digit only.
        text = str(int(value)) if float(value).is_integer() else f"{value:g}"
        size = is_byte_column(column)
        label = format_binary_bytes(float(value)) if size else text
        return AxisValue(text, "size" if size else "number", (float(value),), label, label, nodes)
    name = str(value)
    for kind in ("relation", "mode", "level"):
        if label := _WORDS[kind].get(name):
            rank = (list(_WORDS[kind]).index(name),)
            if kind == "mode":  # a text, so with the form of a text's sort key
                return AxisValue(name, "text", ((0, *rank, ""),), label, label, nodes)
            return AxisValue(name, kind, rank, label, label, nodes)
    place = parse_place_name(name)
    if place is None:
        label = name.replace("_", " ")
        return AxisValue(name, "text", natural_sort_key(name), label, label, nodes)
    label = place_in_words(name)
    known = _place_value(name, place, label)
    found = known or AxisValue(name, "text", natural_sort_key(name), label, label)
    return replace(found, nodes=place.nodes_in_name or nodes)


def _place_value(name: str, place: PlaceName, long: str) -> AxisValue | None:
    """Return a place as a value of an axis; None if places of its kind have no order on axes."""
    index = place.indices[0] if place.indices else 0
    kind, short, keys = str(place.kind), str(index), tuple[Any, ...]((index,))
    match place.kind:
        case "machine" | "all_drives":
            short = "machine" if kind == "machine" else "all"
        case "core_kind":
            keys, short = natural_sort_key(name), name.replace("_", " ")
        case "drive":
            short = re.sub("^0+:", "", long.removeprefix("drive "))
            keys = natural_sort_key(place.address or short)
        case "node_drives" | "package_drives" if place.count:
            kind, keys, short = "first_drives", (index, place.count), str(place.count)
        case "unknown_drives":
            keys, short = (place.count or 10**6,), str(place.count or "all")
        case "nodes" | "node_drives" | "nodes_drives":
            kind = "nodes" if kind == "nodes" else "node_drives"
            short = name.removesuffix("drives").removeprefix("nodes").removeprefix("node")
            keys = (len(place.indices), place.indices)
        case _ if kind not in _KINDS or not place.indices:
            return None
    return AxisValue(name, kind, keys, short, long)


def add_node_of_pu(value: AxisValue, topology: Topology) -> AxisValue:
    """Return a processing unit with its node, sorted by L3 domain; other values unchanged."""
    if value.kind != "pu":
        return value
    index = value.sort_key[0]
    node, domain = topology.node_of_pu.get(index), topology.l3_of_pu.get(index, -1)
    nodes = value.nodes or (() if node is None else (node,))
    return replace(value, nodes=nodes, sort_key=(domain, index))


def sort_and_group_axis_values(
    values: Iterable[AxisValue], packages: Mapping[int, int]
) -> tuple[list[AxisValue], list[AxisGroup]]:
    """Return the values in natural order, and their groups, between which figures have gaps.

    `packages` is node -> its package. If the values need no groups, all of them are in one group
    without a label.
    """
    found = list(values)
    # The set of all drives is sorted like other sets of several nodes, by its number of nodes.
    if {value.kind for value in found} == {"node_drives", "all_drives"}:
        found = [
            replace(value, kind="node_drives", sort_key=(len(value.nodes), value.nodes))
            for value in found
        ]
    mixed = len({value.kind for value in found}) > 1
    keyed = [(_group_key(value, packages, mixed), value) for value in found]
    ranks = {kind: rank for rank, kind in enumerate(_KINDS)}
    keyed.sort(key=lambda pair: (ranks[pair[1].kind], pair[0][0], pair[1].sort_key))
    ordered = [value for _, value in keyed]
    groups: list[AxisGroup] = []
    for position, ((_, label), _) in enumerate(keyed):
        if groups and groups[-1].label == label:
            groups[-1] = replace(groups[-1], stop=position + 1)
        else:
            groups.append(AxisGroup(label, position, position + 1))
    if len(groups) < 2 or all(group.value_count == 1 for group in groups):
        groups = [AxisGroup("", 0, len(ordered))] if ordered else []
    return ordered, groups


def _group_key(
    value: AxisValue, packages: Mapping[int, int], mixed: bool
) -> tuple[tuple[object, ...], str]:
    """Return the sort key and the label of the group to which a value belongs."""
    if mixed:
        return (), _KINDS[value.kind].get("group", f"{value.kind}s")
    match value.kind:
        case "node_drives" | "nodes":
            number = len(value.nodes)
            return (number,), "1 node" if number == 1 else f"{number} nodes"
        case "node":
            package = packages.get(value.sort_key[0])
            return ((1,), "no package") if package is None else ((0, package), f"package {package}")
        case "pu" | "core" | "l3" | "drive" | "first_drives" | "gpu":
            if not value.nodes:
                return (1,), "node unknown"
            listed = ",".join(map(str, value.nodes))
            return (0, value.nodes), f"{'node' if len(value.nodes) == 1 else 'nodes'} {listed}"
    return (), ""


def axis_title(column: str, values: Iterable[AxisValue]) -> str:
    """Return the title of an axis from its column and the kind of its values."""
    role = column.split(".")[-1]
    if role not in ("initiator", "target", "responder"):
        return str(_WORDS["titles"].get(role, role.replace("_", " ").capitalize()))
    kinds = {value.kind for value in values}
    if kinds == {"node_drives", "all_drives"}:
        kinds = {"node_drives"}
    title = _KINDS[kinds.pop()].get("title", "{}") if len(kinds) == 1 else "{}"
    return title.format(role.capitalize())
