"""Compute max-min fair rates of flows that share resources (progressive filling).

The rates of all flows grow at the same pace until a resource is full or a flow reaches its limit.
The flows of that resource keep their rate, all other flows continue to grow (Bertsekas and
Gallager, Data Networks, section 6.5.2). A flow may use several units of a resource for one unit of
its rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# A resource with less than this share of its capacity left counts as full; this absorbs rounding.
FULL = 1e-9


@dataclass(frozen=True)
class Flow:
    """Accesses that take one path."""

    # Name of each resource -> units of it for one unit of the flow's rate.
    uses: Mapping[str, float]
    limit: float = float("inf")  # highest rate that the flow requests; infinite by default
    # How fast its rate grows compared with other flows, such as its number of threads.
    pace: float = 1.0


@dataclass
class FlowRatesAndUtilisation:
    """The rates of flows, in their order, and how full each resource is (0 to 1)."""

    rates: list[float]
    utilisation: dict[str, float] = field(default_factory=dict)


def max_min_fair_rates(
    flows: Sequence[Flow], capacities: Mapping[str, float]
) -> FlowRatesAndUtilisation:
    """Return the max-min fair rates of flows.

    Args:
        flows: the flows; each uses at least one resource of `capacities` or has a limit.
        capacities: name of each resource -> units per second, which can be infinite.

    Raises:
        KeyError: a flow uses a resource without a capacity.
    """
    rates = [0.0] * len(flows)
    growing = set(range(len(flows)))
    left = {
        name: rest for flow in flows for name in flow.uses if (rest := capacities[name]) < math.inf
    }
    # What each flow needs of the resources that can be full while its rate grows by its pace.
    needs = [
        {name: units * flow.pace for name, units in flow.uses.items() if units > 0 and name in left}
        for flow in flows
    ]
    while growing:
        demand: dict[str, float] = {}
        for number in growing:
            for name, units in needs[number].items():
                demand[name] = demand.get(name, 0.0) + units
        steps = [left[name] / units for name, units in demand.items()]
        steps += [(flows[n].limit - rates[n]) / flows[n].pace for n in growing]
        step = max(0.0, min(steps))
        for number in growing:
            rates[number] += step * flows[number].pace
        for name, units in demand.items():
            left[name] -= step * units
        full = {name for name in demand if left[name] <= FULL * capacities[name]}
        growing = {
            number
            for number in growing
            if rates[number] < flows[number].limit * (1 - FULL) and full.isdisjoint(needs[number])
        }
    return FlowRatesAndUtilisation(
        rates, {name: 1 - rest / capacities[name] for name, rest in left.items()}
    )
