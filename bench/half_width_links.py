"""How often a link at half width is found on the paper's server, and the findings without it.

In each run, the server also has its own slow drive paths. A finding on anything but these paths and
the link is a false alarm. Runs are the default plan and a plan with a budget, whose rounds are
chosen as on a host. The plan with a budget has no drives of several nodes, because these points
take most time to simulate, and the first round has the loads between packages in any case.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache

from chaosity.anomalies.anomaly_results import Findings
from chaosity.documents.machines import Fault
from chaosity.rounds.budget import Budget
from machines import SimulatedHost, shipped_machine, shipped_topology
from shipped_machines import SERVER_WITH_FAULTS, shown
from simulated_rounds import simulate_rounds

HALF_WIDTH: Fault = {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5}
NAME, SENTENCE = "link package1->package0", "The link from package 1 to package 0 is slow"
OWN_FAULTS = ({"package0->package1"}, {"node0", "node3"}, {"node4", "node7"})
BUDGETS = {"30 min": Budget(1800.0), "default plan": None}


@cache
def paper_server(*, slow: bool, all_points: bool) -> SimulatedHost:
    """Return the paper's server, with its link from package 1 to package 0 at half width or not.

    With `all_points`, the plan also has loads at the same time, which a run in rounds needs.
    """
    topology = shipped_topology(SERVER_WITH_FAULTS)
    machine = shipped_machine(SERVER_WITH_FAULTS, topology)
    faults = [*machine["faults"], *([HALF_WIDTH] if slow else [])]
    host = SimulatedHost.planned(machine, topology, faults, all_points=all_points)
    return host.without_drives_of_several_nodes() if all_points else host


def findings(run: str, slow: bool, seed: int) -> Findings:
    """Return the findings of a run."""
    budget = BUDGETS[run]
    host = paper_server(slow=slow, all_points=budget is not None)
    if budget is None:
        return host.findings(seed)
    [*_, last] = simulate_rounds(host, budget, seed)
    return last.findings


def seen(run: str, slow: bool, seed: int) -> tuple[bool, bool]:
    """Return whether a finding names the link, and whether another finding is a false alarm."""
    anomalies = findings(run, slow, seed).anomalies
    named = any(each.sentence.startswith(SENTENCE) for each in anomalies)
    faults = [*OWN_FAULTS, *([{NAME}] if slow else [])]
    return named, any(set(each.components) not in faults for each in anomalies)


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    yield "| run | link from package 1 to package 0 | link named | false alarms |"
    yield "|---" * 4 + "|"
    cases = [(run, slow) for run in BUDGETS for slow in (True, False)]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for run, slow in cases:
            numbers = range(1, seeds + 1)
            of_each = list(pool.map(seen, [run] * seeds, [slow] * seeds, numbers))
            reported, false = (shown(sum(column), seeds) for column in zip(*of_each, strict=True))
            yield f"| {run} | {'half width' if slow else 'healthy'} | {reported} | {false} |"


PARTS = {"half_width_links": compare}
