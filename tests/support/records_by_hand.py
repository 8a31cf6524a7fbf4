"""Loads, points and records by hand, and the files in which the store finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RATE = "bandwidth_bytes_per_second"


def load(name: str = "memory", amount: float = 1000.0, **changed: Any) -> dict[str, Any]:
    """A load that moved so many bytes in two seconds."""
    line = {"event": "sample", "begin": 0, "end": 2, "amount": amount}
    target = {"name": "node1", "kind": "node", "nodes": [1], "drives": []}
    return {
        "name": name,
        "benchmark": "b",
        "category": "c",
        "kernel": "triad",
        "label": "variant of STREAM",
        "initiator": {"name": "node0", "kind": "node", "nodes": [0], "cpus": "0-1", "threads": 2},
        "target": {**target, "relation": "same_package"},
        "metrics": {RATE: {"progress": True, "at_most": None}},
        "progress": {"event": "sample", "begin": "begin", "end": "end", "amount": "amount"},
        "outputs": {"stdout": json.dumps(line), "stderr": ""},
        "command": ["x"],
        "environment": {},
        "files": {},
        "program": {},
        "exit_status": 0,
        "signalled": None,
        "placement_seen": None,
        **changed,
    }


def point(name: str = "p", replicates: int = 3, **changed: Any) -> dict[str, Any]:
    """A planned point with one load."""
    return {
        "host": "h",
        "configuration": "nps1",
        "experiment": "e",
        "point": name,
        "definition": "d1",
        "orders": list(range(replicates)),
        "factors": {"a": 1},
        "loads": [load()],
        **changed,
    }


def record(planned: dict[str, Any], replicate: int = 1, **changed: Any) -> dict[str, Any]:
    """A valid record of a point."""
    return {
        "schema_version": 1,
        "point": planned,
        "replicate": replicate,
        "order": replicate - 1,
        "stopping": {},
        "measured_on": "h",
        "began_at": "2026-01-01T00:00:00.000Z",
        "finished_at": "2026-01-01T00:00:02.000Z",
        "environment_before": {"realtime_minus_monotonic_seconds": 0.0},
        "loads": planned["loads"],
        "verdict": {"status": "valid", "reason": None, "checks": []},
        **changed,
    }


def write_point(folder: Path, planned: dict[str, Any]) -> None:
    """Write the file of a planned point."""
    _write(folder / "points/e" / f"{planned['point']}.json", json.dumps(planned))


def write_record(folder: Path, found: dict[str, Any] | str, name: str = "p", run: int = 1) -> None:
    """Write a record, or a text in its place."""
    text = found if isinstance(found, str) else json.dumps(found)
    _write(folder / "e" / name / f"rep{run}.json", text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
