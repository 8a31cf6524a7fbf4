"""Component files on disk, whose time stamps tell Snakemake what to measure again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaosity.records import write_atomically


def write_components(directory: Path, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Makes a directory hold exactly these components, touching only files whose content changed.

    Args:
        directory: is created when missing.
        documents: components by name; a file is `<name>.json`.

    Returns:
        The names of components that were added, changed or deleted, sorted.

    Raises:
        OSError: the directory cannot be written; no file is left half-written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    vanished = [path for path in directory.glob("*.json") if path.stem not in documents]
    for path in vanished:
        path.unlink()
    changed = [path.stem for path in vanished]
    for name, document in documents.items():
        path, text = directory / f"{name}.json", _text(document)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text)
            changed.append(name)
    return sorted(changed)


def _text(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys, so that equal content is equal text."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
