"""Writes and reads the component files, whose changes make Snakemake measure points again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from chaosity.components.component_history import record_component_state
from chaosity.components.make_component_documents import SYSTEM, ComponentDocument, Components
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.topology.host_fact_types import HostFacts

# The file with the fingerprints of the last discovery's documents.
DISCOVERY_FINGERPRINTS = ".discovered.json"


def write_components(directory: Path, documents: Components) -> list[str]:
    """Writes a file `<name>.json` for each component, only where the component changed.

    A component has changed when *discovery* returns another document than last time. So a person
    may add a fact that discovery cannot see ("DIMM A1 reseated") to a file: the edit stays, and the
    points that depend on the component are measured again, once. `component_history` keeps the
    previous states.

    Args:
        directory: is created when missing; files of components that no longer exist are deleted.
        documents: by component.

    Returns:
        The names of components that were added, changed or deleted, sorted.

    Raises:
        OSError: the directory cannot be written. No file is left incomplete.
    """
    directory.mkdir(parents=True, exist_ok=True)
    before = _read_fingerprints(directory / DISCOVERY_FINGERPRINTS)
    vanished = [path for path in directory.glob("[!.]*.json") if path.stem not in documents]
    for path in vanished:
        record_component_state(path)
        path.unlink()
        record_component_state(path)
    changed = [path.stem for path in vanished]
    now: dict[str, str] = {}
    for name, document in documents.items():
        path, text = directory / f"{name}.json", _text(document)
        now[name] = hashlib.sha256(text.encode()).hexdigest()
        known = before.get(name) or _fingerprint(path)
        if path.exists():
            record_component_state(path)  # with a person's edits
        if not path.exists() or known != now[name]:
            write_atomically(path, text)
            record_component_state(path)
            changed.append(name)
    if now != before:
        write_atomically(directory / DISCOVERY_FINGERPRINTS, _text(now))
    return sorted(changed)


def _fingerprint(path: Path) -> str | None:
    """Fingerprint of a component file, for when the last discovery's is unknown."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _read_fingerprints(path: Path) -> dict[str, str]:
    """The fingerprints of the last discovery; empty when the file is missing or broken."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _text(document: Mapping[str, object]) -> str:
    """JSON with sorted keys, so that equal documents are equal text."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_components(folder: Path) -> dict[str, ComponentDocument]:
    """Returns the documents of the components by name, without files that are not JSON objects.

    A person may have edited a file, so a key may be missing or have another value.
    """
    documents: dict[str, ComponentDocument] = {}
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            content = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            continue
        documents[path.stem] = cast(ComponentDocument, content)
    return documents


def system_component_facts(components: Components) -> HostFacts:
    """Returns the facts in the system component; empty where it is missing."""
    return cast(HostFacts, components.get(SYSTEM, {}))
