"""Results of a fleet of equal simulated hosts: maps as the workflow writes them, in seconds.

Hosts differ by a share of their own in each pair of initiator and target, as equal servers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from chaosity.components.component_files import write_changed_components
from chaosity.components.make_component_documents import make_component_documents
from chaosity.records.atomic_writes_and_record_files import write_atomically
from chaosity.report.findings_and_checks import OK
from chaosity.report.report_summary import ProblemAndSeverity, ReportSummary
from chaosity.simulation.machine_description import Fault, MachineDescription
from chaosity.store.measurements import Measurements, less_is_better
from chaosity.store.tidy_table_parquet import COLUMNS, write_parquet_table
from chaosity.topology.topology_json import topology_to_json
from simulated_tables import SimulatedHost

# Standard deviation of equal servers in a pair of initiator and target.
BETWEEN_HOSTS = 0.007
DAY = "2026-11-20"


def fleet_tables(
    healthy: SimulatedHost,
    hosts: int,
    faults: Mapping[int, Iterable[Fault]],
    between: float = BETWEEN_HOSTS,
    fleet: int = 0,
) -> dict[str, Measurements]:
    """Return the tidy tables of equal hosts; `faults` has those of the sick hosts, by number.

    Each number of a `fleet` gives other noise.
    """
    tables = {}
    for number in range(hosts):
        name, seed = f"server{number:03}", 1000 * fleet + number
        own = healthy
        if number in faults:
            machine: MachineDescription = {**healthy.machine, "faults": list(faults[number])}
            own = SimulatedHost(machine, healthy.topology, healthy.points, healthy.name)
        table = own.table(seed)
        rows = table.rows
        places = rows.groupby(["category", "initiator", "target"], sort=False).ngroup()
        noise = np.random.default_rng(seed).normal(0.0, between, places.max() + 1)
        worse = rows["metric"].map(lambda metric: 1.0 if less_is_better(metric) else -1.0)
        values = rows["value"] * np.exp(worse * noise[places])
        stamps = DAY + "T1" + rows["replicate"].astype(str) + ":00:00.000Z"
        tables[name] = table.with_columns(host=name, value=values, measured_at=stamps)
    return tables


def write_fleet(
    results: Path,
    healthy: SimulatedHost,
    hosts: int,
    faults: Mapping[int, Iterable[Fault]],
    cpu_model: str = "AMD EPYC 7413 24-Core Processor",
) -> list[Path]:
    """Write the maps of a fleet below `results`; return ``results/<host>/<configuration>``."""
    folders = []
    documents = make_component_documents(healthy.topology)
    documents["system"] = {**documents["system"], "cpu_model": cpu_model}
    topology = json.dumps(topology_to_json(healthy.topology))
    for name, table in fleet_tables(healthy, hosts, faults).items():
        configuration = str(table.rows["configuration"].iloc[0])
        folder = results / name / configuration
        write_changed_components(folder / "components", documents)
        write_atomically(folder / "topology.json", topology)
        rows = table.rows[[column for column in COLUMNS if column in table.rows]]
        # In numpy types a missing value is False.
        rows = rows.assign(reference=rows["reference"].astype(object).where(rows["reference"]))
        write_parquet_table(pd.DataFrame(rows), folder / "measurements.parquet", COLUMNS)
        worst = (ProblemAndSeverity(OK, "No problems found."),)
        points = {"valid": len(healthy.points), "failed": 0, "missing": 0}
        summary = ReportSummary(name, configuration, f"measured {DAY}", worst, points, {})
        write_atomically(folder / "summary.json", json.dumps(asdict(summary)))
        folders.append(folder)
    return folders
