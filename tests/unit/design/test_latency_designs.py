"""What the latency experiments need of the expansion: sizes, pages, several at once, pairs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from expansions import expand, plan_of, tried
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.cpusets import parse_cpu_list
from chaosity.design.chosen_loads import format_level
from chaosity.design.host_resources import HostResources, thread_counts_up_to
from chaosity.documents.config import check_config
from chaosity.errors import UserError
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import HugePagePool
from machines import shipped_topology


@pytest.fixture(scope="module")
def whole(config):
    """The config without the limits that keep a run on a small machine short."""
    free = {**config, "levels": {}}
    free["working_set"] = {**config["working_set"], "sweep_at_most_bytes": None}
    return check_config(free)


def chase(**more):
    return {
        "category": "memory_latency",
        "initiator": {"first_pu_of": "node"},
        "target": {"local_to": "chase.initiator"},
        **more,
    }


def chases(**more):
    return tried(d={"chase": chase(**more)})


def with_pools(host, *pools):
    found = tuple(HugePagePool(*pool) for pool in pools)
    return replace(host, topology=replace(host.topology, huge_page_pools=found))


@settings(deadline=None, max_examples=10)
@given(st.integers(10, 20), st.integers(0, 14), st.integers(1, 16))
def test_any_sweep_is_even_ascending_and_within_its_ends(config, paper_host, low, more, steps):
    ends = {"from": 2**low, "to": 2 ** (low + more), "per_doubling": steps}
    sweep = chases(sizes=ends, initiator={"names": ["pu0"]})
    points, _ = expand(paper_host, config, sweep)
    sizes = [point["loads"][0]["levels"]["bytes"] for point in points]
    assert sizes == sorted(set(sizes))
    assert sizes[0] == 2**low
    assert all(size % 1024 == 0 and size <= 2 ** (low + more) for size in sizes)
    assert len(sizes) <= more * steps + 1


def test_loads_that_share_a_node_share_its_memory(whole, paper_host):
    sizes = [{"times": 1, "of": "node"}]
    every = chases(together=True, initiator={"each": "core"}, sizes=sizes)
    [point], _ = expand(paper_host, whole, every)
    on_node0 = [load for load in point["loads"] if load["placement"]["memory_nodes"] == [0]]
    memory = paper_host.topology.find_node(0).memory_bytes
    assert len(on_node0) > 1
    assert sum(load["memory_bytes"] for load in on_node0) <= memory / 2 * 1.001


def test_fewer_than_two_cannot_run_together(config, paper_host):
    alone = chases(together=True, initiator={"names": ["pu0"]})
    points, notes = expand(paper_host, config, alone)
    assert points == []
    assert any("fewer than two" in note for note in notes)


@pytest.mark.parametrize(
    ("most", "modes"), [(64, {"concurrent"}), (2, {"concurrent", "all_cores"})]
)
def test_the_same_cores_at_once_are_measured_only_once(config, paper_host, most, modes):
    cores = chase(initiator={"first_pu_of": "core", "at_most": most}, together=True)
    every = {**cores, "initiator": {"each": "core"}}
    designs = {"concurrent": {"chase": cores}, "all_cores": {"chase": every}}
    points, _ = expand(paper_host, config, tried({"mode": {"design": True}}, **designs))
    assert {p["factors"]["mode"] for p in points} == modes
    assert len(points) == len(modes)


def test_pages_that_nobody_reserved_are_left_out_and_said(whole, paper_host):
    host = with_pools(paper_host, (0, 2 * 1024**2, 512), (1, 2 * 1024**2, 0))
    points, notes = expand(host, whole, chases(vary={"pages": ["thp", "base", "2M", "1G"]}))
    seen = {
        (p["loads"][0]["initiator"]["nodes"][0], p["loads"][0]["levels"]["pages"]) for p in points
    }
    assert (0, "2M") in seen
    assert {pages for node, pages in seen if node == 1} == {"thp", "base"}
    assert any(note.endswith("no huge page of 2 MiB is reserved on nodes1-7") for note in notes)


def test_pages_that_the_config_asks_for_must_be_there(whole, paper_host):
    host = with_pools(paper_host, (0, 2 * 1024**2, 0))
    config = {**whole, "parameters": {"chaosity_latency": {"pages": "2M"}}}
    with pytest.raises(UserError, match="no huge page of 2 MiB is reserved on node0"):
        expand(host, config, chases())


def test_transparent_pages_that_are_switched_off(whole, paper_host):
    settings = {"memory_settings": {"transparent_huge_pages": "never"}}
    topology = replace(paper_host.topology, host={**paper_host.topology.host, **settings})
    with pytest.raises(UserError, match="switched off"):
        expand(replace(paper_host, topology=topology), whole, chases())


def test_pairs_of_cores_have_three_factors(config, paper_host):
    plan = plan_of(paper_host.topology, config, "core_to_core")
    domains = len(paper_host.topology.l3_domains)
    near = [p for p in plan.points if p["loads"][0]["target"]["relation"] == "same_node"]
    pairs = {
        (p["loads"][0]["initiator"]["name"], p["loads"][0]["levels"]["responder"]) for p in near
    }
    assert len(pairs) >= domains * (domains - 1)
    assert all(a != b for a, b in pairs)
    for point in plan.points:
        [load] = point["loads"]
        assert len(parse_cpu_list(load["placement"]["cpus"])) == 2
        assert f"--responder={load['levels']['responder'].removeprefix('pu')}" in load["command"]
    homes = {
        p["loads"][0]["target"]["name"] for p in plan.points if p["point"].startswith("line=pu0+")
    }
    assert homes == {f"node{node}" for node in range(8)}
    # A point hangs on the responder's package too.
    far = next(p for p in plan.points if p["point"].endswith("node0+responder-pu24"))
    assert {"package0", "package1"} <= set(far["components"])


def test_within_an_l3_domain_its_second_core_responds_to_its_first(config, paper_host):
    topology = paper_host.topology
    plan = plan_of(topology, config, "core_to_core_same_l3")
    loads = [p["loads"][0] for p in plan.points]
    pairs = {tuple(parse_cpu_list(load["placement"]["cpus"])) for load in loads}
    assert pairs == {tuple(domain.cpus[:2]) for domain in topology.l3_domains}


def test_added_and_renamed_metrics_keep_definitions(config):
    """The expected definitions are those of records without these metrics, which count."""
    simulated = {"chaosity_simulated": "epyc_7413_nps4"}
    topology = shipped_topology("epyc_7413_nps4")
    plan = plan_of(topology, config, "core_to_core", "latency_matrix", **simulated)
    by_name = {point["point"]: point["definition"] for point in plan.points}
    assert by_name["line=pu0+node0+responder-pu12"] == "0958e431bbd42d57"
    assert by_name["chase=pu0+node0+pages-thp"] == "e4bebb41b8b28592"
    [line] = next(p["loads"] for p in plan.points if "responder" in p["point"])
    assert {"latency_ns", "latency_p90_of_lines_ns"} <= set(line["metrics"])


def test_of_equally_near_initiators_the_first_reaches_a_node_without_cores(config):
    topology = replace(shipped_topology("epyc_9554_cxl"), distances=None)
    plan = plan_of(topology, config, "loaded_latency")
    chases = [p["loads"][0] for p in plan.points]
    assert {(one["initiator"]["name"], one["target"]["name"]) for one in chases} == {
        ("pu0", "node0"),
        ("pu64", "node1"),
        ("pu0", "node2"),
    }


@given(st.integers(1, 512))
def test_thread_counts_are_fine_enough_and_end_with_all(most):
    counts = thread_counts_up_to(most)
    assert counts[0] == 1
    assert counts[-1] == most
    assert counts == sorted(set(counts))
    assert all(b <= 2 * a and (a < 2 or b <= 1.5 * a) for a, b in pairwise(counts))


@given(st.integers(0, 39).map(lambda power: 2**power), st.integers(1, 1023))
def test_sizes_in_names_are_exact(power, times):
    text = format_level("bytes", power * times)
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
    number = text.rstrip("BiKMGTP")
    assert int(number) * units[text[len(number) :]] == power * times


def without_l3(topology: Topology, *, as_l2: bool) -> Topology:
    """A topology whose L3 caches are L2 caches, or unknown."""
    caches = [cache for cache in topology.caches if cache.level == 3]
    kept = tuple(replace(cache, level=2) for cache in caches) if as_l2 else ()
    return replace(topology, l3_domains=(), caches=kept)


# With L3 caches of several cores, of all cores of a node, of a part of a node, and without any.
SHIPPED = ("desktop", "epyc_7413_nps2", "xeon_max_9480_snc4", "opteron_6272", "apple_m1_pro")


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request) -> Topology:
    return shipped_topology(request.param)


def test_without_an_l3_cache_the_largest_shared_cache_takes_its_place(shipped):
    def firsts(topology):
        return HostResources(topology, ()).first_pu_of_each_group("l3_domain", 2)

    domains = [domain for domain in shipped.l3_domains if len(domain.cpus) > 1]
    if 2 <= len(domains) == len(shipped.l3_domains) <= 16:
        level, units = firsts(without_l3(shipped, as_l2=True))
        assert (level, units) == ("shared_cache", firsts(shipped)[1])


@pytest.mark.parametrize("as_l2", [True, False])
def test_a_host_without_l3_caches_has_few_pairs_of_cores(shipped, as_l2):
    hosts = [without_l3(shipped, as_l2=as_l2)]
    if len(shipped.l3_domains) < 2:
        hosts.append(shipped)  # too few L3 domains for pairs
    for topology in hosts:
        level, units = HostResources(topology, ()).first_pu_of_each_group("l3_domain", 2)
        nodes = {node.os_index for node in topology.initiator_nodes}
        assert level == "shared_cache" or {unit.nodes[0] for unit in units} == nodes
        assert 2 <= len(units) <= max(16, len(nodes))
