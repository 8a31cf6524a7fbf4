"""Results of simulated hosts with a map, which a check can measure again, and their faults."""

from __future__ import annotations

import json
from pathlib import Path

from broken_runs import SIMULATED_HOST, chaosity, simulate_records
from workflow_folder import Workflow


def simulate_maps(root: Path, folder: Path, *hosts: str) -> list[Path]:
    """Simulate hosts and return ``results/HOST/CONFIGURATION`` of each, with its map."""
    workflow = Workflow(root, folder)
    workflow.hosts({name: {"ansible_connection": "local", **SIMULATED_HOST} for name in hosts})
    workflow.config |= {"experiments": ["memory_bandwidth", "latency_matrix"], "replicates": 3}
    del workflow.config["working_set"]  # a small one would be in caches, where no node is slow
    simulate_records(workflow)
    found = []
    for name in hosts:
        [plan] = folder.glob(f"results/{name}/*/plan.json")
        done = chaosity("tidy", plan, "--output", plan.with_name("measurements.parquet"))
        assert done.returncode == 0, done.stdout
        found.append(plan.parent)
    return found


def set_faults(folder: Path, *faults: dict[str, object]) -> None:
    """Give a simulated host these faults from now on, and no others."""
    path = folder / "machine.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"faults": list(faults)}))


def slow_node(node: int, remaining: float) -> dict[str, object]:
    """Return the fault of a node whose memory has only a share of its bandwidth."""
    return {"fault": "slow_node", "node": node, "remaining": remaining}
