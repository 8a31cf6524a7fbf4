"""How much longer a point takes than the bare tool, from records of a real run of the workflow."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from bare_tools import read_point, run_bare, run_workflow

# All points run the same short load.
CONFIG = {
    "experiments": ["storage_bandwidth"],
    "stopping": {
        "memory_bandwidth": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
        "storage_bandwidth": {"relative_precision": None, "min_seconds": 1, "max_seconds": 1},
    },
}


def compare(pairs: int) -> list[tuple[str, list[float], str, str]]:
    """Return the milliseconds that runner and whole workflow take more than the bare tool."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_workflow(folder, file_bytes=64 * 2**20, replicates=pairs + 1, **CONFIG)
        [path] = folder.glob("results/*/*/points/*/*.json")
        records = [json.loads(one.read_text()) for one in folder.glob("results/*/*/*/*/rep*.json")]
        records.sort(key=lambda one: one["began_at"])
        workflow = [
            1000 * (gap(first, second) - tool_seconds(first)) for first, second in pairwise(records)
        ]
        runner = [1000 * extra_seconds_of_runner(path, folder) for _ in range(pairs)]
    goal = "goal: at most 100 ms"
    return [
        ("runner over the bare tool, ms", runner, ".0f", goal),
        ("runner and workflow over the bare tool, ms", workflow, ".0f", goal),
    ]


def extra_seconds_of_runner(path: Path, folder: Path) -> float:
    """Return the seconds that the runner takes more than the bare command that runs after it."""
    with tempfile.TemporaryDirectory(
        dir=folder
    ) as name:  # the links to the drives are new each time
        alone = run_bare(read_point(path, Path(name)), Path(name))
    began = time.monotonic()
    command = ["chaosity-run", str(path), "--record", str(folder / "rep1.json")]
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began - alone


def gap(first: dict, second: dict) -> float:
    """Return the seconds from the begin of one measurement to the begin of the next."""
    begins = (datetime.fromisoformat(one["began_at"]) for one in (second, first))
    later, earlier = begins
    return (later - earlier).total_seconds()


def tool_seconds(record: dict) -> float:
    """Return how many seconds the tool itself ran."""
    [load] = record["loads"]
    return load["ended_monotonic_seconds"] - load["began_monotonic_seconds"]


PARTS = {"points": compare}
