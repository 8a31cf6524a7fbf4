"""Synthetic machines with their measurements, for tests of figures and report.

The numbers are invented but have the shape of real ones: a share of the bandwidth is lost per
step of distance, drives add up until something else is full, and noise multiplies.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from chaosity.cpusets import format_cpu_list
from chaosity.store.tidy_table_parquet import COLUMNS

BANDWIDTH = "bandwidth_bytes_per_second"
KERNELS = ("copy", "scale", "add", "triad", "read", "copy_nt", "scale_nt", "add_nt", "triad_nt")
GB = 1e9


@dataclass
class Machine:
    """A host with nodes in packages and drives on nodes.

    Attributes:
        host: its name.
        packages: nodes of each package.
        drives: number of drives on each node; empty for a file that stands in.
        cores_per_node: cores of each node.
        replicates: of every point.
        noise: standard deviation of the noise, as a share.
        failed: point name -> reason.
        missing: point names that are planned only.
        slow: drives that give only a share of what they should.
        day: on which it was measured.
    """

    host: str
    packages: tuple[tuple[int, ...], ...]
    drives: dict[int, int] = field(default_factory=dict)
    cores_per_node: int = 6
    replicates: int = 3
    noise: float = 0.02
    configuration: str = "nps4"
    failed: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    seed: int = 1
    slow: dict[str, float] = field(default_factory=dict)
    day: str = "2026-11-20"

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.package_of = {n: p for p, nodes in enumerate(self.packages) for n in nodes}
        self.nodes = sorted(self.package_of)
        self.file_backed = not self.drives

    def relation(self, a: int, b: int) -> str:
        if a == b:
            return "same_node"
        return "same_package" if self.package_of[a] == self.package_of[b] else "other_package"

    def drive_names(self, node: int) -> list[str]:
        if self.file_backed:
            return ["file0"]
        return [f"drive-0000-{node * 16 + 1:02x}-{k:02x}-0" for k in range(self.drives[node])]

    # What the hardware would do, in bytes per second.

    def memory_rate(self, initiator: int, target: int, share: float = 1.0) -> float:
        step = {"same_node": 1.0, "same_package": 0.97, "other_package": 0.67}
        return 41.2 * GB * step[self.relation(initiator, target)] * share

    def storage_rate(self, initiator: int, nodes: tuple[int, ...], drives: int) -> float:
        if self.file_backed:
            return 1.9 * GB
        # fio lets each drive read for as long as the others: they add up.
        slow = [
            share
            for node in nodes
            for name in self.drive_names(node)[: drives if len(nodes) == 1 else None]
            if (share := self.slow.get(name))
        ]
        drives = drives - len(slow) + sum(slow)
        far = [node for node in nodes if self.relation(initiator, node) == "other_package"]
        limit = 31.0 * GB if not far else 24.0 * GB
        if len(far) == len(nodes) and self.package_of[initiator] == 0 and len(nodes) == 1:
            limit = 9.5 * GB  # one direction between the packages is slow
        if far and {min(self.nodes), 3} <= set(nodes):
            limit *= 0.7
        return min(6.9 * GB * drives, limit)

    def drive_rate(self, initiator: int, owner: int, drive: str) -> float:
        """The read bandwidth of a single drive in bytes per second."""
        if drive in self.slow:
            return 6.9 * GB * self.slow[drive]
        others, self.slow = self.slow, {}
        rate = self.storage_rate(initiator, (owner,), 1)
        self.slow = others
        return rate

    def components(self) -> dict[str, dict[str, Any]]:
        """The component documents of the drives, by component name."""
        found = (
            (name, node, place)
            for node in self.drives
            for place, name in enumerate(self.drive_names(node))
        )
        return {
            name: {
                "component": "drive",
                "serial": f"S{node}{place}",
                "model": "Corsair MP600 PRO",
                "firmware": "EIFM51.3",
                "node": node,
            }
            for name, node, place in found
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        yield from self.memory()
        yield from self.storage()
        yield from self.interference()

    def tidy(self) -> pd.DataFrame:
        return pd.DataFrame(list(self.rows()), columns=list(COLUMNS)).astype(COLUMNS)

    def point(
        self, experiment: str, loads: list[dict[str, Any]], factors: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The rows of all replicates of a point."""
        name = ".".join(
            f"{load['load']}=" + "+".join(filter(None, (load[k] for k in _NAMED))) for load in loads
        )
        status = "missing" if name in self.missing else "failed" if name in self.failed else "valid"
        for replicate in range(1, self.replicates + 1):
            for load in loads:
                if load["target"] == "none":
                    continue
                rate = load["rate"] * float(np.exp(self.random.normal(0.0, self.noise)))
                minute = (len(name) * 7 + replicate * 13) % 60
                yield {
                    **{key: value for key, value in load.items() if key != "rate"},
                    "host": self.host,
                    "configuration": self.configuration,
                    "experiment": experiment,
                    "point": name,
                    "replicate": replicate,
                    "order": replicate * 100,
                    "measured_at": f"{self.day}T1{replicate}:{minute:02d}:00.000Z",
                    "status": status,
                    "reason": self.failed.get(name)
                    or ("not measured yet" if status == "missing" else None),
                    "metric": BANDWIDTH,
                    "value": rate if status == "valid" else None,
                    "factors": json.dumps(factors, sort_keys=True),
                }

    def memory_load(
        self, initiator: str, kind: str, node: int, target: int, kernel: str, rate: float
    ) -> dict[str, Any]:
        return {
            "load": "memory",
            "benchmark": "chaosity_bandwidth",
            "category": "memory_bandwidth",
            "kernel": kernel,
            "initiator": initiator,
            "initiator_kind": kind,
            "initiator_nodes": str(node),
            "threads": 1 if kind == "pu" else self.cores_per_node,
            "target": f"node{target}",
            "target_kind": "node",
            "target_nodes": str(target),
            "drives": None,
            "file_backed": False,
            "relation": self.relation(node, target),
            "label": "variant of STREAM",
            "rate": rate,
        }

    def storage_load(
        self, node: int, target: str, kind: str, nodes: tuple[int, ...], drives: int, rate: float
    ) -> dict[str, Any]:
        relations = ("same_node", "same_package", "other_package")
        far = max((self.relation(node, n) for n in nodes), key=relations.index, default="unknown")
        return {
            "load": "storage",
            "benchmark": "fio_sequential_read",
            "category": "storage_bandwidth",
            "kernel": None,
            "initiator": f"node{node}",
            "initiator_kind": "node",
            "initiator_nodes": str(node),
            "threads": self.cores_per_node,
            "target": target,
            "target_kind": kind,
            "target_nodes": format_cpu_list(nodes),
            "drives": drives,
            "file_backed": self.file_backed,
            "relation": "unknown" if self.file_backed else far,
            "label": "file-backed" if self.file_backed else None,
            "rate": rate,
        }

    def memory(self) -> Iterator[dict[str, Any]]:
        name = "memory_bandwidth"
        for node, target in itertools.product(self.nodes, self.nodes):
            rate = self.memory_rate(node, target)
            pu = f"pu{node * self.cores_per_node}"
            for load in (
                self.memory_load(pu, "pu", node, target, "triad", rate * 0.4),
                self.memory_load(f"node{node}", "node", node, target, "triad", rate),
            ):
                yield from self.point(name, [load], {})
        if len(self.nodes) > 1:
            for domain, target in itertools.product(range(2 * len(self.nodes)), self.nodes):
                node = self.nodes[domain // 2]
                rate = self.memory_rate(node, target, 0.62)
                load = self.memory_load(f"l3_{domain}", "l3", node, target, "triad", rate)
                yield from self.point(name, [load], {})
        if len(self.packages) > 1:
            for package, target in itertools.product(range(len(self.packages)), self.nodes):
                near = package == self.package_of[target]
                load = self.memory_load(
                    f"package{package}",
                    "package",
                    self.packages[package][0],
                    target,
                    "triad",
                    (40.0 if near else 38.0) * GB,
                )
                load["initiator_nodes"] = format_cpu_list(self.packages[package])
                load["relation"] = "same_package" if near else "other_package"
                yield from self.point(name, [load], {})
        for node, kernel in itertools.product(self.nodes, KERNELS):
            gain = 1.3 if kernel.endswith("_nt") else 1.18 if kernel == "read" else 1.0
            gain *= 0.93 if kernel.startswith(("copy", "scale")) else 1.0
            if kernel == "triad":
                continue
            rate = self.memory_rate(node, node, gain)
            load = self.memory_load(f"node{node}", "node", node, node, kernel, rate)
            yield from self.point(name, [load], {})

    def storage(self) -> Iterator[dict[str, Any]]:
        for node in self.nodes:
            for load in self.storage_sets(node):
                yield from self.point("storage_bandwidth", [load], {"drives": load["drives"]})

    def storage_sets(self, node: int) -> Iterator[dict[str, Any]]:
        if self.file_backed:
            yield self.storage_load(node, "file0", "drive", (), 1, self.storage_rate(node, (), 1))
            return
        owners = [owner for owner in self.nodes if self.drives.get(owner)]
        for owner in owners:
            for drive in self.drive_names(owner):
                rate = self.drive_rate(node, owner, drive)
                yield self.storage_load(node, drive, "drive", (owner,), 1, rate)
            for k in range(2, self.drives[owner]):
                rate = self.storage_rate(node, (owner,), k)
                target = f"node{owner}drives{k}"
                yield self.storage_load(node, target, "first_of_node", (owner,), k, rate)
        for size in range(1, len(owners) + 1):
            for nodes in itertools.combinations(owners, size):
                k = sum(self.drives[n] for n in nodes)
                target = f"nodes{format_cpu_list(nodes)}drives"
                kind = "all_of_nodes"
                if size == 1:
                    target, kind = f"node{nodes[0]}drives", "all_of_node"
                rate = self.storage_rate(node, nodes, k)
                yield self.storage_load(node, target, kind, nodes, k, rate)

    def interference(self) -> Iterator[dict[str, Any]]:
        name = "interference"
        for node in self.nodes:
            most = 1 if self.file_backed else self.drives.get(node, 0)
            for k in range(most + 1):
                target = "none" if k == 0 else f"node{node}drives{k}"
                if k == 1:
                    target = self.drive_names(node)[0]
                kind = "drive" if k == 1 else "first_of_node" if k < most else "all_of_node"
                near = () if self.file_backed else (node,)
                rate = self.storage_rate(node, near, k)
                storage = self.storage_load(node, target, kind, near, k, rate)
                if k:
                    factors = {"placement": "alone", "drives": k, "storage_node": f"node{node}"}
                    yield from self.point(name, [storage], factors)
                for other in self.one_of_each_relation(node):
                    placement = self.relation(node, other)
                    eaten = {"same_node": 0.9, "same_package": 0.15, "other_package": 0.05}
                    left = self.memory_rate(other, other) - eaten[placement] * rate * (k > 0)
                    memory = self.memory_load(f"node{other}", "node", other, other, "triad", left)
                    beside = {**storage, "rate": rate * (1 - 0.2 * eaten[placement])}
                    factors = {"placement": placement, "drives": k, "storage_node": f"node{node}"}
                    yield from self.point(name, [memory, beside], factors)

    def one_of_each_relation(self, node: int) -> list[int]:
        onwards = sorted(self.nodes, key=lambda other: (other < node, other))
        found: dict[str, int] = {}
        for other in onwards:
            found.setdefault(self.relation(node, other), other)
        return list(found.values())

    def topology(self) -> dict[str, Any]:
        """The JSON of `chaosity topology`, with the parts that figures and report read."""
        width = self.cores_per_node
        return {
            "source": "live",
            "kind": "live",
            "packages": len(self.packages),
            "cores": width * len(self.nodes),
            "pus": width * len(self.nodes),
            "nodes": [
                {
                    "os_index": node,
                    "cpus": format_cpu_list(range(place * width, (place + 1) * width)),
                    "memory_bytes": 32 * 2**30,
                    "present_bytes": 32 * 2**30,
                    "initiator": True,
                    "target": True,
                    "tier": 0,
                    "kind": "DRAM",
                    "package": self.package_of[node],
                }
                for place, node in enumerate(self.nodes)
            ],
            "drives": [
                {
                    "name": f"nvme{node}n{k}",
                    "pci": name.removeprefix("drive-").replace("-", ":", 2).replace("-", "."),
                    "serial": f"S{node}{k}",
                    "model": "Corsair MP600 PRO",
                    "node": node,
                    "size_bytes": 2_000_398_934_016,
                    "link_bytes_per_second": 7_877_000_000,
                }
                for node, number in self.drives.items()
                for k, name in enumerate(self.drive_names(node)[:number])
            ],
            "gpus": [],
            "accelerators": [],
            "core_kinds": [],
            "l3_domains": [],
            "distances": None,
            "cache_line_bytes": 64,
            "restricted": False,
            "host": {"cpu_model": "AMD EPYC 7413 24-Core Processor"},
            "hierarchy": {
                "packages": [
                    {"os_index": number, "nodes": list(nodes), "model": "AMD EPYC 7413"}
                    for number, nodes in enumerate(self.packages)
                ],
                "cores": [],
            },
        }


_NAMED = ("initiator", "target", "kernel")


def small(replicates: int = 3) -> Machine:
    """A host with one node, two cores, and a file instead of drives."""
    return Machine("lab", ((0,),), cores_per_node=2, replicates=replicates, configuration="default")


def epyc(replicates: int = 3) -> Machine:
    """The server of document 000: 8 nodes, 2 packages, 30 drives; some points failed."""
    failed = {
        "memory=node2+node5+triad": "placement: memory: 3 % of the pages are on node 4",
        "memory=node6+node1+triad": "free memory: node 1 has 1.2 GB free, 3.3 GB are needed",
        "storage=node1+drive-0000-51-02-0": "fio: error 5 (input/output error) after 1.3 s",
        "storage=node4+nodes2-3,5drives": "load average: 14.2 before the start",
        "memory=node3+node3+triad.storage=node3+node3drives2": "measured: not finished after 20 s",
    }
    missing = ("memory=node7+node7+triad", "storage=node7+nodes0,2drives")
    drives = dict(enumerate((3, 4, 4, 4, 3, 4, 4, 4)))
    packages = ((0, 1, 2, 3), (4, 5, 6, 7))
    return Machine("epyc7413", packages, drives, 6, replicates, failed=failed, missing=missing)


def large() -> Machine:
    """A host with 24 nodes in 12 packages that are numbered crosswise, without drives."""
    packages = tuple((p, p + 12) for p in range(12))
    return Machine(
        "uv24",
        packages,
        cores_per_node=8,
        configuration="default",
        failed={"memory=node3+node20+triad": "measured: killed by signal 9"},
    )
