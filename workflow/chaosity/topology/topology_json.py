"""Write a topology as JSON (`topology.json`, `chaosity topology --json`) and read it back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.errors import malformed_as_user_error
from chaosity.records.atomic_writes_and_record_files import read_regular_file
from chaosity.topology import topology_model as model
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.device_types import Accelerator, Gpu, Nic, NvmeDrive, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance")
Json = Mapping[str, Any]
# Parts that have the same name in the JSON and in the model; most are lists.
_PARTS = {
    "drives": NvmeDrive,
    "gpus": Gpu,
    "opencl_devices": OpenclDevice,
    "accelerators": Accelerator,
    "nics": Nic,
    "core_kinds": model.CoreKind,
    "distances": model.SlitDistances,
    "l3_domains": model.L3Domain,
    "dies": model.Die,
    "caches": model.CacheGroup,
    "memory_attributes": model.MemoryAttribute,
    "memory_peak": model.MemoryPeak,
    "huge_page_pools": model.HugePagePool,
}
_HIERARCHY = {"packages": model.Package, "cores": model.Core}
# Ends of the names of fields that are Linux lists such as `0-3,8` in the JSON.
_SETS = ("cpus", "disallowed_nodes")


def topology_to_json(topology: model.Topology) -> dict[str, object]:
    """Return all parts of a topology as JSON: first numbers of parts, then lists.

    Sets are Linux lists such as `0-3,8`, unknown values are null. `packages`, `cores` and `pus` are
    the numbers of these parts in the source, and `usable` has the numbers of usable parts.
    `hierarchy` lists the usable packages and cores.
    """
    return {
        "source": topology.source,
        "kind": topology.kind,
        "configuration": configuration_name(topology),
        **asdict(topology.counts),
        "usable": {
            "packages": len(topology.packages),
            "cores": len(topology.cores),
            "pus": len(topology.pus),
            "cpus": format_cpu_list(topology.pus),
        },
        "nodes": [_node_to_json(node) for node in topology.nodes],
        **{name: _value_to_json(getattr(topology, name)) for name in _PARTS},
        "cache_line_bytes": topology.cache_line_bytes,
        "restricted": topology.is_restricted,
        "restrictions": part_to_json(topology.restrictions),
        "host": dict(topology.host),
        "hierarchy": {name: _value_to_json(getattr(topology, name)) for name in _HIERARCHY},
    }


def topology_from_json(values: Json) -> model.Topology:
    """Return the topology from the JSON of `topology_to_json`; it is equal to the original.

    Parts that an older file lacks are unknown; obsolete fields of an older file are ignored.
    """
    facts, known = values.get("host", {}), _types_of_fields(HostFacts)
    topology = model.Topology(
        source=values.get("source", model.UNKNOWN),
        kind=values.get("kind", model.UNKNOWN),
        pus=parse_cpu_list(values.get("usable", {}).get("cpus", "")),
        nodes=tuple(map(_node_from_json, values.get("nodes", ()))),
        cache_line_bytes=values.get("cache_line_bytes"),
        restrictions=part_from_json(model.Restrictions, values.get("restrictions", {})),
        counts=part_from_json(model.PartCounts, values),
        # A fact of another type is unknown too; facts that are not listed stay as they are.
        host=cast(
            HostFacts,
            {
                name: fact
                for name, fact in facts.items()
                if _has_type(fact, known.get(name, object))
            },
        ),
        **_parts_from_json(values, _PARTS),
        **_parts_from_json(values.get("hierarchy", {}), _HIERARCHY),
    )
    for name, kind in _types_of_fields(model.Topology).items():
        if not _has_type(getattr(topology, name), kind):
            raise TypeError(f"{name} has another type")
    return topology


def read_topology(path: Path) -> model.Topology | None:
    """Return the topology in a file `topology.json`, or None when there is no such file.

    Raises:
        UserError: the file cannot be read or does not have a topology.
    """
    if not path.exists():
        return None
    remedy = "run snakemake, which writes the file again"
    with malformed_as_user_error("the topology is unreadable", str(path), remedy):
        return topology_from_json(json.loads(read_regular_file(path)))


def part_to_json(part: DataclassInstance) -> dict[str, object]:
    """Return name -> value of a part's fields, with sets as Linux lists."""
    return {
        name: _value_to_json(getattr(part, name), name) for name in _types_of_fields(type(part))
    }


def _value_to_json(value: Any, name: str = "") -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return part_to_json(value)
    if not isinstance(value, tuple):
        return value
    return format_cpu_list(value) if name.endswith(_SETS) else list(map(_value_to_json, value))


def _parts_from_json(stored: Json, kinds: Mapping[str, type[DataclassInstance]]) -> dict[str, Any]:
    """Return name -> stored part of these kinds, without missing and empty parts."""
    return {
        name: tuple(part_from_json(kind, part) for part in stored[name])
        if isinstance(stored[name], list)
        else part_from_json(kind, stored[name])
        for name, kind in kinds.items()
        if stored.get(name)
    }


def part_from_json(kind: type[Part], stored: Json) -> Part:
    """Return a part of a topology from JSON values; unknown fields are ignored.

    Raises:
        TypeError: a field is missing or has a value of another type.
    """
    kinds = _types_of_fields(kind)
    values = {name: _value_from_json(stored[name], name) for name in kinds if name in stored}
    for name, value in values.items():
        if not _has_type(value, kinds[name]):
            raise TypeError(f"{name} has the value {value!r:.60}")
    return kind(**values)


@cache
def _types_of_fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_type(value: Any, kind: Any) -> bool:
    """Return whether a value has a type of the model, such as a number, tuple or TypedDict."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_has_type(value, each) for each in arguments)
    if origin in (tuple, list):
        return isinstance(value, origin) and all(_has_type(each, arguments[0]) for each in value)
    if origin is dict:
        return isinstance(value, dict) and all(_has_type(v, arguments[1]) for v in value.values())
    if is_typeddict(kind):
        known = _types_of_fields(kind)
        return isinstance(value, dict) and all(
            _has_type(each, known[name]) for name, each in value.items() if name in known
        )
    if kind in (int, float):  # numbers of hardware fit into 64 bits
        numbers = (int,) if kind is int else (int, float)
        return type(value) in numbers and math.isfinite(value) and abs(value) < 2**64
    return isinstance(value, kind)


def _value_from_json(value: object, name: str = "") -> object:
    if isinstance(value, str) and name.endswith(_SETS):
        return parse_cpu_list(value)
    return tuple(map(_value_from_json, value)) if isinstance(value, list) else value


def _node_to_json(node: model.Node) -> dict[str, object]:
    """Return a node as JSON; only `usable_cpus` excludes the units that a cgroup forbids."""
    values = part_to_json(node)
    usable, values["cpus"] = values["cpus"], values.pop("shown_cpus")
    return {**values, "usable_cpus": usable}


def _node_from_json(stored: Json) -> model.Node:
    cpus = stored.get("cpus", "")
    both = {"cpus": stored.get("usable_cpus", cpus), "shown_cpus": cpus}
    return part_from_json(model.Node, {**stored, **both})
