"""Components: the parts of a host whose change makes measurements obsolete.

A component is named after its place (`node3`, or `drive-0000-41-00-0` after the PCI address of the
slot). The document of a component describes the part in that place. When a drive is replaced, the
document of one component changes, and the points that depend on that component are measured again.
When the kernel renames `nvme3n1` to `nvme1n1`, no document changes. Snakemake measures the points
of a component again when the component's file changes.

``components/.history/<name>.jsonl`` has lines ``{"since": ..., "content": {...}}``, the oldest
first. The content is null while the component did not exist. If a person edits a component file,
the edited content is also a line. So the history shows the serial number of the part that was
present at each measurement, and a report can show what a repair changed.

``check_components.jsonl`` has a line for each nightly check that saw other components than the
check before. The line contains the documents of all components. The file ``check_components.jsonl``
is not in the folder ``components``, since changes in that folder request new measurements.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import cast

from chaosity.cpusets import format_cpu_list
from chaosity.errors import (
    ERRORS_OF_MALFORMED_DOCUMENTS,
    UserError,
    malformed_as_user_error,
    printable_short_line,
)
from chaosity.place_names import PlaceName, node_name, package_name
from chaosity.records.record_files import (
    file_time,
    format_utc,
    read_regular_file,
    time_in_file_name,
    time_to_the_minute,
    utc_now_text,
    write_atomically,
)
from chaosity.topology.topology_model import Topology, configuration_name, read_topology
from chaosity.topology.topology_parts import Gpu, HostFacts, Node, NvmeDrive, OpenclDevice, Package
from chaosity.units import format_binary_bytes, format_quantity

# A component's document: JSON values by key. The value of the key `component` is the kind of the
# component.
_ComponentDocument = Mapping[str, object]
# Name of a component -> its document.
Components = Mapping[str, _ComponentDocument]

COMPONENT_HISTORY_FOLDER = ".history"
COMPONENTS_SEEN_BY_CHECKS_FILE = "check_components.jsonl"
# Largest number of items in a list that texts show. Of a longer list, such as CPU flags, texts show
# only the number of items; the component file contains all items.
_MOST_SHOWN_LIST_ITEMS = 12
_MOST_SHOWN_CHARACTERS = 90
# Kinds of components that only discovery adds and removes; components of other kinds can also be
# named in the inventory.
_DISCOVERED_KINDS = {"drive", "gpu", "node", "package"}
# Largest difference that is accepted between the clock of a file server and the clock of this
# machine.
_LARGEST_CLOCK_DIFFERENCE = timedelta(seconds=60)


@dataclass(frozen=True)
class ComponentState:
    """A component's document during a period."""

    # Start of the period in UTC, ISO 8601. The start is the time stamp of the component's file,
    # which Snakemake compares with the time stamps of records.
    since: str
    # The document of the component; None while the component did not exist.
    content: Mapping[str, object] | None


def read_json_object_or_none(path: Path) -> dict[str, object] | None:
    """Return the JSON object in a file; None if the file is missing or has no JSON object."""
    try:
        return dict(json.loads(_read_text(path)))
    except (OSError, *ERRORS_OF_MALFORMED_DOCUMENTS):
        return None


def _history_file(path: Path) -> Path:
    """Return the path of the file with the history of a component file."""
    return path.parent / COMPONENT_HISTORY_FOLDER / f"{path.stem}.jsonl"


def _read_text(path: Path) -> str:
    """Return the text in a file, with a replacement character for each byte that is not text."""
    return read_regular_file(path).decode(errors="replace")


def record_component_state(path: Path) -> None:
    """Add the content of a component file to the component's history, if it changed.

    A missing file is recorded as a missing component. Text that is not a JSON object is recorded
    under the key `unreadable`.
    """
    history = _history_file(path)
    now = utc_now_text()
    states, content, since = _read_component_states(history), read_json_object_or_none(path), now
    # If the clock was ahead and was set back, a state may begin in the future. A new record would
    # be older than a state in the future, so that Snakemake would measure the point again in every
    # run.
    soon = format_utc(datetime.now(UTC) + _LARGEST_CLOCK_DIFFERENCE)
    from_future = any(state.since > soon for state in states)
    if from_future:
        states = [replace(state, since=min(state.since, now)) for state in states]
    if path.exists():
        if file_time(path) > soon:
            os.utime(path)
        if content is None:
            content = {"unreadable": _read_text(path)}
        since = file_time(path)
    changed = states[-1].content != content if states else content is not None
    if not changed and not from_future:
        return
    if states and since <= states[-1].since:  # the component file is a copy with an old time stamp
        since = utc_now_text()
    if changed:
        states.append(ComponentState(since, content))
    lines = (json.dumps(asdict(state), sort_keys=True, ensure_ascii=False) for state in states)
    write_atomically(history, "".join(f"{line}\n" for line in lines))


def read_component_histories(directory: Path) -> dict[str, list[ComponentState]]:
    """Return component name -> its states, the oldest first.

    States without content are left out. A component that was missing for a while and came back
    unchanged has a single state. `directory` is the folder with the component files.
    """
    histories: dict[str, list[ComponentState]] = {}
    for path in sorted((directory / COMPONENT_HISTORY_FOLDER).glob("*.jsonl")):
        for state in _read_component_states(path):
            states = histories.setdefault(path.name.removesuffix(".jsonl"), [])
            if state.content is not None and (not states or states[-1].content != state.content):
                states.append(state)
    return {name: states for name, states in histories.items() if states}


def notes_on_missing_components(directory: Path) -> list[str]:
    """Return a sentence for each component that an earlier discovery found, but not the last one.

    `directory` has the component files. If a person deletes the history of a component, its
    sentence disappears.
    """
    notes = []
    for path in sorted((directory / COMPONENT_HISTORY_FOLDER).glob("*.jsonl")):
        states = _read_component_states(path)
        document = states[-2].content if len(states) > 1 and not states[-1].content else None
        if document is None or document.get("component") not in _DISCOVERED_KINDS:
            continue
        serial = document.get("serial")
        which = f" (serial {printable_short_line(str(serial))})" if serial else ""
        notes.append(
            f"{path.stem}{which} is missing since {time_to_the_minute(states[-1].since)}:"
            " nothing is measured with it, and its records are kept;"
            f" if it was removed on purpose, delete {path}"
        )
    return notes


def component_state_at(stamp: str, states: Sequence[ComponentState]) -> ComponentState:
    """Return the state of a component at a time, or its first state if the time is earlier.

    `stamp` is the time in the form of `time_in_file_name`. `states` has at least one state; the
    oldest is first.
    """
    before = [state for state in states if time_in_file_name(state.since) <= stamp]
    return before[-1] if before else states[0]


def components_changed_since(
    stamp: str, names: Iterable[str], histories: Mapping[str, Sequence[ComponentState]]
) -> list[str]:
    """Return the names of components whose document at a time differs from their newest document.

    The time `stamp` has the form of `time_in_file_name`. A component that changed, but later
    changed back, is not in the result.
    """
    return [
        name
        for name in names
        if len(states := histories.get(name, ())) > 1
        and component_state_at(stamp, states).content != states[-1].content
    ]


def _read_component_states(history: Path) -> list[ComponentState]:
    """Return the states in a history file. Unreadable lines and a missing file give no state."""
    states = []
    for line in _read_text(history).splitlines() if history.exists() else []:
        with suppress(*ERRORS_OF_MALFORMED_DOCUMENTS):
            entry = json.loads(line)
            states.append(ComponentState(entry["since"], entry["content"]))
    return states


def record_components_of_check(folder: Path, moment: str, components: Components) -> None:
    """Add the components that a check saw, if they differ from those of the last check."""
    path = folder / COMPONENTS_SEEN_BY_CHECKS_FILE
    states, content = _read_component_states(path), json.loads(json.dumps(components))
    if not states or states[-1].content != content:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"since": moment, "content": content}, sort_keys=True) + "\n")


class ComponentLog:
    """The components of ``results/HOST/CONFIGURATION`` at any time, from discoveries and checks.

    Raises:
        UserError: the file ``check_components.jsonl`` has another form.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / COMPONENTS_SEEN_BY_CHECKS_FILE
        self.discovered = read_component_histories(folder / "components")
        with malformed_as_user_error("the file has no components of checks", str(path)):
            self.seen: list[tuple[str, Components]] = [
                (str(state.since), {name: dict(each) for name, each in state.content.items()})  # type: ignore[call-overload]
                for state in _read_component_states(path)
                if state.content is not None
            ]
        self.times = {since for since, _ in self.seen}
        self.times |= {each.since for states in self.discovered.values() for each in states}

    def changes_between(self, before: str, after: str) -> list[tuple[str, str]]:
        """Return (component, change in words) for each change between two times.

        If both a discovery and a check saw a value, the value of the check counts, because a
        discovery can be days later than the change.
        """
        if not any(before < time <= after for time in self.times):
            return []
        seen, known = [], []
        for moment in (before, after):
            seen.append(next((own for since, own in reversed(self.seen) if since <= moment), {}))
            stamp = time_in_file_name(moment)
            states = {
                name: component_state_at(stamp, each) for name, each in self.discovered.items()
            }
            known.append({name: state.content or {} for name, state in states.items()})
        if not all(seen):
            seen = [{}, {}]
        changed = sorted(seen[0].keys() ^ seen[1].keys())
        found = [(name, "is missing" if name in seen[0] else "is new") for name in changed]
        for name in sorted({*known[0], *seen[0]} - {*changed}):
            pairs = zip(known, seen, strict=True)
            old, new = ({**run.get(name, {}), **check.get(name, {})} for run, check in pairs)
            differences = component_differences(old, new)
            found += [(name, f"{key} {text or 'changed'}") for key, text in differences]
        return found

    def replacements(self, component: str) -> Iterator[tuple[str, str]]:
        """Yield (time, text on both serial numbers) for each replacement of a component."""
        found: dict[tuple[object, object], str] = {}
        by_runs = [
            (state.since, state.content or {}) for state in self.discovered.get(component, ())
        ]
        by_checks = [(since, own.get(component, {})) for since, own in self.seen]
        for states in (by_runs, by_checks):
            serials = [(since, own["serial"]) for since, own in states if own.get("serial")]
            for (_, old), (since, new) in pairwise(serials):
                if old != new:
                    found[old, new] = min(since, found.get((old, new), since))
        for (old, new), since in found.items():
            yield since, f"serial {old} \N{RIGHTWARDS ARROW} {new}"


def component_differences(
    old: Mapping[str, object], new: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Yield (key in words, "before -> after") for each key, also nested, whose value differs.

    The text "before -> after" is None if both values have the same text. Two different long lists
    can have the same text.
    """
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        name = f"{prefix} {key_as_words(key)}".strip()
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from component_differences(before, after, name)
            continue
        texts = [_short_value(key, held[key]) if key in held else "nothing" for held in (old, new)]
        arrow = " \N{RIGHTWARDS ARROW} ".join(texts)
        yield name, None if texts[0] == texts[1] else arrow


def _short_value(key: str, value: object) -> str:
    text = component_value_text(key, value)
    return text if len(text) <= _MOST_SHOWN_CHARACTERS else f"{text[:_MOST_SHOWN_CHARACTERS]}..."


def key_as_words(name: str) -> str:
    """Return a key as words, without its unit, since the text of the value names the unit."""
    for suffix in ("_bytes", "_hertz", "_seconds"):
        name = name.removesuffix(suffix)
    text = name.replace("_", " ")
    return {"cpu": "CPU", "smt": "SMT", "numa": "NUMA"}.get(text, text)


def component_value_text(name: str, value: object) -> str:
    """Return the text of a value in a component's document, with the unit that the key names."""
    if value is None or value == "":
        return "unknown" if value is None else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_bytes"):
            return format_binary_bytes(value)
        return format_quantity(name, value) if name.endswith(("_hertz", "_seconds")) else str(value)
    if isinstance(value, list | tuple):
        if len(value) > _MOST_SHOWN_LIST_ITEMS:
            return f"{len(value)} values, see the component file"
        return ", ".join(component_value_text(name, item) for item in value) or "none known"
    if isinstance(value, Mapping):
        items = value.items()
        return " ".join(f"{key_as_words(key)} {component_value_text(key, v)}" for key, v in items)
    return str(value)


SYSTEM_COMPONENT = "system"
# The file with the fingerprints of the documents that the last discovery made.
_DISCOVERY_FINGERPRINTS = ".discovered.json"
# Size in bytes to whose multiples the memory of a node is rounded, because the number of pages that
# firmware reserves varies a little from boot to boot. Every memory module is larger than this size.
_NODE_MEMORY_ROUNDING_BYTES = 64 * 2**20
_NVME_NAMESPACE_PATTERN = re.compile(r"nvme\d+n(\d+)")
_MOST_NAME_CHARACTERS = 100
# Fields of devices that are in the documents of components. The kernel's name of a drive is left
# out, since this name can change with the next boot. The libraries that show a GPU are left out,
# since they depend on the installation.
_DRIVE_KEYS = ("pci", "serial", "model", "firmware", "size_bytes", "link_bytes_per_second", "node")
_GPU_KEYS = ("pci", "model", "serial", "memory_bytes", "node")
_OPENCL_KEYS = ("platform", "device", "type", "driver", "compute_units", "pci", "node")


def make_component_documents(
    topology: Topology,
    tools: Mapping[str, str] | None = None,
    extra_drives: Mapping[str, _ComponentDocument] | None = None,
) -> dict[str, _ComponentDocument]:
    """Return component name -> document, for all components of a host.

    `tools` is tool -> version and hash, for the system component. `extra_drives` is component name
    -> document, for each drive of the inventory. If discovery also found a drive of the inventory,
    its document in `extra_drives` is ignored.
    """
    drives = [
        drive for drive in topology.drives if drive.name
    ]  # a drive without a name cannot be measured
    return {
        **(extra_drives or {}),
        SYSTEM_COMPONENT: _make_system_document(topology, tools or {}),
        **{
            package_name(part.os_index): _make_package_document(part, topology)
            for part in topology.packages
        },
        **{
            node_name(part.os_index): _make_node_document(part, topology) for part in topology.nodes
        },
        **{
            drive_component_name(drive): _make_device_document("drive", drive, _DRIVE_KEYS)
            for drive in drives
        },
        **{
            gpu_component_name(gpu): _make_device_document("gpu", gpu, _GPU_KEYS)
            for gpu in topology.compute_gpus
        },
        **{device.name: _make_opencl_document(device) for device in topology.opencl_devices},
    }


def drive_component_name(drive: NvmeDrive) -> str:
    """Return the name of a drive's component, made from its slot, such as `drive-0000-41-00-0`.

    The second namespace of this drive is `drive-0000-41-00-0-n2`. A drive without a PCI address
    (NVMe over fabrics) is named after its serial number. If the serial number is unknown, the drive
    is named after its namespace, which may change from boot to boot.
    """
    match = _NVME_NAMESPACE_PATTERN.fullmatch(drive.name or "") if drive.pci else None
    further = f"-n{match[1]}" if match and match[1] != "1" else ""
    word = _hyphenated(drive.pci or drive.serial or drive.name or "unknown")
    return str(PlaceName("drive", address=f"{word}{further}"))


def drive_device_path(drive: NvmeDrive) -> str:
    """Return the path of a drive's device; the path contains the slot if the slot is known.

    The kernel's name of a drive can change with each boot, but udev's name of a slot is stable.
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

    A serial number has at most 20 characters (NVM Express). A file name has at most 255.
    """
    return re.sub(r"[^A-Za-z0-9]+", "-", text[:_MOST_NAME_CHARACTERS]).strip("-")


def _make_system_document(topology: Topology, tools: Mapping[str, str]) -> _ComponentDocument:
    """Return the facts that affect all results of a host and stay the same after a reboot."""
    return {
        **{key: fact for key, fact in topology.host.items() if key != "name"},
        "component": SYSTEM_COMPONENT,
        "configuration": configuration_name(topology),
        "cache_line_bytes": topology.cache_line_bytes,
        "offline_cpus": format_cpu_list(topology.restrictions.offline_cpus),
        "huge_page_pools": [asdict(pool) for pool in topology.huge_page_pools],
        "tools": dict(tools),
    }


def _make_package_document(package: Package, topology: Topology) -> _ComponentDocument:
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


def _make_node_document(node: Node, topology: Topology) -> _ComponentDocument:
    """Return a node's document, with all memory that firmware provided, even with a balloon."""
    memory_bytes, table = node.memory_bytes, topology.distances
    if node.present_bytes is not None:
        memory_bytes = (
            round(node.present_bytes / _NODE_MEMORY_ROUNDING_BYTES) * _NODE_MEMORY_ROUNDING_BYTES
        )
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


def _make_device_document(
    kind: str, device: NvmeDrive | Gpu | OpenclDevice, keys: Iterable[str]
) -> _ComponentDocument:
    return {"component": kind, **{key: getattr(device, key) for key in keys}}


def _make_opencl_document(device: OpenclDevice) -> _ComponentDocument:
    """Return a device's document, without the memory size of a processor (balloons change it)."""
    memory_bytes = None if device.is_processor else device.memory_bytes
    return {
        **_make_device_document("opencl_device", device, _OPENCL_KEYS),
        "memory_bytes": memory_bytes,
    }


def write_changed_components(directory: Path, documents: Components) -> list[str]:
    """Write the file `<name>.json` of each component that has changed.

    A component counts as changed if *discovery* returns another document than last time. So a
    person can add a fact that discovery cannot see ("DIMM A1 reseated") to a component's file. The
    edit stays in the file, and the points that depend on the component are measured again once. The
    component's history keeps the previous states. Files of absent components are deleted.

    Returns the sorted names of the components that were added, changed or deleted.

    Raises:
        OSError: the directory cannot be written. No file is left incomplete.
    """
    fingerprints = directory / _DISCOVERY_FINGERPRINTS
    before = read_json_object_or_none(fingerprints) or {}
    changed = []
    for path in directory.glob("[!.]*.json"):
        # An empty file was emptied by a crash, not by a person.
        if not read_regular_file(path).strip(b"\0 \n"):
            _restore_from_history(path)
        record_component_state(path)  # the file may contain edits of a person
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
    """Restore a component's file, which a crash emptied, from the newest document in its history.

    An empty file would make Snakemake measure the points of the component again. If the history
    contains no document, the component file is deleted.
    """
    known = [
        state.content for state in _read_component_states(_history_file(path)) if state.content
    ]
    if known:
        write_atomically(path, _sorted_json(known[-1]))
    else:
        path.unlink()


def _fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sorted_json(document: _ComponentDocument) -> str:
    """Return a document as JSON with sorted keys, so that equal documents have equal texts."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_component_documents(folder: Path) -> dict[str, _ComponentDocument]:
    """Return component name -> document, without files that are not JSON objects.

    A person may have edited a file, so a document may lack keys or have unusual values.
    """
    documents = {
        path.stem: read_json_object_or_none(path) for path in sorted(folder.glob("[!.]*.json"))
    }
    return {name: document for name, document in documents.items() if document is not None}


def facts_of_system_component(components: Components) -> HostFacts:
    """Return the facts in the system component of a host; empty if this component is missing."""
    return cast(HostFacts, components.get(SYSTEM_COMPONENT, {}))


def processor_model(folder: Path) -> str | None:
    """Return the processor model of ``results/HOST/CONFIGURATION``; None if unknown.

    The system component takes precedence over the topology, since a person may have edited the
    component.
    """
    if model := _system_component(folder).get("cpu_model"):
        return str(model)
    try:
        topology = read_topology(folder / "topology.json")
    except UserError:
        return None
    return topology.cpu_model if topology else None


def processor_model_and_group(folder: Path) -> tuple[str | None, str]:
    """Return (processor model, group) of a host; hosts with the same pair count as equal.

    The group is the host's variable ``chaosity_equal_hosts``, which is empty by default.
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


def _system_component(folder: Path) -> _ComponentDocument:
    """Return the system component of ``results/HOST/CONFIGURATION``; empty if there is none."""
    return read_json_object_or_none(folder / "components" / f"{SYSTEM_COMPONENT}.json") or {}
