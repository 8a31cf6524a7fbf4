"""Outlier hosts among equal hosts."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.compare.outlier_hosts import find_outlier_hosts
from chaosity.errors import UserError
from chaosity.store.measurements import Measurements
from machines import planned
from table_rows import LATENCY, equal_host


@cache
def modes():
    """A server in two firmware modes, in which a name means another place."""
    names = ["memory_bandwidth", "storage_bandwidth"]
    topologies = {mode: f"epyc_7413_{mode}" for mode in ("nps1", "nps2")}
    return {mode: planned("epyc_7413", t, experiments=names) for mode, t in topologies.items()}


def find_outliers(tables):
    return find_outlier_hosts({name: Measurements.from_table(t) for name, t in tables.items()})


def fleet(number, seed, *, odd=None, between=0.005, **keys):
    """Return hosts whose nodes differ by about 1 %, as the nodes of real hosts do."""
    random = np.random.default_rng(seed)
    found = {}
    for one in range(number):
        name, nodes = f"h{one:02d}", range(keys.get("nodes", 4))
        factor = {f"node{node}": float(np.exp(random.normal(0.0, between))) for node in nodes}
        for place, share in (odd or {}).get(name, {}).items():
            factor[place] = factor.get(place, 1.0) * share
        found[name] = equal_host(name, 1000 * seed + one, factor=factor, **keys)
    return found


def named(found):
    return sorted(one.host for one in found.hosts if one.differs)


@pytest.mark.thorough
def test_sixteen_equal_hosts_have_no_outlier():
    table = Measurements.from_table(equal_host("h", 1, nodes=2, noise=0.0))
    targets = table.rows["target"].map({"node0": 0, "node1": 1})
    false = 0
    for seed in range(8):
        random, hosts = np.random.default_rng(seed), {}
        for number in range(16):
            between = random.normal(0.0, 0.005, 2)[targets]
            noise = between + random.normal(0.0, 0.02, len(targets))
            value = table.rows["value"] * np.exp(noise)
            hosts[f"h{number:02d}"] = table.with_columns(value=value, host=f"h{number:02d}")
        false += bool(named(find_outlier_hosts(hosts)))
    # Each fleet may give a false alarm with a probability of 5 %. In one of 170 such tests, more
    # than 2 of the 8 fleets then do so.
    assert false <= 2


@pytest.mark.parametrize("replicates", [1, 3])
def test_the_host_with_a_slower_node_is_named(replicates):
    found = find_outliers(fleet(8, 1, odd={"h05": {"node2": 0.9}}, replicates=replicates))
    assert named(found) == ["h05"]
    worst = found.hosts[0]
    assert worst.clear == 4 and "→ node2" in worst.worst
    assert worst.worst_ratio == pytest.approx(0.9, abs=0.03)
    assert worst.p_adjusted < 1e-3
    assert set(found.cells["host"]) == {"h05"} and len(found.cells) == 4


SLOW = {"node1": 0.85}
HALVES = {f"h0{number}": {"node1": 0.8} for number in range(4)}


@pytest.mark.parametrize(
    ("hosts", "seed", "odd", "outliers"),
    [
        (3, 2, {"h01": {"node2": 0.85}}, ["h01"]),
        # Two outlier hosts do not hide each other.
        (9, 3, {"h02": SLOW, "h07": {**SLOW, "node0": 1.15}}, ["h02", "h07"]),
        # If two halves differ, none is the outlier.
        (8, 9, HALVES, []),
        (8, 9, {}, []),
    ],
)
def test_outlier_hosts_are_named_and_no_others(hosts, seed, odd, outliers):
    found = find_outliers(fleet(hosts, seed, odd=odd, noise=0.002, between=0.002))
    assert named(found) == outliers
    # Cells in which hosts scatter hide deviations.
    assert (found.detectable_at_worst > 0.3) == (odd is HALVES)
    assert found.detectable < 0.1 or odd is HALVES


@settings(max_examples=5, deadline=None)
@given(order=st.permutations(range(5)), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_neither_the_order_of_hosts_nor_the_unit_matters(order, scale, seed):
    odd = {"h04": {f"node{node}": 1.12 for node in range(4)}}
    tables = fleet(5, seed, odd=odd, metric=LATENCY)
    found = find_outliers(tables)
    names = [list(tables)[place] for place in order]
    other = find_outliers({n: tables[n].assign(value=tables[n]["value"] * scale) for n in names})
    assert named(found) == named(other) == ["h04"]
    for one, two in zip(found.hosts, other.hosts, strict=True):
        assert (one.host, one.clear) == (two.host, two.clear)
        assert (one.speed, one.worst_ratio) == pytest.approx((two.speed, two.worst_ratio))
    assert found.hosts[0].speed == pytest.approx(1 / 1.12, rel=0.02)
    assert found.detectable == pytest.approx(other.detectable) and 0.05 <= found.detectable < 0.3


def test_hosts_of_different_build_are_compared_by_class():
    """Their places have no common names, and drives and nodes are one resource for each class."""
    tables = {}
    for number, mode in enumerate(("nps1", "nps2", "nps1", "nps2")):
        tables[f"h{number}"] = modes()[mode].table(number)
    found = find_outlier_hosts(tables)
    assert found.matched_by == "class"
    assert {"node → same node", "node → drive, same node"} <= {one.place for one in found.resources}


def test_packages_of_several_nodes_are_resources():
    host = planned("epyc_7413", "epyc_7413_nps4", experiments=["package_bandwidth"])
    tables = {f"h{seed}": host.table(seed) for seed in range(3)}
    found = find_outlier_hosts(tables, packages=host.topology.package_of_node)
    assert [(one.group, one.place) for one in found.resources] == [
        ("memory bandwidth of own package", "package 0"),
        ("memory bandwidth of own package", "package 1"),
        ("memory bandwidth between packages", "0 → 1"),
        ("memory bandwidth between packages", "1 → 0"),
    ]


def test_missing_cells_of_a_host_are_counted():
    tables = fleet(4, 7)
    tables["h03"] = tables["h03"][tables["h03"]["target"] != "node0"]
    found = find_outliers(tables)
    missing = {one.host: one.missing for one in found.hosts}
    assert missing == {"h00": 0, "h01": 0, "h02": 0, "h03": 4}
    assert found.compared == 16


def test_hosts_without_common_cells_are_not_compared():
    tables = fleet(4, 8) | {"x": equal_host("x", 1, metric=LATENCY)}
    found = find_outliers(tables)
    assert "among 4 hosts" in found.sentences[0] and found.sentences[-1].endswith("x lacks 16.")
    json.dumps(found.to_json(), allow_nan=False)
    with pytest.raises(UserError, match="no cell was measured on three hosts"):
        find_outliers({name: table.iloc[:0] for name, table in tables.items()})


def test_a_deviation_is_found_without_any_scatter():
    tables = {f"h{one}": equal_host(f"h{one}", 1, noise=0.0) for one in range(4)}
    assert named(find_outliers(tables)) == []
    tables["h2"] = equal_host("h2", 1, noise=0.0, factor={"node1": 0.9})
    assert named(find_outliers(tables)) == ["h2"]


def test_two_hosts_that_agree_by_chance_do_not_make_the_third_an_outlier():
    noisy = {"noise": 0.3, "nodes": 2}
    one = equal_host("a", 1, **noisy)
    assert named(find_outliers({"a": one, "b": one, "c": equal_host("c", 2, **noisy)})) == []


def test_several_configurations_are_noted():
    tables = fleet(3, 1, nodes=2)
    tables["h02"] = tables["h02"].assign(configuration="nps1")
    assert "nps1, nps4" in find_outliers(tables).sentences[-1]


@pytest.mark.parametrize(("hosts", "words"), [(2, "add a third"), (1001, "at most 1000 hosts")])
def test_too_few_and_too_many_hosts_are_refused(hosts, words):
    one = Measurements.from_table(equal_host("a", 1, nodes=1))
    with pytest.raises(UserError, match=words):
        find_outlier_hosts(dict.fromkeys(map(str, range(hosts)), one))
