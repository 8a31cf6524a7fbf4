"""What machine, in words: from the topology's JSON and the system component."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chaosity.units import format_binary_bytes, format_count, format_decimal_bytes, format_quantity

Document = Mapping[str, Any]
# Longer lists (CPU flags) are counted, and stand in the component file.
_MOST_ITEMS = 12


@dataclass(frozen=True)
class Fact:
    """A line of a list: what, and what it is."""

    name: str
    value: str


@dataclass(frozen=True)
class FactGroup:
    """Facts that belong together."""

    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class NodeRow:
    """A line of the table of nodes."""

    node: str
    package: str
    cpus: str
    memory: str
    kind: str
    drives: str


def machine_facts(topology: Document, system: Document) -> list[Fact]:
    """What the machine is, in a handful of lines."""
    nodes = topology.get("nodes") or []
    memory = sum(node.get("present_bytes") or node.get("memory_bytes") or 0 for node in nodes)
    cores, pus = topology.get("cores") or 0, topology.get("pus") or 0
    threads = f", {format_count(pus, 'processing unit')}" if pus != cores else ""
    facts = [
        Fact("Processor", str(system.get("cpu_model") or "unknown")),
        Fact(
            "Structure",
            f"{format_count(topology.get('packages') or 0, 'package')}, "
            f"{format_count(len(nodes), 'memory node')}, {format_count(cores, 'core')}{threads}",
        ),
        Fact("Memory", format_binary_bytes(memory) if memory else "unknown"),
        Fact("Drives", _drives(topology.get("drives") or [])),
    ]
    gpus = [gpu for gpu in topology.get("gpus") or [] if gpu.get("compute", True)]
    if gpus:
        models = Counter(str(gpu.get("model") or gpu.get("name") or "unknown") for gpu in gpus)
        facts.append(Fact("GPUs", ", ".join(f"{n} x {model}" for model, n in models.items())))
    devices = topology.get("opencl_devices") or []
    if devices:
        facts.append(Fact("OpenCL devices", "; ".join(map(_opencl_device, devices))))
    firmware = system.get("firmware") or {}
    product = " ".join(
        str(firmware[k]) for k in ("product_vendor", "product_name") if firmware.get(k)
    )
    if product:
        facts.insert(0, Fact("Product", product))
    facts.append(Fact("Kernel", str(system.get("kernel_release") or "unknown")))
    return facts


def _opencl_device(device: Document) -> str:
    """A device by the name that points use, and who runs it."""
    processor = ", the processor itself" if device.get("type") == "cpu" else ""
    return f"{device['name']}: {device['device']} ({device['platform']}{processor})"


def _drives(drives: list[Document]) -> str:
    """Drives by model, such as "30 x Corsair MP600 PRO, 2.00 TB"."""
    if not drives:
        return "no NVMe drive"
    kinds = Counter(
        (str(drive.get("model") or "NVMe drive").strip(), drive.get("size_bytes"))
        for drive in drives
    )
    return "; ".join(
        f"{number} x {model}" + (f", {format_decimal_bytes(size)}" if size else "")
        for (model, size), number in kinds.items()
    )


def node_table(topology: Document) -> list[NodeRow]:
    """The table of memory nodes."""
    at_node = Counter(drive.get("node") for drive in topology.get("drives") or [])
    rows = []
    for node in topology.get("nodes") or []:
        kind = [str(node.get("kind") or "")]
        kind += ["no CPUs"] if not node.get("initiator") else []
        kind += ["no memory"] if not node.get("target") else []
        size = node.get("present_bytes") or node.get("memory_bytes")
        package = node.get("package")
        rows.append(
            NodeRow(
                node=str(node["os_index"]),
                package="several" if package is None else str(package),
                cpus=node.get("cpus") or "none",
                memory=format_binary_bytes(size) if size else "unknown",
                kind=", ".join(part for part in kind if part),
                drives=str(at_node.get(node["os_index"], 0)),
            )
        )
    return rows


def environment(system: Document) -> list[FactGroup]:
    """Everything that the system component holds, in groups, names as words."""
    general: list[Fact] = []
    groups: list[FactGroup] = []
    for key, value in system.items():
        if key in ("component", "tools"):
            continue
        if isinstance(value, Mapping):
            facts = tuple(Fact(words(name), shown(name, item)) for name, item in value.items())
            if facts:
                groups.append(FactGroup(_capital(words(key)), facts))
        else:
            general.append(Fact(words(key), shown(key, value)))
    return [FactGroup("General", tuple(general)), *groups] if general else groups


def words(name: str) -> str:
    """A key as words, without the unit that its value will carry."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def shown(name: str, value: Any) -> str:
    """A value in words, with its unit where its name has one."""
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
            return f"{len(value)} of them, in the component file"
        return ", ".join(_item(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        return _item(name, value)
    return str(value)


def _item(name: str, item: Any) -> str:
    """An element of a list; of several fields each with its name."""
    if not isinstance(item, Mapping):
        return shown(name, item)
    return " ".join(f"{words(key)} {shown(key, value)}" for key, value in item.items())
