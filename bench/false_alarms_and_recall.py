"""How many healthy simulated machines get a finding, and how many faults of 10 % get one.

Healthy machines have 1, 2, 8 and 16 nodes, in three kinds of noise. Each faulty machine has one
fault that leaves nine tenths of a node, a core, a link or a drive. Two kinds of faults are left
out: faults that take less than 9 % of each measured value, and faults of parts that the machine has
only once. The values take the same steps as in a report, see `shipped_machines`. Intervals are
Clopper-Pearson intervals.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from operator import add

from chaosity.documents.config import read_config
from chaosity.documents.machines import Fault, MachineDescription
from machines import SimulatedHost, shipped_machine, shipped_topology
from shipped_machines import MACHINES, MEMORY, STORAGE, judged, planted, shown, true_losses

# In the shipped descriptions, runs differ by 0.6 to 1 %. A quarter of the runs of a disturbed
# machine loses a fifth. So in one of six cells, at least two of three replicates are disturbed.
NOISE: dict[str, dict[str, float]] = {
    "calm": {},
    "noisy": {"between_runs": 0.02, "within_runs": 0.03},
    "disturbed": {"drift": 0.03, "disturbed_runs": 0.25, "disturbed_loss": 0.2},
}
REPLICATES = (3, 5)
HEALTHY = ("desktop", "xeon_8358", "epyc_7413_nps4", "sixteen_nodes")  # 1, 2, 8, 16 nodes
FAULTY = ("xeon_8358", "xeon_e5_4620", "epyc_7413_nps4", "sixteen_nodes")
FAULTS = ("slow_node", "slow_core", "slow_link", "slow_drive")
REMAINING = 0.9
# A fault that takes less than this of every measured value, in per cent, does not count.
LEAST_LOSS = 9.0


@dataclass(frozen=True)
class Case:
    """A machine in one kind of noise, healthy or with a fault of one kind."""

    topology: str
    noise: str
    n: int
    kind: str = ""

    @property
    def fault(self) -> list[Fault]:
        """Return a list with the fault; empty without one, or if the machine has no such part."""
        topology = shipped_topology(self.topology)
        faults = planted(topology, self.machine, REMAINING) if self.kind else ()
        return [fault for fault in faults if fault["fault"] == self.kind]

    @property
    def machine(self) -> MachineDescription:
        """Return the machine's description with the noise of this case."""
        described = shipped_machine(MACHINES[self.topology], shipped_topology(self.topology))
        return {**described, "noise": {**described["noise"], **NOISE[self.noise]}}

    def host(self, faults: Sequence[Fault]) -> SimulatedHost:
        """Return the machine with these faults."""
        names = [*MEMORY, *STORAGE] if self.kind else read_config()["experiments"]
        config = {**read_config(), "experiments": list(names), "replicates": self.n}
        topology = shipped_topology(self.topology)
        host = SimulatedHost.planned(self.machine, topology, list(faults), config)
        return host.without_drives_of_several_nodes()


@dataclass
class Count:
    """How many simulated machines have a finding or a suspicion.

    Attributes:
        machines: number of all machines.
        found: machines with a finding on the fault.
        wrong: machines with a finding on anything else.
        suspected: healthy machines with a suspicion, or faulty machines whose fault has only a
            suspicion.
    """

    machines: int = 0
    found: int = 0
    wrong: int = 0
    suspected: int = 0

    def __add__(self, other: Count) -> Count:
        """Return the sums."""
        return Count(*map(add, vars(self).values(), vars(other).values()))


def simulate(case: Case, seeds: int) -> Count:
    """Return what is found on the machines of a case; no machines if it has no such fault."""
    count, faults = Count(), case.fault
    if bool(case.kind) != bool(faults):
        return count
    host, losses = case.host(faults), {}
    if faults:
        losses = true_losses(case.host(()), host)
        if max(losses.values()) < LEAST_LOSS:
            return count
    for seed in range(1, seeds + 1):
        findings = host.findings(seed)
        seen = judged(findings.anomalies, faults, losses, host.topology)
        hinted = judged(findings.suspicions, faults, losses, host.topology)
        suspected = hinted.found > 0 and not seen.found if faults else hinted.false > 0
        count += Count(1, seen.found > 0, seen.false > 0, suspected)
    return count


def compare(seeds: int) -> Iterator[str]:
    """Yield two tables in Markdown."""
    kinds = [(n, noise) for n in REPLICATES for noise in NOISE]
    healthy = [Case(name, noise, n) for n, noise in kinds for name in HEALTHY]
    faulty = [
        Case(name, noise, n, kind) for n, noise in kinds for kind in FAULTS for name in FAULTY
    ]
    cases = healthy + faulty
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = dict(zip(cases, pool.map(simulate, cases, [seeds] * len(cases)), strict=True))
    yield "| noise | n | healthy machines with a finding | with a suspicion |"
    yield "|---" * 4 + "|"
    for n, noise in kinds:
        own = [counts[case] for case in healthy if (case.n, case.noise) == (n, noise)]
        total = sum(own, Count())
        yield f"| {noise} | {n} | {shown(total.wrong, total.machines)} | {total.suspected} |"
    yield f"| noise | n | fault of 10 % found | {' | '.join(FAULTS)} | suspected | false alarms |"
    yield "|---" * (5 + len(FAULTS)) + "|"
    for n, noise in kinds:
        of_kind = [
            sum((counts[Case(name, noise, n, kind)] for name in FAULTY), Count()) for kind in FAULTS
        ]
        total = sum(of_kind, Count())
        each = " | ".join(f"{one.found} of {one.machines}" for one in of_kind)
        found, wrong = (shown(number, total.machines) for number in (total.found, total.wrong))
        yield f"| {noise} | {n} | {found} | {each} | {total.suspected} | {wrong} |"
        missed = [
            f"{case.kind} of {case.topology} {counts[case].found}"
            for case in faulty
            if (case.n, case.noise) == (n, noise) and counts[case].found < counts[case].machines
        ]
        if missed:
            yield f"{noise}, n = {n}, not always found: {', '.join(missed)}"


PARTS = {"false_alarms_and_recall": compare}
