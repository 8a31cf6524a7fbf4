"""Tables and maps of equal simulated hosts, of which some have faults."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import numpy as np

from chaosity.components import make_component_documents, write_changed_components
from chaosity.documents.machines import Fault, MachineDescription
from chaosity.report.page import ProblemAndSeverity, ReportSummary
from chaosity.report.problems import OK
from chaosity.store.measurements import Measurements, less_is_better
from machines import SimulatedHost
from table_rows import DAY, folder_of

# Standard deviation of equal servers in a pair of initiator and target.
BETWEEN_HOSTS = 0.007


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
        sick = cast(MachineDescription, {**healthy.machine, "faults": list(faults.get(number, ()))})
        own = replace(healthy, machine=sick) if number in faults else healthy
        table = own.table(seed, host=name)
        rows = table.rows
        places = rows.groupby(["category", "initiator", "target"], sort=False).ngroup()
        noise = np.random.default_rng(seed).normal(0.0, between, places.max() + 1)
        worse = rows["metric"].map(lambda metric: 1.0 if less_is_better(metric) else -1.0)
        tables[name] = table.with_columns(value=rows["value"] * np.exp(worse * noise[places]))
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
    for name, table in fleet_tables(healthy, hosts, faults).items():
        configuration = str(table.rows["configuration"].iloc[0])
        folder = folder_of(healthy.topology, table.rows, results / name / configuration)
        write_changed_components(folder / "components", documents)
        worst = (ProblemAndSeverity(OK, "No problems found."),)
        points = {"valid": len(healthy.points), "failed": 0, "missing": 0}
        summary = ReportSummary(name, configuration, f"measured {DAY}", worst, points, {})
        (folder / "summary.json").write_text(json.dumps(asdict(summary)))
        folders.append(folder)
    return folders
