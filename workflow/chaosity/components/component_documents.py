"""Make, write and read the documents of a host's components; each changes only with its component.

A component is named after its place (`node3`, or `drive-0000-41-00-0` after the PCI address of the
slot). Its document describes the part in that place. When a drive is replaced, the document of one
component changes, and the points that depend on that component are measured again. When the kernel
renames `nvme3n1` to `nvme1n1`, no document changes. Snakemake measures the points of a component
again when the component's file changes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

from chaosity.components.component_history import (
    ComponentDocument,
    Components,
    history_file,
    read_component_states,
    read_json_object_or_none,
    record_component_state,
)
from chaosity.cpusets import format_cpu_list
from chaosity.errors import UserError
from chaosity.place_names import PlaceName, node_name, package_name
from chaosity.records.record_files import read_regular_file, write_atomically
from chaosity.topology.topology_model import Topology, configuration_name, read_topology
from chaosity.topology.topology_parts import Gpu, HostFacts, Node, NvmeDrive, OpenclDevice, Package

SYSTEM = "system"
# The file with the fingerprints of the last discovery's documents.
_DISCOVERY_FINGERPRINTS = ".discovered.json"
# A node's memory is rounded to multiples of this, because firmware reserves a few pages more or
# fewer from boot to boot. No memory module is as small.
_MEMORY_STEP_BYTES = 64 * 2**20
_NAMESPACE = re.compile(r"nvme\d+n(\d+)")
_LONGEST_NAME = 100
# Fields of devices in their documents. Left out are the kernel's name of a drive, which can change
# with the next boot, and the libraries that show a GPU, which depend on the installation.
_DRIVE_KEYS = ("pci", "serial", "model", "firmware", "size_bytes", "link_bytes_per_second", "node")
_GPU_KEYS = ("pci", "model", "serial", "memory_bytes", "node")
_OPENCL_KEYS = ("platform", "device", "type", "driver", "compute_units", "pci", "node")


def make_component_documents(
    topology: Topology,
    tools: Mapping[str, str] | None = None,
    extra_drives: Mapping[str, ComponentDocument] | None = None,
) -> dict[str, ComponentDocument]:
    """Return component name -> document, for all components of a host.

    `tools` is tool -> version and hash, for the system component. `extra_drives` is component name
    -> document of each drive of the inventory; of these, drives that discovery found too are
    ignored.
    """
    drives = [
        drive for drive in topology.drives if drive.name
    ]  # without a name, a drive cannot be measured
    return {
        **(extra_drives or {}),
        SYSTEM: _system(topology, tools or {}),
        **{package_name(part.os_index): _package(part, topology) for part in topology.packages},
        **{node_name(part.os_index): _node(part, topology) for part in topology.nodes},
        **{drive_component_name(drive): _device("drive", drive, _DRIVE_KEYS) for drive in drives},
        **{
            gpu_component_name(gpu): _device("gpu", gpu, _GPU_KEYS) for gpu in topology.compute_gpus
        },
        **{device.name: _opencl_device(device) for device in topology.opencl_devices},
    }


def drive_component_name(drive: NvmeDrive) -> str:
    """Return `drive-0000-41-00-0` for a slot; its second namespace is `drive-0000-41-00-0-n2`.

    A drive without a PCI address (NVMe over fabrics) is named after its serial number, else after
    its namespace, which may change from boot to boot.
    """
    match = _NAMESPACE.fullmatch(drive.name or "") if drive.pci else None
    further = f"-n{match[1]}" if match and match[1] != "1" else ""
    word = _hyphenated(drive.pci or drive.serial or drive.name or "unknown")
    return str(PlaceName("drive", address=f"{word}{further}"))


def drive_device_path(drive: NvmeDrive) -> str:
    """Return the path of a drive's device, by its slot if it has one.

    The kernel's name can change with each boot; udev's name of the slot does not.
    """
    name = drive.name or ""
    if not drive.pci:
        return f"/dev/{name}"
    return f"/dev/disk/by-path/pci-{drive.pci}-nvme-{name.rpartition('n')[2]}"


def gpu_component_name(gpu: Gpu) -> str:
    """Return the name of a GPU's component after its slot, such as `gpu-0000-06-00-0`."""
    return str(PlaceName("gpu", address=_hyphenated(gpu.pci or gpu.name or "unknown")))


def _hyphenated(text: str) -> str:
    """Return a text as part of a component's name, with letters, digits and hyphens only.

    A serial number has at most 20 characters (NVM Express); the name of a file has at most 255.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text[:_LONGEST_NAME]).strip("-")


def _system(topology: Topology, tools: Mapping[str, str]) -> ComponentDocument:
    """Return the facts that affect all results of a host and stay the same after a reboot."""
    return {
        **{key: fact for key, fact in topology.host.items() if key != "name"},
        "component": SYSTEM,
        "configuration": configuration_name(topology),
        "cache_line_bytes": topology.cache_line_bytes,
        "offline_cpus": format_cpu_list(topology.restrictions.offline_cpus),
        "huge_page_pools": [asdict(pool) for pool in topology.huge_page_pools],
        "tools": dict(tools),
    }


def _package(package: Package, topology: Topology) -> ComponentDocument:
    cores = [core for core in topology.cores if core.package == package.os_index]
    return {
        "component": "package",
        "os_index": package.os_index,
        "model": package.model,
        "cpus": format_cpu_list(package.cpus),
        "nodes": list(package.nodes),
        "cores": len(cores),
        "pus_per_core": sorted({len(core.cpus) for core in cores}),
        "caches": [
            {"level": c.level, "kind": c.kind, "size_bytes": c.size_bytes, "pus": c.pus}
            for c in topology.caches
            if set(c.cpus) & set(package.cpus)
        ],
    }


def _node(node: Node, topology: Topology) -> ComponentDocument:
    """Return a node's document; its memory is what firmware provided, also with a balloon."""
    memory_bytes, table = node.memory_bytes, topology.distances
    if node.present_bytes is not None:
        memory_bytes = round(node.present_bytes / _MEMORY_STEP_BYTES) * _MEMORY_STEP_BYTES
    return {
        "component": "node",
        "os_index": node.os_index,
        "package": node.package,
        "cpus": format_cpu_list(node.cpus),
        "memory_bytes": memory_bytes,
        "memory_side_cache_bytes": node.memory_side_cache_bytes,
        "kind": node.kind,
        "tier": node.tier,
        "initiator": node.initiator,
        "target": node.target,
        "distances": {
            str(other): distance
            for other in (table.nodes if table else ())
            if table and (distance := table.distance_between(node.os_index, other)) is not None
        },
        "memory_attributes": [
            {
                "name": item.name,
                "initiator_cpus": format_cpu_list(item.initiator_cpus),
                "value": item.value,
            }
            for item in topology.memory_attributes
            if item.target == node.os_index
        ],
    }


def _device(
    kind: str, device: NvmeDrive | Gpu | OpenclDevice, keys: Iterable[str]
) -> ComponentDocument:
    return {"component": kind, **{key: getattr(device, key) for key in keys}}


def _opencl_device(device: OpenclDevice) -> ComponentDocument:
    """Return a device's document; a processor's has no memory size, since a balloon changes it."""
    memory_bytes = None if device.is_processor else device.memory_bytes
    return {**_device("opencl_device", device, _OPENCL_KEYS), "memory_bytes": memory_bytes}


def write_changed_components(directory: Path, documents: Components) -> list[str]:
    """Write the file `<name>.json` of each component that has changed.

    A component has changed when *discovery* returns another document than last time. So a person
    can add a fact that discovery cannot see ("DIMM A1 reseated") to the file. The edit stays, and
    the points that depend on the component are measured again, once. `component_history` keeps the
    previous states. Files of absent components are deleted.

    Returns the names of components that were added, changed or deleted, sorted.

    Raises:
        OSError: the directory cannot be written. No file is left incomplete.
    """
    fingerprints = directory / _DISCOVERY_FINGERPRINTS
    before = read_json_object_or_none(fingerprints) or {}
    changed = []
    for path in directory.glob("[!.]*.json"):
        if not read_regular_file(path).strip(b"\0 \n"):  # a crash, and no person, emptied this file
            _restore_from_history(path)
        record_component_state(path)  # the file may have a person's edits
        if path.stem not in documents:
            path.unlink()
            record_component_state(path)
            changed.append(path.stem)
    now: dict[str, str] = {}
    for name, document in documents.items():
        path, text = directory / f"{name}.json", _sorted_json(document)
        now[name] = _fingerprint(text.encode())
        known = before.get(name) or (path.exists() and _fingerprint(read_regular_file(path)))
        if not path.exists() or known != now[name]:
            write_atomically(path, text)
            record_component_state(path)
            changed.append(name)
    if now != before:
        write_atomically(fingerprints, _sorted_json(now))
    return sorted(changed)


def _restore_from_history(path: Path) -> None:
    """Write the newest document of a component's history into its file, which a crash emptied.

    Without the document, the points of the component would be measured again. If the history has no
    document, the file is deleted.
    """
    known = [state.content for state in read_component_states(history_file(path)) if state.content]
    if known:
        write_atomically(path, _sorted_json(known[-1]))
    else:
        path.unlink()


def _fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sorted_json(document: ComponentDocument) -> str:
    """Return JSON with sorted keys, so that equal documents have equal texts."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_component_documents(folder: Path) -> dict[str, ComponentDocument]:
    """Return component name -> document; files that are not JSON objects are left out.

    A person may have edited a file, so keys may be missing or have unusual values.
    """
    documents = {
        path.stem: read_json_object_or_none(path) for path in sorted(folder.glob("[!.]*.json"))
    }
    return {name: document for name, document in documents.items() if document is not None}


def facts_of_system_component(components: Components) -> HostFacts:
    """Return the facts in the system component; empty if the component is missing."""
    return cast(HostFacts, components.get(SYSTEM, {}))


def processor_model(folder: Path) -> str | None:
    """Return the processor model of ``results/HOST/CONFIGURATION``; None if unknown.

    The model in the system component counts more than that in the topology, since a person may have
    edited the component.
    """
    if model := _system_component(folder).get("cpu_model"):
        return str(model)
    try:
        topology = read_topology(folder / "topology.json")
    except UserError:
        return None
    return topology.cpu_model if topology else None


def processor_model_and_group(folder: Path) -> tuple[str | None, str]:
    """Return processor model and group of a host; hosts with an equal pair are compared as equal.

    The group is the host's variable ``chaosity_equal_hosts``, empty by default.
    """
    return processor_model(folder), str(read_host_json(folder).get("equal_hosts") or "")


def read_host_json(folder: Path) -> Mapping[str, object]:
    """Return ``host.json`` of the host of ``results/HOST/CONFIGURATION``; empty if unreadable."""
    return read_json_object_or_none(folder.resolve().parent / "host.json") or {}


def is_virtual_machine(folder: Path) -> bool:
    """Return whether the host of ``results/HOST/CONFIGURATION`` says that it is a virtual machine.

    Only x86 processors report this, so the result is False on other processors.
    """
    return _system_component(folder).get("hypervisor") is True


def _system_component(folder: Path) -> ComponentDocument:
    """Return the system component of ``results/HOST/CONFIGURATION``; empty if there is none."""
    return read_json_object_or_none(folder / "components" / f"{SYSTEM}.json") or {}
