"""Describe the machine in words, from its topology and its system component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaosity.cpusets import format_cpu_list
from chaosity.topology.device_types import Nic, NvmeDrive, OpenclDevice
from chaosity.topology.host_fact_types import HostFacts
from chaosity.topology.topology_model import Topology
from chaosity.units import format_binary_bytes, format_count, format_decimal_bytes, format_quantity

# A component's document, or a part of it, as read from its JSON file.
Document = Mapping[str, Any]
# Items of longer lists, such as CPU flags, are only counted; the component file has all items.
_MOST_ITEMS = 12


@dataclass(frozen=True)
class Fact:
    """A line of a list: name and value."""

    name: str
    value: str


@dataclass(frozen=True)
class FactGroup:
    """A titled list of facts."""

    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class NodeRow:
    """A row of the table of nodes."""

    node: str
    package: str
    cpus: str
    memory: str
    kind: str
    drives: str


def machine_facts(topology: Topology, system: HostFacts) -> list[Fact]:
    """Return lines on the machine's processor, structure, memory, drives and kernel."""
    counts, memory = topology.counts, topology.total_memory_bytes
    structure = [
        format_count(counts.packages, "package"),
        format_count(len(topology.nodes), "memory node"),
        format_count(counts.cores, "core"),
    ]
    if counts.pus != counts.cores:
        structure.append(format_count(counts.pus, "processing unit"))
    facts = [
        Fact("Processor", str(system.get("cpu_model") or "unknown")),
        Fact("Structure", ", ".join(structure)),
        Fact("Memory", format_binary_bytes(memory) if memory else "unknown"),
        Fact("Memory modules", topology.memory_peak.text),
        Fact("Drives", _drives_text(topology.drives)),
    ]
    if gpus := topology.compute_gpus:
        models = Counter(gpu.model or gpu.name or "unknown" for gpu in gpus)
        facts.append(Fact("GPUs", ", ".join(f"{n} x {model}" for model, n in models.items())))
    if devices := topology.opencl_devices:
        facts.append(Fact("OpenCL devices", "; ".join(map(_opencl_text, devices))))
    if topology.nics:
        facts.append(Fact("Network", "; ".join(map(_nic_text, topology.nics))))
    firmware = system.get("firmware") or {}
    product = " ".join(filter(None, map(firmware.get, ("product_vendor", "product_name"))))
    if product:
        facts.insert(0, Fact("Product", product))
    facts.append(Fact("Kernel", str(system.get("kernel_release") or "unknown")))
    return facts


def _opencl_text(device: OpenclDevice) -> str:
    """Return a text with a device's name in points, its model, its platform and its memory."""
    details = (
        device.platform,
        "runs on the processor" if device.is_processor else "",
        device.memory_text,
    )
    return f"{device.name}: {device.device} ({', '.join(filter(None, details))})"


def _nic_text(nic: Nic) -> str:
    """Return a text with a NIC's name, model, rate and node."""
    rate = nic.link_bytes_per_second
    details = (
        nic.kind,
        format_quantity("link_bytes_per_second", rate) if rate else "rate unknown",
        "node unknown" if nic.node is None else f"node {nic.node}",
    )
    return f"{nic.name}: {nic.model or 'unknown model'} ({', '.join(details)})"


def _drives_text(drives: Sequence[NvmeDrive]) -> str:
    """Return a text with number, model and size: "30 x Corsair MP600 PRO, 2.00 TB"."""
    kinds = Counter(((each.model or "NVMe drive").strip(), each.size_bytes) for each in drives)
    texts = (
        f"{number} x {model}" + (f", {format_decimal_bytes(size)}" if size else "")
        for (model, size), number in kinds.items()
    )
    return "; ".join(texts) or "no NVMe drive"


def node_rows(topology: Topology) -> list[NodeRow]:
    """Return the rows of the table of nodes, one for each node."""
    drives = Counter(drive.node for drive in topology.drives)
    rows = []
    for node in topology.nodes:
        absent = {"no CPUs": node.initiator, "no memory": node.target}
        kind = [node.kind, *(words for words, present in absent.items() if not present)]
        rows.append(
            NodeRow(
                node=str(node.os_index),
                package="several" if node.package is None else str(node.package),
                cpus=format_cpu_list(node.shown_cpus) or "none",
                memory=format_binary_bytes(node.size_bytes) if node.size_bytes else "unknown",
                kind=", ".join(filter(None, kind)),
                drives=str(drives[node.os_index]),
            )
        )
    return rows


def system_component_fact_groups(system: Mapping[str, object]) -> list[FactGroup]:
    """Return all values of the system component, in groups."""
    groups: dict[str, dict[str, object]] = {"general": {}}
    for key, value in system.items():
        if isinstance(value, Mapping):
            groups[key] = dict(value)
        elif key != "component":
            groups["general"][key] = value
    groups.pop("tools", None)
    titles = {key: key_as_words(key) for key, values in groups.items() if values}
    return [
        FactGroup(title[:1].upper() + title[1:], tuple(map(_fact, groups[key].items())))
        for key, title in titles.items()
    ]


def _fact(item: tuple[str, object]) -> Fact:
    return Fact(key_as_words(item[0]), component_value_text(*item))


def key_as_words(name: str) -> str:
    """Return a key as words, without its unit, since the value's text has the unit."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def component_value_text(name: str, value: object) -> str:
    """Return a value of a component's document as text, with the unit that its key names."""
    if value is None or value == "":
        return "unknown" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return format_binary_bytes(value)
        return format_quantity(name, value) if name.endswith(("_hertz", "_seconds")) else str(value)
    if isinstance(value, list | tuple):
        if len(value) > _MOST_ITEMS:
            return f"{len(value)} values, see the component file"
        return ", ".join(component_value_text(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        facts = map(_fact, value.items())
        return " ".join(f"{fact.name} {fact.value}" for fact in facts)
    return str(value)
