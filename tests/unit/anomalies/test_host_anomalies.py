"""Anomalies of a host, from its tidy table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from chaosity.anomalies.anomaly_results import AnomalyKind
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host, host_component_facts
from chaosity.anomalies.latency_sweep_anomalies import (
    find_contention_and_inversions,
    select_latency_size_sweeps,
)
from chaosity.store.measurements import Measurements
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, topology_from_json, topology_to_json
from machines import planned
from shipped_data import REAL_MACHINES
from table_rows import LATENCY, rows, scaled, sweep, table

SLOW = "drive-0000-11-00-0"
MEMORY, STORAGE = ["memory_bandwidth"], ["storage_bandwidth"]
MIB = 2**20


def machine(*faults, experiments=(*MEMORY, *STORAGE), name="two_packages", **config):
    return planned(name, None, faults, experiments=list(experiments), **config)


def slow_drive(remaining):
    return {"fault": "slow_drive", "drive": SLOW, "remaining": remaining}


def slow_node(remaining):
    return {"fault": "slow_node", "node": 1, "remaining": remaining}


def about_drives(found):
    """Anomalies that suspect a drive."""
    return [one for one in found.anomalies if any("drive" in name for name in one.components)]


def of_kind(found, kind):
    assert kind in tuple(AnomalyKind)
    return [one for one in found.anomalies if one.kind == kind]


@pytest.fixture(scope="module")
def healthy():
    return machine()


@pytest.fixture(scope="module")
def with_slow_drive():
    return machine(slow_drive(0.2), experiments=STORAGE)


def test_a_slow_drive_is_the_worst_and_named_with_model_and_serial(with_slow_drive):
    found = with_slow_drive.findings(1)
    first = found.anomalies[0]
    assert (first.kind, first.target, first.components) == ("slow_component", SLOW, (SLOW,))
    assert first.loss_percent == pytest.approx(80.0, abs=2.0)
    assert first.loss_percent_low < 80.0 < first.loss_percent_high
    assert (first.n, first.confidence) == (3, 0.9999)
    assert found.verdict.endswith(first.sentence)
    assert with_slow_drive.component_facts.descriptions[SLOW] in first.also[0]
    # One slow sibling does not make the others fast, or slow.
    assert {one.components for one in about_drives(found)} == {(SLOW,)}
    assert any(said.startswith("8 comparable drives") for said in found.checked)


def test_a_set_with_a_slow_drive_is_reported_once(with_slow_drive):
    found = of_kind(with_slow_drive.findings(1), "adding_drives_loses_bandwidth")
    assert len(found) <= 1


def models(host, model):
    """What is known of a host of which the slow drive has this model; None: no drive has one."""
    facts = host.component_facts
    known = {} if model is None else {**facts.models, SLOW: model}
    return replace(facts, models=known)


@pytest.mark.parametrize(
    "case", ["healthy", "small loss", "slow path", "another model", "no model", "files"]
)
def test_what_is_no_slow_drive(case, with_slow_drive):
    healthy = machine(experiments=STORAGE)
    slow, facts = with_slow_drive.table(1), with_slow_drive.component_facts
    path = {"relation": "other_package", "load": "storage"}
    measured, known = {
        "healthy": (healthy.table(1), facts),
        "small loss": (machine(slow_drive(0.97), experiments=STORAGE).table(1), facts),
        "slow path": (scaled(healthy.table(1), 0.3, **path), facts),
        "another model": (slow, models(with_slow_drive, "another")),
        "no model": (slow, models(with_slow_drive, None)),
        "files": (slow.with_columns(file_backed=True), facts),
    }[case]
    assert about_drives(analyse_host(measured, known)) == []


def test_two_drives_are_too_few_to_find_the_slow_one():
    fault = {"fault": "slow_drive", "drive": "drive-0000-01-00-0", "remaining": 0.2}
    host = machine(fault, name="fleet", experiments=STORAGE)
    assert len(host.topology.drives) == 2
    assert about_drives(host.findings(1)) == []


# Latency.

SIZES = [2**power for power in range(12, 31)]
CORES = {0: 0, 4: 0, 8: 1, 12: 1}


def latencies(slow=lambda pu, size, mode: 1.0, replicates=3, cores=CORES):
    """Latency over sizes, that grows with the size, and times what is slow."""

    def latency(pu, size, mode):
        return size**0.25 * slow(pu, size, mode)

    return Measurements.from_table(sweep(latency, SIZES, cores, replicates=replicates))


def test_cores_that_are_slow_only_when_all_run_show_contention():
    def slow(pu, size, mode):
        return 1.5 if mode == "concurrent" and pu in (0, 8) and size >= 32 * MIB else 1.0

    contention = of_kind(analyse_host(latencies(slow)), "contention_within_node")
    assert {one.components for one in contention} == {("node0",), ("node1",)}
    [second] = [one for one in contention if one.components == ("node1",)]
    assert (second.initiator, second.cells) == ("pu8", (("pu8", "node1"),))
    assert second.loss_percent == pytest.approx(50.0, abs=4.0)
    assert "32 MiB" in second.sentence and "processing unit 12" in second.compared_with


def test_a_single_slow_value_is_no_contention():
    def slow(pu, size, mode):
        return 1.5 if (pu, size, mode) == (0, SIZES[-1], "concurrent") else 1.0

    found = analyse_host(latencies(slow, replicates=1))
    assert of_kind(found, "contention_within_node") == []


def inversions(found):
    return [one for one in of_kind(found, "inversion_with_size") if one.where["mode"] == "serial"]


def inverted(pu, size, mode):
    return 1.0 if pu else 1.6 if size == SIZES[-1] else 0.8


def test_an_inverted_order_at_the_largest_size_is_an_inversion():
    [one] = inversions(analyse_host(latencies(inverted, cores={0: 0, 4: 0})))
    assert (one.initiator, one.target, one.components) == ("pu0", "node0", ("node0",))
    assert "1 GiB" in one.sentence
    assert one.loss_percent == pytest.approx(60.0, abs=5.0)
    # A constant order is none.
    constant = latencies(lambda pu, size, mode: 1.0 if pu else 0.8)
    assert inversions(analyse_host(constant)) == []


@pytest.mark.parametrize(("inverted_in", "reported"), [(1, []), (2, []), (3, [0.9999])])
def test_an_inversion_of_which_the_interval_holds_zero_is_not_reported(inverted_in, reported):
    measured = latencies(lambda pu, size, mode: 1.0 if pu else 0.8, cores={0: 0, 4: 0})
    own = {"point": f"chase=pu0+{SIZES[-1]}", "replicate": [*range(1, inverted_in + 1)]}
    found = analyse_host(scaled(measured, 4.0, **own))
    assert [one.confidence for one in inversions(found)] == reported


def test_percentiles_of_slow_accesses_are_not_compared():
    measured = latencies()
    tail = measured.rows.assign(metric="latency_p99_of_block_means_ns")
    tail["value"] *= np.where(tail["initiator_nodes"] == "1", 3.0, 1.0)
    both = Measurements.from_table(pd.concat([measured.rows, tail], ignore_index=True))
    assert analyse_host(both) == analyse_host(measured)


@pytest.mark.thorough
@pytest.mark.parametrize(("replicates", "at_most"), [(1, 5), (3, 2)])
def test_noise_of_a_virtual_machine_is_no_inversion(replicates, at_most):
    """Of 40 machines, 5 % or 1 % may have an alarm; more than `at_most` have a chance of 1 %."""
    random = np.random.default_rng(7)
    measured = latencies(replicates=replicates, cores={0: 0, 1: 0})
    alarms = 0
    for _ in range(40):
        values = measured.rows["value"] * np.exp(random.normal(0.0, 0.3, len(measured)))
        sweeps = select_latency_size_sweeps(measured.with_columns(value=values))
        kinds = {one.kind for one in find_contention_and_inversions(sweeps)[0].anomalies}
        alarms += AnomalyKind.INVERSION in kinds
    assert alarms <= at_most


def test_a_wrong_slit_is_found_by_latency():
    swapped = {"fault": "swapped_distances", "nodes": [1, 2]}
    wrong, right = (machine(*faults, experiments=["latency_matrix"]) for faults in ([swapped], []))
    [lie] = of_kind(wrong.findings(1), "slit_mismatch")
    assert lie.metric == "latency_ns"
    assert of_kind(right.findings(1), "slit_mismatch") == []


# What is reported twice, and in what order.


def test_equal_anomalies_by_several_kernels_are_merged():
    found = machine(slow_node(0.6), experiments=MEMORY).findings(1).anomalies
    [reported] = [one for one in found if one.components == ("node1",)]
    assert reported.kind == "slow_component" and reported.target in (1, "node1")
    assert any(line.startswith("Also by bandwidth (") for line in reported.also)


def test_a_single_run_of_one_cell_is_a_suspicion():
    way = {"load": "memory", "initiator_nodes": "0", "target": "node3", "kernel": "triad"}
    once = machine(experiments=MEMORY, replicates=1)
    reported = analyse_host(scaled(once.table(1), 0.6, **way), once.component_facts)
    assert reported.anomalies == ()
    assert [one.components for one in reported.suspicions] == [("node0->node3",)]
    assert reported.suspicions[0].advice.count("Measure it again before anything else.") == 1


ONE_FAULT = {
    "node": (slow_node(0.7), ("node1",)),
    "first core of a node": ({"fault": "slow_core", "core": 4, "remaining": 0.7}, ("pu8",)),
    "drive": (slow_drive(0.5), (SLOW,)),
    "link": (
        {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5},
        ("link package1->package0",),
    ),
}


@pytest.mark.parametrize(("fault", "components"), ONE_FAULT.values(), ids=ONE_FAULT)
def test_a_fault_is_one_finding_with_the_name_of_its_part(fault, components):
    experiments = (*MEMORY, *STORAGE, "package_bandwidth", "latency_matrix", "bandwidth_scaling")
    noise = {"between_runs": 0.015, "within_runs": 0.01, "disturbed_runs": 0.03}
    host = machine(
        fault, experiments=experiments, change={"noise": {**noise, "disturbed_loss": 0.5}}
    )
    for seed in (1, 2):
        assert [one.components for one in host.findings(seed).anomalies] == [components]


LINK_OF_L3_DOMAIN = {"fault": "slow_l3_domain", "l3_domain": 5, "remaining": 0.5}


@pytest.mark.parametrize("remaining", [0.06, 0.2, 0.5])
def test_paths_to_the_drives_of_a_node_are_one_finding_however_slow_they_are(remaining):
    """Below a quarter of their capacity, they are slower than a single drive."""
    fault = {"fault": "slow_drive_path", "drive_node": 7, "remaining": remaining}
    host = planned("epyc_7413", "epyc_7413_nps4", [fault], experiments=STORAGE)
    assert [one.components for one in host.findings(1).anomalies] == [("node7",)]


@pytest.mark.parametrize(("remaining", "readers"), [(0.1, "node 7"), (0.5, "all initiators")])
def test_drives_are_not_slow_if_their_port_is(remaining, readers):
    drives = ("drive-0000-71-00-0", "drive-0000-72-00-0")
    fault = {"fault": "slow_port", "drives": [*drives], "remaining": remaining}
    experiments = (*STORAGE, "interference")
    host = planned("epyc_7413", "epyc_7413_nps4", [fault], experiments=experiments)
    (one,) = host.findings(1).anomalies
    assert one.components == ("node7", *drives)
    assert f"The first 2 drives of node 7 are slow together, read from {readers}:" in one.sentence


@pytest.mark.parametrize(
    ("fault", "components"),
    [
        ({**LINK_OF_L3_DOMAIN, "remaining": 0.1}, ("l3_5",)),
        # Its cores get no more from the memory of their node, which has no other L3 domain.
        (LINK_OF_L3_DOMAIN, ("l3_5",)),
        ({**LINK_OF_L3_DOMAIN, "remaining": 0.85}, ("l3_5",)),
        # All L3 domains of the package read from this memory, and reads of drives go into it.
        ({"fault": "slow_node", "node": 5, "remaining": 0.3}, ("node5",)),
        ({"fault": "slow_node", "node": 5, "remaining": 0.1}, ("node5",)),
    ],
)
def test_a_slow_link_of_an_l3_domain_and_slow_memory_are_told_apart(fault, components):
    experiments = (*MEMORY, *STORAGE, "bandwidth_scaling", "l3_domain_bandwidth")
    host = planned("epyc_7413", "epyc_7413_nps4", [fault], experiments=experiments)
    assert [one.components for one in host.findings(1).anomalies] == [components]


def test_a_sparse_matrix_has_no_slit_mismatch_and_no_slow_path():
    host = planned("epyc_7413", "epyc_7413_nps4", experiments=MEMORY)
    measured = host.table(1)
    pairs = measured.rows["initiator"] + measured.rows["target"]
    few = measured.select(pairs.map(lambda name: sum(map(ord, name)) % 7 == 0))
    found = analyse_host(few, host.component_facts)
    assert not of_kind(found, "slit_mismatch") and not of_kind(found, "slow_path")


def test_drives_of_an_unknown_node_are_not_part_of_a_nodes_drive_set(healthy):
    sets = healthy.table(1).where(target_kind="all_of_node").rows
    lost = sets[sets["target"] == "node0drives"]
    lost = lost.assign(target="unknowndrives", target_nodes="", value=lost["value"] * 2.0)
    both = pd.concat([sets, lost], ignore_index=True)
    assert analyse_host(Measurements.from_table(both)).anomalies == ()


# Cores of different kinds.

ROOT = Path(__file__).resolve().parents[3]
HYBRIDS = [
    ROOT / "tests/data/topologies/m1-pro-by-hand.xml",
    REAL_MACHINES / "xml/20em64t-hybrid-1p6c2t+2ca4co1t.xml",
]


def core_latencies(topology: Topology, slow: int) -> Measurements:
    """Latency of each processing unit: efficiency cores take 1.4 times as long, one 1.3 times."""
    kinds = topology.core_kind_of_pu
    slower_kind = kinds[min(topology.core_kinds, key=lambda kind: kind.index).cpus[0]]
    parts = []
    for pu in topology.pus:
        value = 90.0 * (1.4 if kinds[pu] == slower_kind else 1.0) * (1.3 if pu == slow else 1.0)
        own = {"initiator": f"pu{pu}", "point": f"chase=pu{pu}", "threads": 1}
        parts.append(rows(lambda i, j, v=value: v, [0], [0], LATENCY, spread=0.001, **own))
    return Measurements.from_table(table(*parts))


@pytest.mark.parametrize("xml", HYBRIDS, ids=lambda path: path.stem)
def test_cores_are_compared_with_cores_of_their_kind(xml):
    topology = discover_topology(str(xml))
    slow = topology.core_kinds[-1].cpus[3]
    measured = core_latencies(topology, slow)
    found = analyse_host(measured, host_component_facts(topology, {}))
    assert [one.components for one in found.anomalies] == [(f"pu{slow}",)]
    assert found.anomalies[0].loss_percent == pytest.approx(30.0, abs=1.0)
    # The same after the topology was stored and read again.
    stored = topology_from_json(json.loads(json.dumps(topology_to_json(topology))))
    again = analyse_host(measured, host_component_facts(stored, {}))
    assert again.anomalies == found.anomalies
    # Without the kinds all efficiency cores look slow.
    assert len(analyse_host(measured, HostComponentFacts()).anomalies) > 1
