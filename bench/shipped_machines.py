"""How often the faults of shipped machines are found, and how often a finding is no fault.

Each machine is simulated healthy and with each fault, over many seeds. The values take the same
steps as in a report: plan, values of records, tidy table, findings. Most points of a large server
read drives of several nodes at the same time. Healthy machines and machines with all shipped faults
are simulated with these points, machines with a single fault without these points.

A fault is *found* if there is a finding on a value that the fault changes. It is *named* if the
finding names the faulty part. A finding on values that equal those of the healthy machine is a
false alarm. Intervals are Clopper-Pearson intervals.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from chaosity.anomalies.anomaly_results import Anomaly, AnomalyKind
from chaosity.compare.outlier_hosts import find_outlier_hosts
from chaosity.components import drive_component_name
from chaosity.cpusets import parse_cpu_list
from chaosity.documents.config import read_config
from chaosity.documents.machines import Fault, MachineDescription
from chaosity.documents.shipped_documents import DEFAULT_CONFIG_FILE
from chaosity.place_names import packages_of_link
from chaosity.store.measurements import SLICE_COLUMNS, less_is_better
from chaosity.topology.topology_model import Topology
from machines import SimulatedHost, shipped_machine, shipped_topology

# What a planted fault leaves of its part: half, such as half of a link's width, or nine tenths.
REMAINING = (0.5, 0.9)
# A value that changes by less than this, in per cent, counts as unchanged.
CHANGED = 2.5
# Topology -> description of the machine without faults, the smallest first.
MACHINES = {
    "xeon_8358": "xeon_8358",
    "xeon_e5_4620": "xeon_e5_4620",
    "xeon_e5_2660_v4": "xeon_e5_2660_v4",
    "epyc_9554_cxl": "epyc_9554_cxl",
    "epyc_7413_nps1": "epyc_7413",
    "epyc_7413_nps2": "epyc_7413",
    "epyc_7413_nps4": "epyc_7413",
    "epyc_7a53": "epyc_7a53",
    "desktop": "desktop",
    "apple_m1_pro": "apple_m1_pro",
    "opteron_6272": "opteron_6272",
    **{f"epyc_9575f_nps{number}": "epyc_9575f" for number in (0, 1, 2, 4)},
    "xeon_max_9480_snc4": "xeon_max_9480_snc4",
    "sixteen_nodes": "sixteen_nodes",
}
# Of each machine, the configuration with most nodes gets the planted faults.
WITH_FAULTS = {machine: name for name, machine in MACHINES.items()}.values()
# Experiments that show a fault of each kind. Healthy machines run all default experiments.
MEMORY = ("memory_bandwidth", "package_bandwidth", "latency_matrix")
STORAGE = ("storage_bandwidth",)
SERVER_WITH_FAULTS = "epyc_7413_nps4"
# The other machine that ships with a fault. Only sizes up to 16 GiB, as in its profile, show it.
NODE_WITH_FAULT, LARGE_SIZES = "epyc_7a53", "latency_sizes.yaml"
FLEET, HOSTS = "fleet_with_a_slow_host", [f"fleet{number:02}" for number in range(1, 17)]


@dataclass(frozen=True)
class Scenario:
    """A machine with faults that it has at the same time.

    Attributes:
        topology, machine: names of files.
        faults: none for a healthy machine.
        kind: the kind of fault that is looked for.
        experiments: experiments of the plan.
        seeds: number of seeds.
        config: name of the config's file.
    """

    topology: str
    machine: str
    faults: tuple[Fault, ...]
    kind: str
    experiments: tuple[str, ...]
    seeds: int
    config: str = "config.yaml"

    def host(self, faults: Sequence[Fault]) -> SimulatedHost:
        """Return the machine with these faults."""
        topology = shipped_topology(self.topology)
        config = {
            **read_config(DEFAULT_CONFIG_FILE.with_name(self.config)),
            "experiments": list(self.experiments),
        }
        machine = shipped_machine(self.machine, topology)
        host = SimulatedHost.planned(machine, topology, list(faults), config)
        return host.without_drives_of_several_nodes() if len(self.faults) == 1 else host

    @property
    def looked_for(self) -> list[Fault]:
        """Return the faults of the kind."""
        return [fault for fault in self.faults if fault["fault"] == self.kind]


@dataclass(frozen=True)
class Seen:
    """What was found on a machine with one seed.

    Attributes:
        found, named, false: numbers of findings on the fault, findings that name its part, and
            other findings.
        loss, confidence: loss in per cent and confidence of the worst finding on the fault.
        true_loss: median loss of the values of this finding, without noise, in per cent.
    """

    found: int
    named: int
    false: int
    loss: float = np.nan
    true_loss: float = np.nan
    confidence: float = np.nan


def compare_faults(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown, with a row for each fault of each machine."""
    server = shipped_topology(SERVER_WITH_FAULTS)
    own = shipped_machine(SERVER_WITH_FAULTS, server)["faults"]
    scenarios = [
        Scenario(SERVER_WITH_FAULTS, SERVER_WITH_FAULTS, tuple(own), kind, STORAGE, seeds)
        for kind in dict.fromkeys(fault["fault"] for fault in own)
    ]
    node = shipped_topology(NODE_WITH_FAULT)
    waiting = tuple(shipped_machine(NODE_WITH_FAULT, node)["faults"])
    sizes = ("latency_by_size",)
    names = NODE_WITH_FAULT, NODE_WITH_FAULT
    scenarios.append(Scenario(*names, waiting, waiting[0]["fault"], sizes, seeds, LARGE_SIZES))
    for name in WITH_FAULTS:
        topology = shipped_topology(name)
        machine = shipped_machine(MACHINES[name], topology)
        scenarios += [
            Scenario(name, MACHINES[name], (fault,), fault["fault"], _experiments(fault), seeds)
            for remaining in REMAINING
            for fault in planted(topology, machine, remaining)
        ]
        scenarios += [
            Scenario(name, MACHINES[name], (fault,), fault["fault"], MEMORY, seeds)
            for fault in swapped_distances(topology)
        ]
    with _processes() as pool:
        of_each = pool.map(simulate, scenarios)
        fleet = pool.submit(simulate_fleets, seeds, slow=True)
        columns = ["machine", "fault", "planted loss", "found", "named", "false alarms"]
        columns += ["true loss", "found loss, median", "confidence, median"]
        yield f"| {' | '.join(columns)} |"
        yield "|---" * len(columns) + "|"
        for scenario, seen in zip(scenarios, of_each, strict=True):
            faults = scenario.looked_for
            loss = 100 * (1 - min(fault.get("remaining", 1.0) for fault in faults))
            count = f"{len(faults)} x " if len(faults) > 1 else ""
            name = scenario.kind.replace("_", " ")
            yield fault_line(scenario.topology, f"{count}{name}", loss, seen)
        yield fault_line(f"{FLEET}, 16 hosts", "slow host", 5, fleet.result())


def compare_healthy(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown, with a row for each healthy machine."""
    experiments = tuple(read_config()["experiments"])
    with _processes() as pool:
        scenarios = [
            Scenario(name, MACHINES[name], (), "", experiments, seeds) for name in MACHINES
        ]
        of_each = pool.map(simulate, scenarios)
        fleet = pool.submit(simulate_fleets, seeds, slow=False)
        yield "| healthy machine | with a finding |"
        yield "|---|---|"
        total = 0
        for scenario, seen in zip(scenarios, of_each, strict=True):
            wrong = sum(one.false > 0 for one in seen)
            total += wrong
            yield f"| {scenario.topology} | {shown(wrong, seeds)} |"
        yield f"| all {len(scenarios)} | {shown(total, seeds * len(scenarios))} |"
        wrong = sum(one.false > 0 for one in fleet.result())
        yield f"| {FLEET} without it, 16 hosts | {shown(wrong, seeds)} |"


def _processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(len(os.sched_getaffinity(0)))


def fault_line(machine: str, fault: str, planted_loss: float, seen: Sequence[Seen]) -> str:
    """Return a row of the table of faults."""
    cells = [machine, fault, f"{planted_loss:.0f} %" if planted_loss else "-"]
    if not seen:
        return f"| {' | '.join([*cells, 'changes no measured value', *5 * '-'])} |"
    for name in ("found", "named", "false"):
        cells.append(shown(sum(getattr(one, name) > 0 for one in seen), len(seen)))
    for name, form in (("true_loss", "{:.0f} %"), ("loss", "{:.0f} %"), ("confidence", "{:.4f}")):
        values = np.array([getattr(one, name) for one in seen])
        known = values[~np.isnan(values)]
        cells.append(form.format(np.median(known)) if len(known) else "-")
    return f"| {' | '.join(cells)} |"


def shown(times: int, number: int) -> str:
    """Return a share with its 95 % interval."""
    interval = stats.binomtest(times, number).proportion_ci(0.95, "exact")
    return f"{times} of {number} ({100 * interval.low:.0f} to {100 * interval.high:.0f} %)"


def _experiments(fault: Fault) -> tuple[str, ...]:
    if fault["fault"] == "slow_l3_domain":
        return (*MEMORY, "l3_domain_bandwidth")
    return STORAGE if "drive" in fault["fault"] or "port" in fault["fault"] else MEMORY


def swapped_distances(topology: Topology) -> Iterator[Fault]:
    """Yield a swap of the entries of two nodes in the SLIT, if there are three."""
    nodes = [node.os_index for node in topology.memory_nodes if node.initiator]
    if len(nodes) > 2:
        yield {"fault": "swapped_distances", "nodes": [nodes[1], nodes[-1]]}


def planted(topology: Topology, machine: MachineDescription, remaining: float) -> Iterator[Fault]:
    """Yield a fault of each kind that slows a part of a machine, and leaves this share of it."""
    nodes = [node.os_index for node in topology.memory_nodes if node.initiator]
    middle = nodes[len(nodes) // 2]
    of_node = [core for core in topology.cores if topology.node_of_pu[min(core.cpus)] == middle]
    yield {"fault": "slow_node", "node": middle, "remaining": remaining}
    yield {"fault": "slow_core", "core": of_node[0].index, "remaining": remaining}
    domains = [core.l3 for core in topology.cores if core.package == of_node[0].package]
    if "l3_domain_bytes_per_second" in machine["memory"] and len({*domains}) > 2:
        yield {"fault": "slow_l3_domain", "l3_domain": of_node[0].l3, "remaining": remaining}
    if "package_to_package_bytes_per_second" in machine.get("links", {}):
        near, far = [package.os_index for package in topology.packages][:2]
        yield {
            "fault": "slow_link",
            "from_package": near,
            "to_package": far,
            "remaining": remaining,
        }
    drives = [drive for drive in topology.drives if drive.name]
    names = [drive_component_name(drive) for drive in drives]
    if drives:
        yield {"fault": "slow_drive", "drive": names[0], "remaining": remaining}
    if len([drive for drive in drives if drive.node == drives[0].node]) > 1:
        yield {"fault": "slow_port", "drives": names[:2], "remaining": remaining}
    if "remote_package_bytes_per_second" in machine.get("drives", {}):
        node = drives[-1].node or 0
        yield {"fault": "slow_drive_path", "drive_node": node, "remaining": remaining}


def simulate(scenario: Scenario) -> list[Seen]:
    """Return what is found with each seed; nothing if the fault changes no value."""
    faulty = scenario.host(scenario.faults)
    healthy = scenario.host(())
    all_losses = true_losses(healthy, faulty)
    losses = true_losses(healthy, scenario.host(scenario.looked_for))
    changed = faulty.topology.distances != healthy.topology.distances
    if scenario.faults and not changed and max(losses.values()) < CHANGED:
        return []
    found = []
    for seed in range(1, scenario.seeds + 1):
        anomalies = faulty.findings(seed).anomalies
        seen = judged(anomalies, scenario.looked_for, losses, faulty.topology)
        others = judged(anomalies, scenario.faults, all_losses, faulty.topology)
        found.append(replace(seen, false=others.false))
    return found


Key = tuple[tuple[str, ...], object, object]


def true_losses(healthy: SimulatedHost, faulty: SimulatedHost) -> dict[Key, float]:
    """Return the loss of each cell without noise, in per cent as in findings.

    A key is a slice of the tidy table, an initiator and a target, by names and by nodes.
    """
    assert [point["point"] for point in healthy.points] == [p["point"] for p in faulty.points]
    before = healthy.true_table.rows["value"]
    losses: dict[Key, float] = {}
    for where, part in faulty.true_table.comparable_slices():
        ratio = part.rows["value"] / before[part.rows.index]
        loss = ratio - 1 if less_is_better(str(where["metric"])) else 1 - ratio
        columns = ("initiator", "target", "initiator_nodes", "target_nodes")
        places = part.rows[list(columns)].itertuples(index=False)
        for (source, target, *nodes), value in zip(places, loss, strict=True):
            losses[_slice_key(where), source, target] = 100 * value
            if all(str(each).isdigit() for each in nodes):
                losses[_slice_key(where), int(nodes[0]), int(nodes[1])] = 100 * value
    return losses


def _slice_key(where: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(str(where.get(column)) for column in SLICE_COLUMNS)


def _true_loss(anomaly: Anomaly, cell: tuple[object, ...], losses: Mapping[Key, float]) -> float:
    """Return the loss of a cell; for a finding over sizes the largest loss of a size."""
    given = {
        SLICE_COLUMNS.index(name): str(value)
        for name, value in anomaly.where.items()
        if name in SLICE_COLUMNS
    }
    found = [
        loss
        for (where, *places), loss in losses.items()
        if tuple(places) == cell and all(where[index] == value for index, value in given.items())
    ]
    exact = losses.get((_slice_key(anomaly.where), *cell))
    return max(found, default=0.0) if exact is None else exact


def judged(
    anomalies: Sequence[Anomaly],
    faults: Sequence[Fault],
    losses: Mapping[Key, float],
    topology: Topology,
) -> Seen:
    """Return which findings are about the faults."""
    about: list[tuple[Anomaly, float]] = []
    for anomaly in anomalies:
        own = [_true_loss(anomaly, cell, losses) for cell in anomaly.cells]
        swapped = any(fault["fault"] == "swapped_distances" for fault in faults)
        if swapped and anomaly.kind == AnomalyKind.SLIT_MISMATCH:
            about.append((anomaly, np.nan))
        elif own and max(own) >= CHANGED:
            about.append((anomaly, float(np.median(own))))
    named = [one for one in about if any(is_named(one[0], fault, topology) for fault in faults)]
    false = len(anomalies) - len(about)
    if not about:
        return Seen(0, 0, false)
    worst, true_loss = max(named or about, key=lambda one: one[0].loss_as_share_of_better_value)
    loss, confidence = worst.loss_percent, worst.confidence
    return Seen(len(about), len(named), false, loss, true_loss, confidence)


def is_named(anomaly: Anomaly, fault: Fault, topology: Topology) -> bool:
    """Return whether a finding names the faulty part, or the node of a faulty core."""
    names = set(anomaly.components)
    match fault["fault"]:
        case "slow_node":
            return f"node{fault['node']}" in names
        case "slow_core":
            core = next(core for core in topology.cores if core.index == fault["core"])
            node = topology.node_of_pu[min(core.cpus)]
            own = re.compile(rf"(pu{min(core.cpus)}|node{node}(_.*)?)$")
            return any(map(own.match, names))
        case "slow_l3_domain":
            return f"l3_{fault['l3_domain']}" in names
        case "slow_link":
            wanted = {fault["from_package"], fault["to_package"]}
            return any(packages_of_path(name, topology) == wanted for name in names)
        case "swapped_distances":
            return {f"node{node}" for node in fault["nodes"]} <= names
        case "slow_drive":
            return fault["drive"] in names
        case "slow_port":
            return set(fault["drives"]) <= names
        case "shared_drive_path":
            return {f"node{node}" for node in fault["drive_nodes"]} <= names
        case "waiting_l3_domains":
            units = [min(topology.l3_domains[index].cpus) for index in fault["l3_domains"]]
            return any(f"node{topology.node_of_pu[unit]}" in names for unit in units)
        case _:
            node = fault["drive_node"]
            own_package = topology.package_of_node[node]
            paths = [name for name in names if name.endswith(f"->package{own_package}")]
            return bool(paths) or f"node{node}" in names


def packages_of_path(name: str, topology: Topology) -> set[int | None]:
    """Return the packages at both ends of a path or link; empty for another name."""
    packages: set[int | None] = set(packages_of_link(name) or ())
    for end in name.split("->") if "->" in name and not packages else []:
        if end.startswith("package"):
            packages.add(int(end.removeprefix("package")))
        elif end.startswith("node"):
            nodes = parse_cpu_list(end.removeprefix("node").split("_")[0])
            packages |= {topology.package_of_node.get(node) for node in nodes}
    return packages


def simulate_fleets(seeds: int, *, slow: bool) -> list[Seen]:
    """Return which of sixteen equal hosts are named as outliers, for each seed."""
    topology = shipped_topology("xeon_8358")
    machine = shipped_machine(FLEET, topology)
    faults = machine["faults"] if slow else []
    hosts = {name: SimulatedHost.planned(machine, topology, faults, name=name) for name in HOSTS}
    faulty = faults[0]["host"] if slow else None
    seen = []
    for seed in range(1, seeds + 1):
        found = find_outlier_hosts({name: host.table(seed) for name, host in hosts.items()}).hosts
        differing = {host.host: host for host in found if host.differs}
        false = len(differing.keys() - {faulty})
        if faulty in differing:
            verdict = differing[faulty]
            loss = 100 * (1 - (verdict.speed or 1.0))
            confidence = 1 - (verdict.p_adjusted or 0.0)
            seen.append(Seen(1, 1, false, loss, 5.0, confidence))
        else:
            seen.append(Seen(0, 0, false))
    return seen


PARTS = {"planted_faults": compare_faults, "healthy_machines": compare_healthy}
