"""Writes a topology as JSON (`topology.json`, `chaosity topology --json`) and reads it back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.errors import UserError
from chaosity.topology import topology_model as model
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.device_types import Accelerator, Drive, Gpu, OpenclDevice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = TypeVar("Part", bound="DataclassInstance")
Json = Mapping[str, Any]


def topology_to_json(topology: model.Topology) -> dict[str, object]:
    """Returns all parts of a topology: first numbers, then lists.

    Sets are Linux lists such as `0-3,8`, unknown values are null. `packages`, `cores` and `pus` are
    the numbers that the source shows, `usable` those that can be used. `hierarchy` lists the usable
    packages and cores.
    """
    distances = topology.distances
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
        "drives": _to_json(topology.drives),
        "gpus": _to_json(topology.gpus),
        "opencl_devices": _to_json(topology.opencl_devices),
        "accelerators": _to_json(topology.accelerators),
        "core_kinds": _to_json(topology.core_kinds),
        "distances": None
        if distances is None
        else {"nodes": list(distances.nodes), "matrix": [list(row) for row in distances.matrix]},
        "l3_domains": _to_json(topology.l3_domains),
        "dies": _to_json(topology.dies),
        "caches": _to_json(topology.caches),
        "memory_attributes": _to_json(topology.memory_attributes),
        "huge_page_pools": _to_json(topology.huge_page_pools),
        "cache_line_bytes": topology.cache_line_bytes,
        "restricted": topology.is_restricted,
        "restrictions": topology.restrictions.to_json(),
        "host": dict(topology.host),
        "hierarchy": {
            "packages": _to_json(topology.packages),
            "cores": _to_json(topology.cores),
        },
    }


def topology_from_json(values: Json) -> model.Topology:
    """Returns the topology that `topology_to_json` wrote, equal to the original.

    Parts that an older file lacks are unknown, fields that it has in excess are ignored.
    """
    hierarchy, distances = values.get("hierarchy", {}), values.get("distances")
    return model.Topology(
        source=values.get("source", model.UNKNOWN),
        kind=values.get("kind", model.UNKNOWN),
        packages=_parts(model.Package, hierarchy.get("packages")),
        l3_domains=_parts(model.L3Domain, values.get("l3_domains")),
        cores=_parts(model.Core, hierarchy.get("cores")),
        pus=parse_cpu_list(values.get("usable", {}).get("cpus", "")),
        nodes=_parts(model.Node, map(_node_from_json, values.get("nodes", ()))),
        drives=_parts(Drive, values.get("drives")),
        gpus=_parts(Gpu, values.get("gpus")),
        opencl_devices=_parts(OpenclDevice, values.get("opencl_devices")),
        accelerators=_parts(Accelerator, values.get("accelerators")),
        core_kinds=_parts(model.CoreKind, values.get("core_kinds")),
        distances=model.SlitDistances(
            tuple(distances["nodes"]), tuple(tuple(row) for row in distances["matrix"])
        )
        if distances
        else None,
        caches=_parts(model.Cache, values.get("caches")),
        memory_attributes=_parts(model.MemoryAttribute, values.get("memory_attributes")),
        cache_line_bytes=values.get("cache_line_bytes"),
        dies=_parts(model.Die, values.get("dies")),
        huge_page_pools=_parts(model.HugePagePool, values.get("huge_page_pools")),
        restrictions=_part(model.Restrictions, values.get("restrictions", {})),
        counts=_part(model.PartCounts, values),
        host=values.get("host", {}),
    )


def read_topology(path: Path) -> model.Topology | None:
    """Returns the topology in a file `topology.json`, or None when there is no such file.

    Raises:
        UserError: the file cannot be read or does not have a topology.
    """
    try:
        return topology_from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        remedy = "run snakemake, which writes it again"
        raise UserError(f"is not a readable topology: {error}", str(path), remedy) from None


def _to_json(parts: Iterable[DataclassInstance]) -> list[dict[str, object]]:
    """Parts of a topology, with their sets of processing units as Linux lists."""
    return [
        {name: _value_to_json(name, value) for name, value in asdict(part).items()}
        for part in parts
    ]


def _value_to_json(name: str, value: object) -> object:
    if not isinstance(value, tuple):
        return value
    return format_cpu_list(value) if name.endswith("cpus") else list(value)


def _parts(kind: type[Part], stored: Iterable[Json] | None) -> tuple[Part, ...]:
    return tuple(_part(kind, values) for values in stored or ())


def _part(kind: type[Part], stored: Json) -> Part:
    """A part of a topology from its JSON; fields that the class does not have are ignored."""
    known = {item.name for item in fields(kind)}
    return kind(**{name: _stored_value(name, stored[name]) for name in stored if name in known})


def _stored_value(name: str, value: object) -> object:
    if isinstance(value, str) and name.endswith(("cpus", "disallowed_nodes")):
        return parse_cpu_list(value)
    return tuple(value) if isinstance(value, list) else value


def _node_to_json(node: model.Node) -> dict[str, object]:
    """A node; in JSON `cpus` includes what a cgroup forbids, and `usable_cpus` does not."""
    values = {**asdict(node), "cpus": format_cpu_list(node.shown_cpus)}
    del values["shown_cpus"]
    return {**values, "usable_cpus": format_cpu_list(node.cpus)}


def _node_from_json(stored: Json) -> Json:
    cpus = stored.get("cpus", "")
    return {**stored, "cpus": stored.get("usable_cpus", cpus), "shown_cpus": cpus}
