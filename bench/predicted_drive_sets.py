"""Errors of predicted drive sets of simulated machines, and how often intervals hold the truth.

Only some drive sets are measured, three times each. There are three selections: all pairs of nodes,
pairs from one initiator of each package, or the first round of a run with a budget. Each selection
also has 58 random other sets. All other sets are predicted and compared with the truth without
noise. With four times the bandwidth of the memory controllers, paths limit the drives, and the
initiator's memory does not. Quantiles are over all sets and seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from chaosity.drive_set_predictions import (
    audit_predictions,
    drive_set_models,
    predict_drive_sets,
)
from chaosity.records.record_format import Point
from chaosity.rounds.budget import Priority, point_priority
from chaosity.topology.topology_model import Topology
from machines import is_small_drive_set, leave_out, planned

# Topology and description of the machines on which a sparse design leaves out drive sets. The
# others that ship have too few nodes with drives.
MACHINES = (
    ("epyc_7413_nps4", "epyc_7413_nps4"),
    ("epyc_7413_nps4", "epyc_7413"),
    ("epyc_7413_nps2", "epyc_7413"),
    ("sixteen_nodes", "sixteen_nodes"),
)
MEMORY = (1.0, 4.0)


def is_of_first_round(point: Point, topology: Topology) -> bool:
    """Return whether a run with a budget measures a point before sets of other initiators."""
    return point_priority(point, topology) <= Priority.ALONE


DESIGNS = {
    "all pairs": is_small_drive_set,
    "few pairs": partial(is_small_drive_set, few=True),
    "first round": is_of_first_round,
}
Case = tuple[str, str, float, str]


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    columns = ["machine", "memory", "design", "measured", "predicted", "median error"]
    columns += ["95 %", "worst", "half width", "hold the truth", "audit"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    cases = [
        (*names, memory, design) for names in MACHINES for memory in MEMORY for design in DESIGNS
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from filter(None, pool.map(errors_line, cases, [seeds] * len(cases)))


def errors_line(case: Case, seeds: int) -> str | None:
    """Return the errors of a machine as a line; None if the design leaves out nothing."""
    topology_name, name, memory, design = case
    config = {"experiments": ["storage_bandwidth"], "replicates": 3}
    host = planned(name, topology_name, None, **config).with_memory(memory)
    truth = host.true_table.rows.drop_duplicates("point").set_index("point")["value"]
    errors, halves, within, audited, passed = [], [], [], 0, 0
    for seed in range(1, seeds + 1):
        tables = leave_out(host, seed, DESIGNS[design])
        models = drive_set_models(*tables)
        found = predict_drive_sets(models)
        if found.empty:
            return None
        true = found["point"].map(truth).astype(float)
        errors.append((found["value"].astype(float) / true - 1.0).abs().to_numpy())
        halves.append(((found["high"] - found["low"]) / found["value"] / 2).to_numpy(float))
        within.append(float(true.between(found["low"], found["high"]).mean()))
        audit = audit_predictions(models)
        audited, passed = audited + audit.sets, passed + audit.within
    all_errors = 100 * np.concatenate(errors)
    cells = [
        f"`{topology_name}`" + (", faults" if host.machine["faults"] else ""),
        f"x {memory:g}",
        design,
    ]
    cells += [f"{tables[0].rows['point'].nunique()} of {len(host.points)}", f"{len(found)}"]
    cells += [f"{np.quantile(all_errors, part):.1f} %" for part in (0.5, 0.95, 1.0)]
    cells.append(f"{100 * np.median(np.concatenate(halves)):.1f} %")
    cells.append(f"{100 * np.mean(within):.1f} % (at least {100 * min(within):.1f})")
    cells.append(f"{passed} of {audited}")
    return f"| {' | '.join(cells)} |"


PARTS = {"predicted_drive_sets": compare}
