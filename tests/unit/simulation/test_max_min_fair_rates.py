from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.simulation.access_paths import Flow, max_min_fair_rates

RESOURCES = ("core", "link", "node")
uses = st.dictionaries(st.sampled_from(RESOURCES), st.floats(0.1, 4), min_size=1)
flows = st.lists(
    st.builds(Flow, st.just("a"), uses, st.floats(0.5, 50), st.floats(0.5, 4)), min_size=1
)
capacities = st.fixed_dictionaries({name: st.floats(1, 100) for name in RESOURCES})


@given(flows, capacities)
def test_no_flow_is_above_its_limit_and_no_resource_beyond_its_capacity(
    given_flows, given_capacities
):
    fair = max_min_fair_rates(given_flows, given_capacities)
    for rate, flow in zip(fair.rates, given_flows, strict=True):
        assert rate <= flow.limit * (1 + 1e-6)
    for name, capacity in given_capacities.items():
        used = sum(
            rate * flow.uses.get(name, 0)
            for rate, flow in zip(fair.rates, given_flows, strict=True)
        )
        assert used <= capacity * (1 + 1e-6)
        assert fair.utilisation.get(name, 0) == pytest.approx(used / capacity, abs=1e-6)


@given(flows, capacities)
def test_every_flow_is_at_its_limit_or_at_a_full_resource_where_no_flow_is_faster(
    given_flows, given_capacities
):
    """This property defines max-min fairness (Bertsekas and Gallager, section 6.5.2)."""
    fair = max_min_fair_rates(given_flows, given_capacities)
    paces = [rate / flow.pace for rate, flow in zip(fair.rates, given_flows, strict=True)]
    for number, flow in enumerate(given_flows):
        bottlenecks = [
            name
            for name in flow.uses
            if fair.utilisation[name] > 1 - 1e-6
            and all(
                paces[other] <= paces[number] * (1 + 1e-6)
                for other, rival in enumerate(given_flows)
                if name in rival.uses
            )
        ]
        assert bottlenecks or fair.rates[number] >= flow.limit * (1 - 1e-6)
