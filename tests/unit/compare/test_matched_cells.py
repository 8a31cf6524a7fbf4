"""A comparison by class ignores factors that name a place."""

from __future__ import annotations

import pytest

from chaosity.compare.matched_cells import factors_without_places

PLACES = [
    "pu12",
    "core3",
    "l3_4",
    "node3",
    "nodes0-1",
    "nodes0-1drives",
    "package0",
    "machine",
    "drive-0000-41-00-0",
    "alldrives",
    "node0_without_pu3",
    "machine_without_node0",
]


@pytest.mark.parametrize("place", PLACES)
def test_factors_that_name_a_place_are_removed(place):
    kept = {"mode": "serial", "drives": 4, "placement": "same_node", "policy": "uniform_machine"}
    assert factors_without_places({"where": place, **kept}) == kept
