"""All faults of the paper's server are found within an hour, whatever is measured by chance."""

from __future__ import annotations

import pytest

from chaosity.rounds.round_types import Budget
from machines import planned
from simulated_rounds import simulate_rounds

FAULTS = ({"package0->package1"}, {"node0", "node3"}, {"node4", "node7"})


@pytest.mark.thorough
def test_what_the_rounds_measure_most_does_not_become_the_norm():
    """A run measures again, and from all initiators, what departs.

    With this seed, most values of comparable pairs are those of the slow pairs.
    """
    host = planned("epyc_7413_nps4", faults=None, all_points=True)
    [*_, last] = simulate_rounds(host, Budget(3600.0), seed=9)
    assert last.findings is not None
    named = [set(each.components) for each in last.findings.anomalies]
    assert all(fault in named for fault in FAULTS), named
    assert len(named) == len(FAULTS)
