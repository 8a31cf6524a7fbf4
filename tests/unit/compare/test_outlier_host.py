"""Outlier hosts among equal hosts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from equal_hosts import find_outliers, host

from chaosity.errors import UserError
from chaosity.statistics.moderated_variances import fit_variance_prior


def fleet(number, seed, *, odd=None, between=0.005, **keys):
    """Return hosts whose nodes differ by about 1 %, as the nodes of real hosts do."""
    random = np.random.default_rng(seed)
    odd = odd or {}
    found = {}
    for one in range(number):
        nodes = range(keys.get("nodes", 4))
        factor = {f"node{node}": float(np.exp(random.normal(0.0, between))) for node in nodes}
        for place, share in odd.get(f"h{one:02d}", {}).items():
            factor[place] = factor.get(place, 1.0) * share
        found[f"h{one:02d}"] = host(f"h{one:02d}", 1000 * seed + one, factor=factor, **keys)
    return found


def named(found):
    return [one.host for one in found.hosts if one.differs]


@pytest.mark.thorough
def test_sixteen_equal_hosts_have_no_outlier():
    false = [
        seed for seed in range(50) if named(find_outliers(fleet(16, seed, nodes=2, noise=0.02)))
    ]
    # Of 50 that are each wrong in 5 %, more than 6 are in one of 300 such tests.
    assert len(false) <= 6


@pytest.mark.parametrize("replicates", [1, 3])
def test_the_host_with_a_slower_node_is_named(replicates):
    found = find_outliers(fleet(16, 1, odd={"h05": {"node2": 0.9}}, replicates=replicates))
    assert named(found) == ["h05"]
    worst = found.hosts[0]
    assert worst.clear == 4 and "→ node2" in worst.worst
    assert worst.worst_ratio == pytest.approx(0.9, abs=0.03)
    assert worst.p_adjusted < 1e-3
    assert set(found.cells["host"]) == {"h05"} and len(found.cells) == 4
    assert found.sentences[0].startswith("h05 is an outlier host: 4 of 16 cells differ")


def test_one_outlier_of_three_hosts_is_named_alone():
    found = find_outliers(fleet(3, 2, odd={"h01": {"node2": 0.85}}))
    assert named(found) == ["h01"]
    assert "too few to find another outlier" in found.sentences[-1]


def test_two_outlier_hosts_do_not_hide_each_other():
    odd = {"h02": {"node1": 0.85}, "h07": {"node1": 0.85, "node0": 1.15}}
    found = find_outliers(fleet(9, 3, odd=odd))
    assert sorted(named(found)) == ["h02", "h07"]


def test_a_host_that_is_slow_everywhere_has_a_low_speed():
    odd = {"h04": {f"node{node}": 1.12 for node in range(4)}}
    found = find_outliers(fleet(6, 4, odd=odd, metric="latency_ns"))
    assert named(found) == ["h04"]
    assert found.hosts[0].speed == pytest.approx(1 / 1.12, rel=0.02)


def test_equal_hosts_have_a_smallest_detectable_deviation():
    found = find_outliers(fleet(5, 6, noise=0.03))
    assert named(found) == []
    assert 0.05 <= found.detectable < 0.3
    words = "No host that deviates by 5 % or more was detected among 5 hosts in 16 cells. Smallest"
    assert found.sentences[0].startswith(words)


def test_missing_cells_of_a_host_are_counted():
    tables = fleet(4, 7)
    tables["h03"] = tables["h03"][tables["h03"]["target"] != "node0"]
    found = find_outliers(tables)
    assert {one.host: one.missing for one in found.hosts} == {
        "h00": 0,
        "h01": 0,
        "h02": 0,
        "h03": 4,
    }
    assert found.compared == 16
    assert found.sentences[-1] == "Some hosts lack cells that most hosts have: h03 lacks 4."


def test_hosts_without_common_cells_are_not_compared():
    tables = fleet(4, 8) | {"x": host("x", 1, metric="latency_ns")}
    found = find_outliers(tables)
    assert "among 4 hosts" in found.sentences[0] and found.sentences[-1].endswith("x lacks 16.")
    json.dumps(found.to_json(), allow_nan=False)
    with pytest.raises(UserError, match="no cell was measured on three hosts"):
        find_outliers({name: table.iloc[:0] for name, table in tables.items()})


def test_a_deviation_is_found_without_any_scatter():
    tables = {f"h{one}": host(f"h{one}", 1, noise=0.0) for one in range(4)}
    assert named(find_outliers(tables)) == []
    tables["h2"] = host("h2", 1, noise=0.0, factor={"node1": 0.9})
    assert named(find_outliers(tables)) == ["h2"]


def test_two_halves_that_differ_have_no_outlier_but_scattered_cells():
    odd = {name: {"node1": 0.8} for name in ("h00", "h01", "h02", "h03")}
    found = find_outliers(fleet(8, 9, odd=odd, noise=0.002, between=0.0))
    assert named(found) == []
    assert found.sentences[1].startswith(
        "In 4 of 16 cells, hosts differ by at least 5 % and by more than"
    )
    assert found.detectable_at_worst > 0.3
    equal = find_outliers(fleet(8, 9, noise=0.002, between=0.0))
    assert len(equal.sentences) == 1


def test_two_hosts_that_agree_by_chance_do_not_make_the_third_an_outlier():
    noisy = {"replicates": 3, "noise": 0.3, "nodes": 2}
    one = host("a", 1, **noisy)
    found = find_outliers({"a": one, "b": one, "c": host("c", 2, **noisy)})
    assert named(found) == []


def test_several_configurations_are_noted():
    tables = fleet(3, 1, nodes=2)
    tables["h02"] = tables["h02"].assign(configuration="nps1")
    assert find_outliers(tables).sentences[-1] == (
        "The hosts have several configurations (nps1, nps4), which can cause differences."
    )


def test_two_hosts_are_too_few_and_1001_too_many():
    with pytest.raises(UserError, match="add a third host"):
        find_outliers(fleet(2, 1, nodes=2))
    with pytest.raises(UserError, match="at most 1000 hosts"):
        find_outliers(dict.fromkeys(map(str, range(1001)), host("a", 1, nodes=1)))


def test_the_variance_prior_fits_equal_and_scattered_variances():
    random = np.random.default_rng(1)
    freedom = np.full(400, 4.0)
    same = 0.04 * random.chisquare(4.0, 400) / 4.0
    prior = fit_variance_prior(same, freedom)
    assert prior.freedom > 30.0 and prior.variance == pytest.approx(0.04, rel=0.15)
    # Smyth's model: 1 / variance follows a chi-square of d0 degrees of freedom over d0 s0^2.
    true = 0.04 * 6.0 / random.chisquare(6.0, 4000)
    seen = true * random.chisquare(4.0, 4000) / 4.0
    prior = fit_variance_prior(seen, np.full(4000, 4.0))
    assert prior.freedom == pytest.approx(6.0, rel=0.3)
    assert prior.variance == pytest.approx(0.04, rel=0.1)
