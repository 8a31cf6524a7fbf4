"""Component files on disk, whose content tells Snakemake what to measure again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaosity.components.component_history import remember
from chaosity.records import write_atomically

# Fingerprints of what discovery found last, beside the component files.
DISCOVERED = ".discovered.json"


def write_components(directory: Path, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Makes a directory hold these components, touching only files whose component changed.

    A component counts as changed when *discovery* finds something else than last time. So a person
    may add to a file what discovery cannot see ("DIMM A1 reseated"): the edit stays, and the points
    that touch the component are measured again, once. What a component was before is kept, see
    `components.component_history`.

    Args:
        directory: is created when missing.
        documents: components by name; a file is `<name>.json`.

    Returns:
        The names of components that were added, changed or deleted, sorted.

    Raises:
        OSError: the directory cannot be written; no file is left half-written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    before = _read(directory / DISCOVERED)
    vanished = [path for path in directory.glob("[!.]*.json") if path.stem not in documents]
    for path in vanished:
        remember(path)
        path.unlink()
        remember(path)
    changed = [path.stem for path in vanished]
    now = {}
    for name, document in documents.items():
        path, text = directory / f"{name}.json", _text(document)
        now[name] = hashlib.sha256(text.encode()).hexdigest()
        known = before.get(name) or _fingerprint(path)
        if path.exists():
            remember(path)  # with what a person has written into it
        if not path.exists() or known != now[name]:
            write_atomically(path, text)
            remember(path)
            changed.append(name)
    if now != before:
        write_atomically(directory / DISCOVERED, _text(now))
    return sorted(changed)


def _fingerprint(path: Path) -> str | None:
    """That of a component file itself, for when what discovery found last is not known."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _read(path: Path) -> dict[str, str]:
    """The fingerprints of the last discovery; none when there was none or the file is broken."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _text(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys, so that equal content is equal text."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_components(folder: Path) -> dict[str, dict[str, Any]]:
    """Documents of the components by name; a file that a person broke is left out."""
    found = {}
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            found[path.stem] = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            continue
    return found
