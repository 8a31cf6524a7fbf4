"""Errors, faults found and false alarms of runs with a budget, on simulated machines.

Each run is compared with the true values, which have no noise. Compared is every cell of the node
matrices, drive sets and interference that the default config plans (figures 4 to 7 of document
000). A cell that was not measured counts with its prediction, or as "without a value". Time is the
planned time of the measurements. The table also has the default run (every combination three
times) and the fixed protocol of the paper (`profiles/paper`), whose time is only computed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from chaosity.anomalies.anomaly_results import Findings
from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.documents.config import read_config
from chaosity.documents.machines import Fault
from chaosity.documents.shipped_documents import ROOT
from chaosity.place_names import node_name
from chaosity.rounds.budget import OVERHEAD_SECONDS_OF_MEASUREMENT, Budget, least_budget_seconds
from chaosity.store.measurements import CELL_COLUMNS, Measurements, is_percentile
from chaosity.topology.topology_model import Topology
from chaosity.units import format_duration
from machines import SimulatedHost, shipped_machine, shipped_topology
from simulated_rounds import simulate_rounds

MINUTES = (10, 20, 30, 60, 120)
# Experiments of figures 4 to 7 of document 000.
FIGURES = ("memory_bandwidth", "latency_matrix", "storage_bandwidth", "interference")


@dataclass(frozen=True)
class Machine:
    """A simulated machine: topology, description, own faults, and components that are at fault."""

    topology: str
    name: str
    faults: Sequence[Fault] | None = None  # None: the faults of the description
    at_fault: tuple[frozenset[str], ...] = ()  # each fault: components that a finding must name
    involved: frozenset[str] = frozenset()  # components that a fault slows down without being named
    drives_for_each: int = 1  # drives of the same node and model for each drive of the topology


def node_names(*numbers: int) -> frozenset[str]:
    """Return the names of nodes."""
    return frozenset(map(node_name, numbers))


MACHINES = {
    "paper's server": Machine(
        *("epyc_7413_nps4", "epyc_7413_nps4"),
        at_fault=(frozenset({"package0->package1"}), node_names(0, 3), node_names(4, 7)),
        involved=node_names(4, 5, 6, 7),
    ),
    "healthy": Machine("epyc_7413_nps4", "epyc_7413", ()),
    "odd faults": Machine(
        *("epyc_7413_nps4", "epyc_7413"),
        (
            Fault(fault="slow_node", node=5, remaining=0.85),
            Fault(fault="slow_drive", drive="drive-0000-33-00-0", remaining=0.6),
        ),
        (node_names(5), frozenset({"drive-0000-33-00-0"})),
    ),
    "16 nodes, 32 drives": Machine("sixteen_nodes", "sixteen_nodes", (), drives_for_each=2),
    "16 nodes, odd faults": Machine(
        *("sixteen_nodes", "sixteen_nodes"),
        (
            Fault(fault="slow_node", node=11, remaining=0.85),
            Fault(fault="slow_drive", drive="drive-0000-31-00-0", remaining=0.6),
        ),
        (node_names(11), frozenset({"drive-0000-31-00-0"})),
        drives_for_each=2,
    ),
    "Turin, NPS4": Machine("epyc_9575f_nps4", "epyc_9575f", ()),
}


@dataclass
class Runs:
    """The results of the runs with one budget.

    Attributes:
        seconds: planned time of each run.
        errors: error of each cell with a value, as a share, of all runs.
        within: whether the truth is within the prediction interval, for each predicted cell.
        without: share of the cells without a value.
        found: number of faults that were found, and number of faults that were planted.
        false: runs with a finding that no fault explains.
    """

    seconds: list[float] = field(default_factory=list)
    errors: list[np.ndarray] = field(default_factory=list)
    within: list[np.ndarray] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    found: int = 0
    planted: int = 0
    false: int = 0

    def add(
        self,
        seconds: float,
        truth: pd.Series,
        measured: Measurements,
        predicted: pd.DataFrame | None,
    ) -> None:
        """Add a run: its time, and its values beside the truth by cell."""
        rows = measured.valid_rows().rows
        medians = rows.groupby(list(CELL_COLUMNS))["value"].median()
        errors = [(medians / truth.reindex(medians.index) - 1.0).dropna().to_numpy(float)]
        if predicted is not None and len(predicted):
            cells = predicted.set_index(list(CELL_COLUMNS))
            cells = cells[cells.index.isin(truth.index) & ~cells.index.isin(medians.index)]
            true = truth.reindex(cells.index)
            errors.append((cells["value"].astype(float) / true - 1.0).to_numpy(float))
            low, high = (cells[end].astype(float) for end in ("low", "high"))
            self.within.append(true.between(low, high).to_numpy(bool))
        known = np.abs(np.concatenate(errors))
        self.seconds.append(seconds)
        self.errors.append(known)
        self.without.append(1.0 - len(known) / len(truth))

    def count_found_faults(self, findings: Findings, machine: Machine) -> None:
        """Count found faults, and runs with a finding that names no part that a fault slows."""
        at_fault = machine.at_fault
        named = [frozenset(anomaly.components) for anomaly in findings.anomalies]
        self.planted += len(at_fault)
        self.found += sum(any(fault <= each for each in named) for fault in at_fault)
        parts = machine.involved.union(*at_fault)
        # A fault at one end of a path explains a finding on this path.
        ends = (
            frozenset(end for name in each for end in (name, *name.split("->"))) for each in named
        )
        self.false += any(not each & parts for each in ends)

    def table_line(self, machine: str, run: str) -> str:
        """Return the line of the table for these runs."""
        errors = np.concatenate(self.errors)
        median, most = np.quantile(errors, [0.5, 0.95])
        within = np.concatenate([*self.within, np.empty(0, bool)])
        cells = [
            *(machine, run, format_duration(float(np.median(self.seconds)))),
            *(f"{100 * value:.1f} %" for value in (median, most, errors.max())),
            f"{100 * float(np.mean(self.without)):.0f} %",
            f"{100 * within.mean():.1f} %" if within.size else "",
            f"{self.found} of {self.planted}" if self.planted else "",
            f"{self.false} of {len(self.seconds)}",
        ]
        return f"| {' | '.join(cells)} |"


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    columns = ["machine", "run", "time", "median error", "95 %", "worst", "without a value"]
    columns += ["predictions hold the truth", "faults found", "false alarms"]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for lines in pool.map(lines_of_machine, MACHINES, [seeds] * len(MACHINES)):
            yield from lines


def with_more_drives(topology: Topology, drives_for_each: int) -> Topology:
    """Return a topology with several drives for each drive: functions of the same PCI device."""
    drives = [
        replace(
            drive,
            name=f"nvme{drives_for_each * number + copy}n1",
            pci=f"{drive.pci[:-1]}{copy}",
            serial=f"{drive.serial}-{copy}",
        )
        for number, drive in enumerate(topology.drives)
        for copy in range(drives_for_each)
    ]
    return replace(topology, drives=tuple(drives)) if drives_for_each > 1 else topology


def machine_with_plan(machine: Machine, config_file: Path | None = None) -> SimulatedHost:
    """Return a machine with the plan of a config; None is the default config."""
    topology = with_more_drives(shipped_topology(machine.topology), machine.drives_for_each)
    description = shipped_machine(machine.name, topology)
    faults = description.get("faults", []) if machine.faults is None else list(machine.faults)
    config = read_config(config_file) if config_file else read_config()
    return SimulatedHost.planned(description, topology, faults, config, all_points=True)


def planned_seconds(host: SimulatedHost) -> float:
    """Return the planned time of a complete plan in seconds."""
    return sum(
        len(point["orders"]) * (point["estimated_seconds"] + OVERHEAD_SECONDS_OF_MEASUREMENT)
        for point in host.points
    )


def lines_of_machine(name: str, seeds: int) -> list[str]:
    """Return the lines of a machine."""
    machine = MACHINES[name]
    host = machine_with_plan(machine)
    true = host.true_table.performance_rows().rows
    wanted = true["experiment"].isin(FIGURES)
    wanted &= ~true["metric"].map(is_percentile).astype(bool)
    truth = true[wanted].drop_duplicates(list(CELL_COLUMNS)).set_index(list(CELL_COLUMNS))["value"]
    least = least_budget_seconds(host.points, host.topology)
    default, budgets = Runs(), {minutes: Runs() for minutes in MINUTES if 60 * minutes >= least}
    for seed in range(1, seeds + 1):
        measured = host.table_of_records(seed)
        default.add(planned_seconds(host), truth, measured, None)
        default.count_found_faults(analyse_host(measured, host.component_facts), machine)
        for minutes, runs in budgets.items():
            [*_, last] = simulate_rounds(host, Budget(60.0 * minutes), seed)
            if last.measured is not None and last.findings is not None:
                runs.add(last.spent_seconds, truth, last.measured, last.predicted)
                runs.count_found_faults(last.findings, machine)
    paper = planned_seconds(machine_with_plan(machine, ROOT / "config/paper.yaml"))
    lines = [f"| {name} | paper's protocol | {format_duration(paper)} |" + " |" * 7]
    lines.append(default.table_line(name, "default"))
    lines += [runs.table_line(name, f"{minutes} min") for minutes, runs in budgets.items()]
    if short := [minutes for minutes in MINUTES if minutes not in budgets]:
        what = f"at least {format_duration(least)}"
        lines.append(f"| {name} | {', '.join(map(str, short))} min | {what} |" + " |" * 7)
    return lines


PARTS = {"budgets": compare}
