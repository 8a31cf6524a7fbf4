"""Write and read the component files, whose changes make Snakemake measure points again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from chaosity.components.component_history import (
    history_file,
    read_json_object_or_none,
    read_states,
    record_component_state,
)
from chaosity.components.make_component_documents import SYSTEM, ComponentDocument, Components
from chaosity.errors import UserError
from chaosity.records.record_files import read_regular_file, write_atomically
from chaosity.topology.topology_model import read_topology
from chaosity.topology.topology_parts import HostFacts

# The file with the fingerprints of the last discovery's documents.
_DISCOVERY_FINGERPRINTS = ".discovered.json"


def write_changed_components(directory: Path, documents: Components) -> list[str]:
    """Write the file `<name>.json` of each component that has changed.

    A component has changed when *discovery* returns another document than last time. So a person
    can add a fact that discovery cannot see ("DIMM A1 reseated") to the file. The edit stays, and
    the points that depend on the component are measured again, once. `component_history` keeps the
    previous states.

    Args:
        directory: folder of the files, created if missing; files of absent components are deleted.
        documents: name of each component -> its document.

    Returns:
        The names of components that were added, changed or deleted, sorted.

    Raises:
        OSError: the directory cannot be written. No file is left incomplete.
    """
    fingerprints = directory / _DISCOVERY_FINGERPRINTS
    before = read_json_object_or_none(fingerprints) or {}
    changed = []
    for path in directory.glob("[!.]*.json"):
        if not read_regular_file(path).strip(b"\0 \n"):  # left by a crash; nobody's edit
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
    """Write the last content of a component again, so that nothing is measured for a lost file."""
    known = [state.content for state in read_states(history_file(path)) if state.content]
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
    """Return the documents of the components by name, without files that are not JSON objects.

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

    The system component comes before the topology, since a person may have edited it.
    """
    if model := _system_component(folder).get("cpu_model"):
        return str(model)
    try:
        topology = read_topology(folder / "topology.json")
    except UserError:
        return None
    return topology.cpu_model if topology else None


def processor_model_and_group(folder: Path) -> tuple[str | None, str]:
    """Return what the hosts that are compared as equal have in common: model and group.

    The group is the host's variable ``chaosity_equal_hosts``, empty by default.
    """
    return processor_model(folder), str(discovered_host(folder).get("equal_hosts") or "")


def discovered_host(folder: Path) -> Mapping[str, object]:
    """Return ``host.json`` of the host of ``results/HOST/CONFIGURATION``; empty if unreadable."""
    return read_json_object_or_none(folder.resolve().parent / "host.json") or {}


def is_virtual_machine(folder: Path) -> bool:
    """Return whether the host of ``results/HOST/CONFIGURATION`` says that it is a virtual machine.

    Only x86 processors report it.
    """
    return _system_component(folder).get("hypervisor") is True


def _system_component(folder: Path) -> ComponentDocument:
    """Return the system component of ``results/HOST/CONFIGURATION``; empty if there is none."""
    return read_json_object_or_none(folder / "components" / f"{SYSTEM}.json") or {}
