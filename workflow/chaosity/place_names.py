"""Make and parse the names of places in a machine: initiators, targets and drive sets.

| kind | names | place |
|---|---|---|
| `pu`, `core`, `l3`, `node`, `package` | `pu17`, `core3`, `l3_4`, `node3`, `package1` | a group |
| `core_kind` | `efficiency_cores`, `performance_cores`, `kind0` | all cores of a kind |
| `machine` | `machine` | all processing units |
| `nodes` | `nodes0-3` | several nodes |
| `threads`, `packed`, `spread` | `node0_threads4`, `package0_packed6` | some cores of a group |
| `others` | `node0_node1_without_pu5`, `machine_without_node0` | groups without these cores |
| `drive`, `disk`, `gpu` | `drive-0000-41-00-0`, `disk-sdb`, `gpu-0000-06-00-0` | a device |
| `file`, `opencl` | `file0`, `opencl0` | a file in place of a drive; an OpenCL device |
| `node_drives`, `package_drives` | `node3drives`, `node3drives2` | all drives, or the first two |
| `unknown_drives` | `unknowndrives`, `unknowndrives2` | drives whose node is unknown |
| `nodes_drives`, `all_drives` | `nodes0-1drives`, `alldrives` | drives of these nodes; all drives |

No other module has a pattern for these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, get_args

from chaosity.cpusets import format_cpu_list, make_cpu_set, parse_cpu_list

GroupKind = Literal["pu", "core", "l3", "node", "package", "core_kind", "machine"]
InitiatorKind = Literal[GroupKind, "nodes", "threads", "packed", "spread", "others"]
DeviceKind = Literal["drive", "disk", "gpu", "file", "opencl"]
DriveSetKind = Literal[
    "node_drives", "package_drives", "unknown_drives", "nodes_drives", "all_drives"
]
PlaceKind = Literal[InitiatorKind, DeviceKind, DriveSetKind]

# An index has at most six digits, so that a serial number is not read as the index of a place.
_PATTERN_OF_FIELD = {
    "index": r"(?P<index>\d{1,6})",
    "indices": r"(?P<indices>\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*)",
    "count": r"(?P<count>\d{1,6})",
    "word": r"(?P<word>efficiency|performance)",
    "address": r"(?P<address>[^\s+=]+)",
    "groups": r"(?P<groups>[a-z0-9_]+?)",
    "without": r"(?P<without>\w[\w,-]*)",
}
# Kind of place -> noun in sentences, and patterns of names. The noun is empty if a place needs more
# words than a noun and a number, see `_words_of_place`. A name is written with the first pattern of
# the kind whose fields all have values.
_NOUN_AND_FORMS_OF_KIND: dict[PlaceKind, tuple[str, ...]] = {
    "pu": ("processing unit", "pu{index}"),
    "core": ("core", "core{index}"),
    "l3": ("L3 domain", "l3_{index}"),
    "node": ("node", "node{index}"),
    "package": ("package", "package{index}"),
    "core_kind": ("cores of kind", "{word}_cores", "kind{index}"),
    "machine": ("", "machine"),
    "nodes": ("node", "nodes{indices}", "node{indices}"),
    "threads": ("", "{groups}_threads{count}"),
    "packed": ("", "{groups}_packed{count}"),
    "spread": ("", "{groups}_spread{count}"),
    "others": ("", "{groups}_without_{without}"),
    "drive": ("drive", "drive-{address}", "drive{index}"),
    "disk": ("disk", "disk-{address}"),
    "gpu": ("GPU", "gpu-{address}", "gpu{index}"),
    "file": ("file", "file{index}"),
    "opencl": ("OpenCL device", "opencl{index}"),
    "node_drives": ("", "node{index}drives{count}", "node{index}drives"),
    "package_drives": ("", "package{index}drives{count}", "package{index}drives"),
    "unknown_drives": ("", "unknowndrives{count}", "unknowndrives"),
    "nodes_drives": ("", "nodes{indices}drives", "node{indices}drives"),
    "all_drives": ("", "alldrives"),
}
_KIND_AND_FORM = [
    (kind, form) for kind, (_noun, *forms) in _NOUN_AND_FORMS_OF_KIND.items() for form in forms
]
_FIELDS_OF_FORM = {form: frozenset(re.findall(r"{(\w+)}", form)) for _, form in _KIND_AND_FORM}
_KIND_AND_PATTERN = [
    (kind, re.compile(form.format_map(_PATTERN_OF_FIELD), re.ASCII))
    for kind, form in _KIND_AND_FORM
]
_GROUP_NAME_PATTERN = (
    r"(?:(?:pu|core|l3_|node|package|kind)\d{1,6}|(?:efficiency|performance)_cores|machine)"
)
_JOINED_GROUPS_PATTERN = re.compile(f"{_GROUP_NAME_PATTERN}(?:_{_GROUP_NAME_PATTERN})*", re.ASCII)


@dataclass(frozen=True)
class PlaceName:
    """The parts of a place's name; `str()` gives the name."""

    kind: PlaceKind  # form of the name, see the table at the top of this module
    indices: tuple[int, ...] = ()  # index of the place, or the numbers of several nodes
    # Number of threads (kinds `threads`, `packed`, `spread`) or number of drives; None for all
    # drives.
    count: int | None = None
    word: str | None = None  # `efficiency` or `performance`, for a core kind
    # Slot, serial number or path of a device, as in `drive-0000-41-00-0`. In anonymous data, a
    # device has an index instead of these: `drive1`.
    address: str | None = None
    # Groups that contain the place (kinds `threads`, `packed`, `spread`, `others`).
    groups: tuple[PlaceName, ...] = ()
    without: PlaceName | None = None  # the cores that the place leaves out (kind `others`)

    def __str__(self) -> str:
        fields = {
            "index": self.indices[0] if len(self.indices) == 1 else None,
            "indices": format_cpu_list(self.indices) or None,
            "count": self.count,
            "word": self.word,
            "address": self.address,
            "groups": "_".join(map(str, self.groups)) or None,
            "without": self.without,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        for form in _NOUN_AND_FORMS_OF_KIND[self.kind][1:]:
            if known.keys() >= _FIELDS_OF_FORM[form]:
                return form.format_map(known)
        raise ValueError(f"{self!r} has no name: a part is missing")

    @property
    def nodes_in_name(self) -> tuple[int, ...]:
        """Return the nodes in a name such as `node3`, `nodes0-3` or `node3drives2`."""
        named = self.kind in ("node", "nodes", "node_drives", "nodes_drives")
        return self.indices if named else ()

    @property
    def is_single_drive(self) -> bool:
        """Return whether the place is a single drive, or a file in place of a drive."""
        return self.kind in ("drive", "disk", "file")

    @property
    def has_drives(self) -> bool:
        """Return whether the place is a drive, several drives, or a file in place of a drive."""
        return self.is_single_drive or self.kind.endswith("_drives")

    @property
    def may_reveal_host(self) -> bool:
        """Return whether the name of this place can contain a slot, a serial number or a path.

        A name with one of these facts could identify the host, so anonymous data never contain it.
        """
        return self.kind in ("drive", "disk", "gpu")


@lru_cache(maxsize=1 << 16)
def parse_place_name(text: str | int) -> PlaceName | None:
    """Return the parts of a place's name or of a node's number; None for any other text."""
    if isinstance(text, int):
        return PlaceName("node", (text,))
    for kind, pattern in _KIND_AND_PATTERN:
        if match := pattern.fullmatch(text):
            parts = match.groupdict()
            try:
                indices = parse_cpu_list(parts.get("indices", parts.get("index", "")))
            except ValueError:  # the end of a range in the name is below its start
                return None
            groups = _parse_groups(parts.get("groups", ""))
            without = parse_place_name(parts.get("without", ""))
            if without and without.kind not in get_args(InitiatorKind):
                return None
            if ("groups" in parts and not groups) or ("without" in parts and not without):
                continue
            count = int(parts["count"]) if "count" in parts else None
            word, address = parts.get("word"), parts.get("address")
            return PlaceName(kind, indices, count, word, address, groups, without)
    return None


def _parse_groups(text: str) -> tuple[PlaceName, ...]:
    """Return the groups of a joined name such as `node0_node1`; empty for any other name."""
    names = re.findall(_GROUP_NAME_PATTERN, text) if _JOINED_GROUPS_PATTERN.fullmatch(text) else []
    return tuple(name for name in map(parse_place_name, names) if name)


@cache
def natural_sort_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders the numbers in a text by value: `pu2` before `pu10`."""
    parts = re.split(r"(\d+)", text)
    return tuple(
        # Numbers are compared by length first, because the number with fewer digits is smaller.
        (0, len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (1, 0, part)
        for part in parts
        if part
    )


def pu_name(index: int) -> str:
    """Return the name of a processing unit: `pu17`."""
    return str(PlaceName("pu", (index,)))


@cache
def node_name(index: int) -> str:
    """Return the name of a node: `node3`."""
    return str(PlaceName("node", (index,)))


def l3_domain_name(index: int) -> str:
    """Return the name of an L3 domain: `l3_4`."""
    return str(PlaceName("l3", (index,)))


# Start of the name of a target with pages on all nodes of a package; the kind of memory follows in
# the name.
_SPREAD_TARGET_PREFIX = "uniform_package_"


def name_of_spread_target(memory_kind: str) -> str:
    """Return the name of a target: pages in equal shares on all nodes of a package.

    All these nodes have the given kind of memory. An example of the name is `uniform_package_dram`.
    """
    return f"{_SPREAD_TARGET_PREFIX}{memory_kind.lower()}"


def is_spread_target(name: str) -> bool:
    """Return whether a name has the form that `name_of_spread_target` returns."""
    return name.startswith(_SPREAD_TARGET_PREFIX)


def nodes_name(indices: Iterable[int]) -> str:
    """Return the name of a single node or of several nodes: `node3`, `nodes0-3`."""
    nodes = make_cpu_set(indices)
    return str(PlaceName("node" if len(nodes) == 1 else "nodes", nodes))


@cache
def package_name(index: int) -> str:
    """Return the name of a package: `package1`."""
    return str(PlaceName("package", (index,)))


def link_name(source: int, target: int) -> str:
    """Return the name of a link: the package that sends data, then the package that receives."""
    return f"link {package_name(source)}->{package_name(target)}"


def packages_of_link(name: str) -> tuple[int, int] | None:
    """Return the sending and the receiving package of a link; None for names of other places."""
    found = re.fullmatch(r"link package(\d{1,6})->package(\d{1,6})", name, re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


def initiator_to_target_name(initiator: str, target: str) -> str:
    """Return the name of the path from an initiator to a target, such as `node0->node3`."""
    return f"{initiator}->{target}"


# Largest count of numbers that a text lists singly; of more numbers, neighbouring ones are written
# as a range.
_MOST_LISTED_NUMBERS = 4
_PCI_ADDRESS_IN_NAME = re.compile(r"([0-9a-f]{4})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])", re.ASCII)
_PCI_ADDRESS_OF_LSPCI = r"\1:\2:\3.\4"  # a PCI address in the form that lspci prints


def place_in_words(name: int | str) -> str:
    """Return a place in words for a sentence, such as "the drives of node 3".

    Args:
        name: the name of a place, of a path between two places (`node0->node3`), or of a link
            between packages, or the number of a node. Any other text is returned unchanged.
    """
    if isinstance(name, int):
        return f"node {name}"
    if name.startswith(_SPREAD_TARGET_PREFIX):
        kind = name.removeprefix(_SPREAD_TARGET_PREFIX)
        return f"all memory of the package ({kind.upper() if kind.isalpha() else kind})"
    begin, is_link, path = name.rpartition("link ")
    ends = path.split("->")
    if len(ends) == 2 and not begin:
        return f"{'the link ' if is_link else ''}from {' to '.join(map(place_in_words, ends))}"
    place = parse_place_name(name)
    return name if place is None else _words_of_place(place)


def access_in_words(initiator: str, target: str) -> str:
    """Return an access in words: "node 1 to the memory of node 3", "node 0 to all drives"."""
    place = parse_place_name(target)
    memory = "the memory of " if place and place.kind in ("node", "nodes") else ""
    return f"{place_in_words(initiator)} to {memory}{place_in_words(target)}"


def _words_of_place(place: PlaceName) -> str:
    if place.without:
        return f"{_words_of_groups(place)} without {_words_of_place(place.without)}"
    if place.groups:
        threads = "thread" if place.count == 1 else "threads"
        how = "" if place.kind == "threads" else f"{place.kind} "
        return f"{place.count} {how}{threads} of {_words_of_groups(place)}"
    if place.kind == "machine":
        return "the machine"
    if place.kind == "all_drives":
        return "all drives"
    if place.kind.endswith("_drives"):
        owner = place.kind.removesuffix("s_drives").removesuffix("_drives")
        of = "an unknown node" if owner == "unknown" else _noun_with_numbers(owner, place.indices)
        first = {None: "drives", 1: "first drive"}.get(place.count, f"first {place.count} drives")
        return f"the {first} of {of}"
    if place.word:
        return f"{place.word} cores"
    noun = _NOUN_AND_FORMS_OF_KIND[place.kind][0]
    if place.address:
        return f"{noun} {_PCI_ADDRESS_IN_NAME.sub(_PCI_ADDRESS_OF_LSPCI, place.address)}"
    return _noun_with_numbers(noun, place.indices)


def _words_of_groups(place: PlaceName) -> str:
    return " and ".join(map(_words_of_place, place.groups))


def _noun_with_numbers(noun: str, numbers: Iterable[int]) -> str:
    """Return a noun with its numbers: "node 3", "nodes 0, 2 and 3", "nodes 0 to 7"."""
    known = [*numbers]
    parts = [*map(str, known)]
    if len(parts) > _MOST_LISTED_NUMBERS:
        parts = format_cpu_list(known).replace("-", " to ").split(",")
    *most, last = parts
    several = f"{noun}s" if len(known) > 1 else noun
    return f"{several} {', '.join(most)} and {last}" if most else f"{several} {last}"


def places_in_words(names: Iterable[int | str]) -> str:
    """Return several places in words: "node 3", "nodes 4, 5 and 6", "node 1 and core 2"."""
    listed = [*names]
    places = list(map(parse_place_name, listed))
    kinds = {place.kind if place and len(place.indices) == 1 else None for place in places}
    if len(kinds) == 1 and (kind := kinds.pop()) in ("pu", "core", "l3", "node", "package"):
        return _noun_with_numbers(
            _NOUN_AND_FORMS_OF_KIND[kind][0], [place.indices[0] for place in places if place]
        )
    *most, final = map(place_in_words, listed)
    return f"{', '.join(most)} and {final}" if most else final
