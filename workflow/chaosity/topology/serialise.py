"""The model as plain JSON values, the `--json` of `chaosity topology`, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from chaosity.cpusets import format_cpu_list, parse_cpu_list
from chaosity.topology import model
from chaosity.topology.configuration import configuration_name

_RESTRICTED = ("missing_cpus", "offline_cpus", "disallowed_cpus", "disallowed_nodes")
_T = TypeVar("_T")


def topology_to_json(topology: model.Topology) -> dict[str, Any]:
    """All of a topology: counts first, then lists; sets as Linux lists, unknown as null.

    `packages`, `cores` and `pus` count what the source shows, `usable` what can be used, and
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
        "nodes": [_node(node) for node in topology.nodes],
        "drives": [asdict(drive) for drive in topology.drives],
        "gpus": [_plain(gpu) for gpu in topology.gpus],
        "opencl_devices": [asdict(item) for item in topology.opencl_devices],
        "accelerators": [asdict(item) for item in topology.accelerators],
        "core_kinds": [_plain(kind) for kind in topology.core_kinds],
        "distances": _distances(topology.distances),
        "l3_domains": [_plain(domain) for domain in topology.l3_domains],
        "dies": [_plain(die) for die in topology.dies],
        "caches": [_plain(cache) for cache in topology.caches],
        "memory_attributes": [_plain(item) for item in topology.memory_attributes],
        "huge_page_pools": [asdict(pool) for pool in topology.huge_page_pools],
        "cache_line_bytes": topology.cache_line_bytes,
        "restricted": topology.restricted,
        "restrictions": _restrictions(topology.restrictions),
        "host": dict(topology.host),
        "hierarchy": {
            "packages": [_plain(package) for package in topology.packages],
            "cores": [_plain(core) for core in topology.cores],
        },
    }


def topology_from_json(values: Mapping[str, Any]) -> model.Topology:
    """The topology that `topology_to_json` wrote: equal to the one it was given."""
    hierarchy, distances = values["hierarchy"], values["distances"]
    restrictions = dict(values["restrictions"])
    restrictions |= {name: parse_cpu_list(restrictions[name]) for name in _RESTRICTED}
    return model.Topology(
        source=values["source"],
        kind=values["kind"],
        packages=_objects(model.Package, hierarchy["packages"]),
        l3_domains=_objects(model.L3Domain, values["l3_domains"]),
        cores=_objects(model.Core, hierarchy["cores"]),
        pus=parse_cpu_list(values["usable"]["cpus"]),
        nodes=_objects(model.Node, [_stored_node(node) for node in values["nodes"]]),
        drives=_objects(model.Drive, values["drives"]),
        gpus=_objects(model.Gpu, values["gpus"]),
        opencl_devices=_objects(model.OpenclDevice, values.get("opencl_devices", [])),
        accelerators=_objects(model.Accelerator, values["accelerators"]),
        core_kinds=_objects(model.CoreKind, values["core_kinds"]),
        distances=model.Distances(
            tuple(distances["nodes"]), tuple(tuple(row) for row in distances["matrix"])
        )
        if distances
        else None,
        caches=_objects(model.Cache, values["caches"]),
        memory_attributes=_objects(model.MemoryAttribute, values["memory_attributes"]),
        cache_line_bytes=values["cache_line_bytes"],
        dies=_objects(model.Die, values["dies"]),
        huge_page_pools=_objects(model.HugePagePool, values["huge_page_pools"]),
        restrictions=model.Restrictions(**restrictions),
        counts=model.Counts(values["packages"], values["cores"], values["pus"]),
        host=values["host"],
    )


def _plain(item: Any) -> dict[str, Any]:
    """A dataclass with its sets of processing units as Linux lists and tuples as lists."""
    values = asdict(item)
    for name, value in values.items():
        if name.endswith("cpus"):
            values[name] = format_cpu_list(value)
        elif isinstance(value, tuple):
            values[name] = list(value)
    return values


def _objects(cls: type[_T], stored: list[dict[str, Any]]) -> tuple[_T, ...]:
    """The inverse of `_plain` for a list."""
    return tuple(cls(**{name: _value(name, value) for name, value in s.items()}) for s in stored)


def _value(name: str, value: Any) -> Any:
    if name.endswith("cpus") and isinstance(value, str):
        return parse_cpu_list(value)
    return tuple(value) if isinstance(value, list) else value


def _node(node: model.Node) -> dict[str, Any]:
    """A node; `cpus` are all its own, `usable_cpus` those without what a cgroup forbids."""
    values = {**asdict(node), "cpus": format_cpu_list(node.shown_cpus)}
    del values["shown_cpus"]
    return {**values, "usable_cpus": format_cpu_list(node.cpus)}


def _stored_node(values: Mapping[str, Any]) -> dict[str, Any]:
    stored = {**values, "cpus": values["usable_cpus"], "shown_cpus": values["cpus"]}
    del stored["usable_cpus"]
    return stored


def _distances(distances: model.Distances | None) -> dict[str, Any] | None:
    if distances is None:
        return None
    return {"nodes": list(distances.nodes), "matrix": [list(row) for row in distances.matrix]}


def _restrictions(restrictions: model.Restrictions) -> dict[str, Any]:
    lists = {name: format_cpu_list(getattr(restrictions, name)) for name in _RESTRICTED}
    return {**lists, "cgroup": restrictions.cgroup}
