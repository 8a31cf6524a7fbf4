"""How often each planted fault gets exactly one finding, and healthy parts get no finding.

The machine is the server of document 000 without its own faults. Its replicates scatter by 1.5 %,
and 3 % of its runs reach only half of the speed. The server has one, two or four faults. Runs are
the default plan and a plan with a budget, whose rounds are chosen as on a host.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from chaosity.anomalies.anomaly_results import Anomaly
from chaosity.documents.machines import Fault
from chaosity.place_names import node_name
from chaosity.rounds.budget import Budget
from machines import SimulatedHost, planned
from simulated_rounds import simulate_rounds

TOPOLOGY, MACHINE = "epyc_7413_nps4", "epyc_7413"
NOISE = {"between_runs": 0.015, "within_runs": 0.01, "disturbed_runs": 0.03, "disturbed_loss": 0.5}
RUNS = {"default plan": None, "30 min": Budget(1800.0)}
# Name of a fault -> the fault as in the description of a machine, and the components that its
# finding has to name.
FAULTS: dict[str, tuple[Fault, frozenset[str]]] = {
    "one of two memory modules of a node lost (70 %)": (
        {"fault": "slow_node", "node": 5, "remaining": 0.7},
        frozenset({"node5"}),
    ),
    "one of eight memory modules of a node lost (87.5 %)": (
        {"fault": "slow_node", "node": 2, "remaining": 0.875},
        frozenset({"node2"}),
    ),
    "link between packages at half width, one way": (
        {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5},
        frozenset({"link package1->package0"}),
    ),
    "port of two drives that saturates": (
        {
            "fault": "slow_port",
            "drives": ["drive-0000-61-00-0", "drive-0000-62-00-0"],
            "remaining": 0.5,
        },
        frozenset({"node6", "drive-0000-61-00-0", "drive-0000-62-00-0"}),
    ),
    "drive at two of four lanes": (
        {"fault": "slow_drive", "drive": "drive-0000-12-00-0", "remaining": 0.5},
        frozenset({"drive-0000-12-00-0"}),
    ),
    "drive 10 % slow": (
        {"fault": "slow_drive", "drive": "drive-0000-33-00-0", "remaining": 0.9},
        frozenset({"drive-0000-33-00-0"}),
    ),
    "slow core (70 %)": (
        {"fault": "slow_core", "core": 24, "remaining": 0.7},
        frozenset({"pu48"}),
    ),
    "two nodes of the SLIT swapped": (
        {"fault": "swapped_distances", "nodes": [3, 7]},
        frozenset({"node3", "node7"}),
    ),
}
NODE, SMALL_NODE, LINK, PORT, DRIVE, SLOW_DRIVE, CORE, SLIT = FAULTS
NODES = {node_name(number) for number in range(8)}
SCENARIOS: dict[str, tuple[str, ...]] = {
    "healthy": (),
    **{name: (name,) for name in FAULTS},
    "node and link": (NODE, LINK),
    "node and drive": (SMALL_NODE, DRIVE),
    "two drives": (DRIVE, SLOW_DRIVE),
    "core and port": (PORT, CORE),
    "node, link, drive, core": (NODE, LINK, DRIVE, CORE),
    "node, port, drive, SLIT": (SMALL_NODE, PORT, SLOW_DRIVE, SLIT),
}


@cache
def server_of_scenario(scenario: str, *, all_points: bool) -> SimulatedHost:
    """Return the server with the faults of a scenario; a run in rounds needs `all_points`."""
    faults = [FAULTS[name][0] for name in SCENARIOS[scenario]]
    return planned(
        MACHINE, TOPOLOGY, faults, all_points=all_points, change={"noise": NOISE}
    ).without_drives_of_several_nodes()


def findings_of_run(scenario: str, run: str, seed: int) -> tuple[Anomaly, ...]:
    """Return the findings of a run."""
    budget = RUNS[run]
    server = server_of_scenario(scenario, all_points=budget is not None)
    if budget is None:
        return server.findings(seed).anomalies
    [*_, last] = simulate_rounds(server, budget, seed)
    return last.findings.anomalies


def as_far_as_measured(named: frozenset[str], wanted: set[frozenset[str]]) -> frozenset[str]:
    """Return the parts that a finding names; if it names all drives of a node, return its port's.

    A run with a budget may read all drives of the node together, and no smaller set.
    """
    port = FAULTS[PORT][1]
    node = {name for name in port if name.startswith("node")}
    return port if port in wanted and port <= named and node == named & NODES else named


def count_named_faults(scenario: str, run: str, seed: int) -> Counter[str]:
    """Count faults that one finding names, and findings that name no fault or repeat a fault."""
    wanted = {FAULTS[name][1] for name in SCENARIOS[scenario]}
    named = Counter(
        as_far_as_measured(frozenset(one.components), wanted)
        for one in findings_of_run(scenario, run, seed)
    )
    count = Counter(
        right=sum(named[each] > 0 for each in wanted),
        missed=sum(not named[each] for each in wanted),
        extra=named.total() - sum(named[each] > 0 for each in wanted),
    )
    count["runs"] = 1
    count["exact"] = int(not count["missed"] and not count["extra"])
    for each in named.keys() - wanted:
        count[f"names {', '.join(sorted(each))}"] += 1
    return count


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown, and below it the parts that wrong findings name."""
    cases = [(scenario, run) for run in RUNS for scenario in SCENARIOS]
    tasks = [(*case, seed) for case in cases for seed in range(1, seeds + 1)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counts = pool.map(count_named_faults, *zip(*tasks, strict=True), chunksize=seeds)
        yield "| run | faults | exactly right | named | missed | other findings |"
        yield "|---" * 6 + "|"
        for scenario, run in cases:
            total = sum((next(counts) for _ in range(seeds)), Counter[str]())
            cells = (total[key] for key in ("right", "missed", "extra"))
            exact = f"{total['exact']} of {total['runs']}"
            yield f"| {run} | {scenario} | {exact} | {' | '.join(map(str, cells))} |"
            wrong = {key: times for key, times in total.items() if key.startswith("names ")}
            for key, times in sorted(wrong.items(), key=lambda each: -each[1])[:5]:
                yield f"{times} x {key.removeprefix('names ')}"


PARTS = {"suspects": compare}
