"""Results of hosts by the names that transcripts use, and the changes that commands cannot make."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import shutil
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import yaml

from chaosity.records.record_files import save_record
from chaosity.store.tidy_table_parquet import read_parquet_table, write_parquet_table
from machines import SMALL_MACHINES, pretend_measured, simulated

MAP = ["memory_bandwidth", "latency_matrix", "storage_bandwidth"]
SWEEPS = ["latency_by_size", "loaded_latency"]
SLOW_PARTS = [
    {"fault": "slow_node", "node": 3, "remaining": 0.7},
    {"fault": "slow_drive", "drive": "drive-0000-22-00-0", "remaining": 0.5},
    {"fault": "slow_drive_path", "drive_node": 0, "to_package": 1, "remaining": 0.6},
]
SLOW_NODE_AND_PATH = [
    {"fault": "slow_node", "node": 1, "remaining": 0.7},
    {"fault": "slow_drive_path", "drive_node": 0, "to_package": 1, "remaining": 0.2},
]
WITH_PATHS = yaml.safe_load((SMALL_MACHINES / "fleet.yaml").read_text())
WITH_PATHS["drives"]["remote_package_bytes_per_second"] = 2.0e10
LOADS = [
    *("interference", "storage_buffers", "streaming_compute", "loaded_latency"),
    *("contended_paths", "latency_by_core_and_node"),
]
FEW_LEVELS = {
    "latency_by_size": {"bytes": 4, "pages": 1},
    "loaded_latency": {"kernel": 1, "share": 3},
    "modes_under_load": {"kernel": 1, "share": 6},
}
HOSTS = [f"host{number}" for number in range(1, 7)]
SICK_HOST = [{"fault": "slow_node", "host": "host3", "node": 1, "remaining": 0.85}]
SLOW_HOST = [{"fault": "slow_host", "host": "host3", "remaining": 0.9}]
PREPARED: dict[str, Callable[[], Path]] = {
    **{
        nps: partial(
            simulated,
            "epyc_7413",
            ["latency_matrix", "modes_under_load"],
            topology=f"epyc_7413_{nps}",
            replicates=2,
            levels=FEW_LEVELS,
        )
        for nps in ("nps1", "nps2")
    },
    "one_node": partial(simulated, "one_node", MAP),
    "two_packages": partial(simulated, "two_packages", MAP, SLOW_PARTS),
    "packages": partial(
        simulated, "two_packages", ["memory_bandwidth", "package_bandwidth"], replicates=2
    ),
    "slow_parts": partial(simulated, WITH_PATHS, MAP, SLOW_NODE_AND_PATH),
    "sweeps": partial(simulated, "one_node", SWEEPS, levels=FEW_LEVELS),
    "loads": partial(simulated, "two_packages", LOADS),
    "odd": partial(simulated, "odd", ["memory_bandwidth", "latency_matrix", "unlike_cores"]),
    "fleet": partial(simulated, "fleet", MAP, SICK_HOST, hosts=HOSTS, replicates=2),
    "latencies": partial(
        simulated, "fleet", ["latency_matrix"], SLOW_HOST, hosts=HOSTS, replicates=3
    ),
    "two_nodes": partial(simulated, "fleet", ["memory_bandwidth", "latency_matrix"]),
    "two_nodes_and_drives": partial(simulated, "fleet", MAP, replicates=5),
}
# Nights of the series that a transcript asks for; from this one on, node 1 is slower.
FIRST_NIGHT = date(2030, 1, 1)
NIGHTS, FIRST_SLOW_NIGHT = 60, 40


def copy_prepared(name: str, folder: Path) -> None:
    """Copy the prepared results of this name to ``results`` in a folder."""
    shutil.copytree(PREPARED[name](), folder / "results", dirs_exist_ok=True)


def fail(record: Sequence[str]) -> str:
    """Change a record into that of a load that failed."""
    [path] = map(Path, record)
    document = json.loads(path.read_text())
    document["verdict"] |= {"status": "failed", "reason": "the program was killed by SIGKILL"}
    path.unlink()
    save_record(document, path)
    return ""


def pretend_all_measured(folders: Sequence[str]) -> str:
    """Let the simulated records of folders pass for measured ones."""
    for folder in folders:
        pretend_measured(Path(folder))
    return ""


def inflict(arguments: Sequence[str]) -> str:
    """Give a simulated host one more fault: inflict FOLDER KEY=VALUE..."""
    folder, *pairs = arguments
    fault = {key: yaml.safe_load(value) for key, value in (pair.split("=") for pair in pairs)}
    path = Path(folder) / "machine.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"faults": [*document.get("faults", []), fault]}))
    return ""


def leave_out_sets(folders: Sequence[str]) -> str:
    """Let half of the sets of drives of several nodes be those that a budget left out."""
    for folder in map(Path, folders):
        table = read_parquet_table(folder / "measurements.parquet")
        points = sorted(set(table.loc[table["target_kind"] == "all_of_nodes", "point"]))
        is_out = table["point"].isin(random.Random(1).sample(points, len(points) // 2))
        rows = table[is_out].drop_duplicates(["point", "metric"])
        write_parquet_table(table[~is_out], folder / "measurements.parquet")
        unmeasured = rows.assign(status="missing", value=None, measured_at=None, order=None)
        write_parquet_table(unmeasured, folder / "unmeasured.parquet")
    return ""


def pretend_nights(arguments: Sequence[str]) -> str:
    """Write nights from the one check of a folder: noise of 1 %, and at last a slower node 1."""
    [path] = (Path(folder) / "checks.csv" for folder in arguments)
    once = list(csv.DictReader(path.open()))
    chance = random.Random(1)
    text = io.StringIO()
    table = csv.DictWriter(text, list(once[0]), lineterminator="\n")
    table.writeheader()
    for night in range(NIGHTS):
        for row in once:
            value = float(row["value"]) * math.exp(chance.gauss(0.0, 0.01))
            if night >= FIRST_SLOW_NIGHT and "node1" in row["point"]:
                value *= 1 / 0.94 if row["metric"] == "latency_ns" else 0.94
            time = f"{FIRST_NIGHT + timedelta(days=night)}T02:00:00.000Z"
            table.writerow({**row, "time": time, "value": repr(value), "loss": "0", "clear": "no"})
    path.write_text(text.getvalue())
    return ""
