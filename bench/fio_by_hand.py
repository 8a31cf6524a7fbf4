"""Values of fio by hand against those of the same points through the pipeline.

By hand: the command and the job file of a point, started directly, and the numbers that fio prints.
Through the pipeline: the command that the workflow starts for this point, and the values in the
tidy table. Both run in turn, and the order changes from pair to pair.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bare_tools import read_point, run_bare, run_workflow
from chaosity.store.tidy_table_from_records import build_tidy_table

SECONDS = 5
FILE_BYTES = 256 * 2**20
SAME_TIME = {"relative_precision": None, "min_seconds": SECONDS, "max_seconds": SECONDS}
CONFIG = {
    "experiments": ["storage_latency", "storage_bandwidth"],
    # Reads of 4 KiB by one job, at the smallest, the middle and the largest queue depth.
    "levels": {"storage_latency": {"queue_depth": 2, "block_bytes": 1, "jobs": 1}},
    "stopping": {"storage_latency": SAME_TIME, "storage_bandwidth": SAME_TIME},
}
GOAL = "goal: 0.98 to 1.02"
# Metric -> the number in fio's JSON, by its list of jobs.
BY_HAND: dict[str, Callable[[list[dict[str, Any]]], float]] = {
    "bandwidth_bytes_per_second": lambda jobs: sum(job["read"]["bw_bytes"] for job in jobs),
    "read_rate_reads_per_second": lambda jobs: jobs[0]["read"]["iops"],
    "completion_latency_ns": lambda jobs: jobs[0]["read"]["clat_ns"]["percentile"]["50.000000"],
    "completion_latency_p99_ns": lambda jobs: jobs[0]["read"]["clat_ns"]["percentile"]["99.000000"],
}


def measure_by_hand(point: dict, folder: Path) -> dict[str, float]:
    """Return the value of each metric of a point, as fio prints it."""
    run_bare(point, folder)
    jobs = json.loads((folder / "result.json").read_text())["jobs"]
    return {metric: BY_HAND[metric](jobs) for metric in point["loads"][0]["metrics"]}


def measure_by_pipeline(path: Path, replicate: int) -> None:
    """Measure the point in this file with the command of the workflow's rule."""
    results = path.parents[2]
    record = results / path.parent.name / path.stem / f"rep{replicate}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    command = ["chaosity-measure", results.parent / "host.json", path]
    options = ["--replicate", str(replicate), "--record", record]
    subprocess.run([*command, *options], check=True, capture_output=True)


def measure_pair(path: Path, point: dict, folder: Path, replicate: int) -> dict[str, float]:
    """Measure a point in both ways; return the values by hand."""
    if replicate % 2:
        measure_by_pipeline(path, replicate)
        return measure_by_hand(point, folder)
    values = measure_by_hand(point, folder)
    measure_by_pipeline(path, replicate)
    return values


def compare(pairs: int) -> Iterator[tuple[str, list[float], str, str] | str]:
    """Yield each point's command, and for each metric both medians and the ratio of the pairs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {**CONFIG, "replicates": pairs}
        # This writes the plan and measures nothing.
        run_workflow(folder, "--until", "draw_topology", file_bytes=FILE_BYTES, **config)
        [points] = folder.glob("results/*/*/points")
        paths = sorted(points.glob("*/*.json"))
        by_hand = {path.stem: folder / f"by_hand{number}" for number, path in enumerate(paths)}
        prepared = [read_point(path, by_hand[path.stem]) for path in paths]
        pair_values: dict[str, list[dict[str, float]]] = {path.stem: [] for path in paths}
        for replicate in range(1, pairs + 1):
            for path, point in zip(paths, prepared, strict=True):
                values = measure_pair(path, point, by_hand[path.stem], replicate)
                pair_values[path.stem].append(values)
        table = build_tidy_table(points, points.parent).sort_values("replicate")
    for row in table[table["status"] != "valid"].to_dict("records"):
        raise RuntimeError(f"replicate {row['replicate']} of {row['point']}: {row['reason']}")
    for path, point in zip(paths, prepared, strict=True):
        yield f"{path.stem}: {shlex.join(point['loads'][0]['command'])}"
        for metric in point["loads"][0]["metrics"]:
            rows = table[(table["point"] == path.stem) & (table["metric"] == metric)]
            pipeline = rows["value"].tolist()
            hand = [values[metric] for values in pair_values[path.stem]]
            medians = f"{median(hand):.5g} by hand, {median(pipeline):.5g} through the pipeline"
            yield f"{metric}: {medians}"
            ratios = [ours / theirs for ours, theirs in zip(pipeline, hand, strict=True)]
            yield "  pipeline : by hand, of the same pair", ratios, ".3f", GOAL


PARTS = {"fio": compare}
