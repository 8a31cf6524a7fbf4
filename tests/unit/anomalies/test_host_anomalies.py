"""Anomalies of a host, from its tidy table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
import synthetic_latency

from chaosity.anomalies.anomaly_results import AnomalyKind
from chaosity.anomalies.host_anomalies import HostComponentFacts, analyse_host, host_component_facts
from chaosity.anomalies.latency_sweep_anomalies import (
    find_contention_and_inversions,
    select_latency_size_sweeps,
)
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import COLUMNS
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_json import topology_from_json, topology_to_json
from chaosity.topology.topology_model import Topology
from shipped_data import REAL_MACHINES

SLOW = "drive-0000-11-00-0"


def machine(**keys):
    return synthetic.Machine("h", ((0, 1), (2, 3)), {0: 2, 1: 2, 2: 2, 3: 2}, **keys)


def analysed(found, tidy=None, components=None):
    components = found.components() if components is None else components
    tidy = found.tidy() if tidy is None else tidy
    return analyse_host(Measurements.from_table(tidy), host_component_facts(None, components))


def about_drives(found):
    """Anomalies that suspect a drive."""
    return [
        one
        for one in found.anomalies
        if any(name.startswith(("drive-", "file")) for name in one.components)
    ]


def of_kind(found, kind):
    assert kind in tuple(AnomalyKind)
    return [one for one in found.anomalies if one.kind == kind]


def test_a_slow_drive_is_the_worst_and_named_with_model_and_serial():
    (first, *others) = about_drives(found := analysed(machine(slow={SLOW: 0.2})))
    assert found.anomalies[0] == first
    assert (first.kind, first.target, first.components) == ("slow_component", SLOW, (SLOW,))
    assert first.loss_percent == pytest.approx(80.0, abs=2.0)
    assert first.loss_percent_low < 80.0 < first.loss_percent_high
    assert (first.n, first.confidence) == (3, 0.9999)
    assert first.sentence.startswith(f"{SLOW} is slow: 1.3")
    assert "Corsair MP600 PRO, serial S10, node 1" in first.also[0]
    assert "lspci" in first.advice
    assert found.verdict.endswith(first.sentence)
    # One slow sibling does not make the others fast, or slow.
    assert others == []
    assert any(
        said.startswith("8 comparable drives (smallest detectable loss ") for said in found.checked
    )


def test_healthy_drives_have_no_anomalies():
    assert about_drives(analysed(machine())) == []


def test_a_small_difference_is_not_reported():
    assert about_drives(analysed(machine(slow={SLOW: 0.97}))) == []


def test_a_path_that_is_slow_for_all_drives_is_not_a_drive_anomaly():
    found = machine()
    tidy = found.tidy()
    tidy.loc[(tidy["relation"] == "other_package") & (tidy["load"] == "storage"), "value"] *= 0.3
    assert about_drives(analysed(found, tidy)) == []


def test_drives_of_different_models_are_not_compared():
    found = machine(slow={SLOW: 0.2})
    components = found.components()
    components[SLOW]["model"] = "another"
    assert about_drives(analysed(found, components=components)) == []


def test_drives_of_unknown_model_are_not_compared():
    assert about_drives(analysed(machine(slow={SLOW: 0.2}), components={})) == []


def test_two_drives_are_too_few_to_find_the_slow_one():
    found = synthetic.Machine("h", ((0,),), {0: 2}, slow={"drive-0000-01-00-0": 0.2})
    assert about_drives(analysed(found)) == []


def test_a_file_in_place_of_a_drive_is_not_tested():
    found = analysed(synthetic.small(), components={"file0": {"component": "drive", "model": "f"}})
    assert about_drives(found) == []


def test_a_single_replicate_has_less_confidence():
    first = about_drives(analysed(machine(replicates=1, slow={SLOW: 0.2})))[0]
    assert (first.components, first.n) == ((SLOW,), 1)
    assert first.confidence <= 0.95


def test_the_slow_one_of_thirty_drives_and_its_drive_sets_are_reported_once():
    found = synthetic.epyc()
    found.slow = {"drive-0000-51-01-0": 0.2}
    told = analysed(found)
    assert told.anomalies[0].components == ("drive-0000-51-01-0",)
    (one,) = of_kind(told, "adding_drives_loses_bandwidth")
    assert one.observed < one.expected
    assert ", a part of these drives: " in one.sentence
    assert one.also[0].startswith("The same holds for ") and "other sets" in one.also[0]
    assert len(one.cells) > 1


def test_drive_sets_that_add_up_have_no_anomalies():
    found = synthetic.Machine("h", ((0,), (1,)), {0: 2, 1: 2})
    assert of_kind(analysed(found), "adding_drives_loses_bandwidth") == []


# Latency.


def latency(tidy, found):
    return analyse_host(
        Measurements.from_table(tidy),
        host_component_facts(topology_from_json(synthetic_latency.topology(found)), {}),
    )


def test_cores_that_are_slow_only_when_all_run_show_contention():
    found = synthetic_latency.epyc()
    contention = of_kind(latency(synthetic_latency.tidy(found), found), "contention_within_node")
    assert {one.components for one in contention} == {(f"node{node}",) for node in range(8)}
    by = {one.components[0]: one for one in contention}
    assert by["node2"].initiator == "pu12"
    assert by["node2"].cells == (("pu12", "node2"),)
    assert by["node2"].loss_percent == pytest.approx(48.0, abs=4.0)
    assert "with working sets of 32 MiB or more" in by["node2"].sentence
    assert "pu15 of the same node" in by["node2"].compared_with


def test_a_single_slow_value_is_no_contention():
    found = synthetic_latency.small(replicates=1)
    tidy = synthetic_latency.tidy(found).assign(value=100.0)
    largest = tidy["factors"].str.contains(f'"bytes": {synthetic_latency.SIZES[-1]}')
    together = largest & tidy["factors"].str.contains('"mode": "concurrent"')
    tidy.loc[together & (tidy["initiator"] == "pu0"), "value"] *= 1.5
    assert of_kind(latency(tidy, found), "contention_within_node") == []


def test_an_inverted_order_at_the_largest_size_is_an_inversion():
    found = synthetic_latency.small()
    tidy = synthetic_latency.tidy(found)
    sweep = tidy["experiment"] == "latency_by_size"
    largest = tidy["factors"].str.contains(f'"bytes": {synthetic_latency.SIZES[-1]}')
    tidy.loc[sweep & (tidy["initiator"] == "pu0"), "value"] *= 0.8
    tidy.loc[sweep & largest & (tidy["initiator"] == "pu0"), "value"] *= 2.0
    (one, *_) = [
        one
        for one in of_kind(latency(tidy, found), "inversion_with_size")
        if one.where["mode"] == "serial"
    ]
    assert (one.initiator, one.target, one.components) == ("pu0", "node0", ("node0",))
    assert "Inversion at 1 GiB on node 0: pu0" in one.sentence
    assert one.loss_percent == pytest.approx(60.0, abs=5.0)


def test_an_inversion_of_which_the_interval_holds_zero_is_not_told():
    found = synthetic_latency.small()
    tidy = synthetic_latency.tidy(found)
    first = (tidy["initiator"] == "pu0") & tidy["factors"].str.contains('"mode": "serial"')
    largest = tidy["factors"].str.contains(f'"bytes": {synthetic_latency.SIZES[-1]}')
    tidy.loc[first, "value"] *= 0.8
    for replicate, told in ((1, []), (2, []), (3, [0.9999])):
        tidy.loc[first & largest & (tidy["replicate"] == replicate), "value"] *= 4.0
        found_here = of_kind(latency(tidy, found), "inversion_with_size")
        serial = [one for one in found_here if one.where["mode"] == "serial"]
        assert [one.confidence for one in serial] == told


def test_percentiles_of_slow_accesses_are_not_compared():
    found = synthetic_latency.epyc()
    tidy = synthetic_latency.tidy(found)
    tail = tidy[tidy["metric"] == "latency_ns"].assign(metric="latency_p99_of_block_means_ns")
    tail.loc[tail["initiator_nodes"] == "1", "value"] *= 3.0
    assert len(tail) and latency(pd.concat([tidy, tail]), found) == latency(tidy, found)


@pytest.mark.thorough
@pytest.mark.parametrize(("replicates", "at_most"), [(1, 9), (3, 3)])
def test_noise_of_a_virtual_machine_is_no_inversion(replicates, at_most):
    """Of 100 machines, 5 or 1 may have a false alarm; more than `at_most` have a chance of 3 %."""
    random = np.random.default_rng(7)
    tidy = synthetic_latency.tidy(synthetic_latency.small(replicates))
    tidy = tidy[tidy["experiment"] == "latency_by_size"]
    alarms = 0
    for _ in range(100):
        noisy = tidy.assign(value=tidy["value"] * np.exp(random.normal(0.0, 0.3, len(tidy))))
        sweeps = select_latency_size_sweeps(Measurements.from_table(noisy))
        kinds = {one.kind for one in find_contention_and_inversions(sweeps)[0].anomalies}
        alarms += AnomalyKind.INVERSION in kinds
    assert alarms <= at_most


def test_a_constant_order_is_not_an_inversion():
    found = synthetic_latency.epyc()
    assert of_kind(latency(synthetic_latency.tidy(found), found), "inversion_with_size") == []


def test_a_wrong_slit_is_found_by_latency():
    found = synthetic_latency.epyc()
    lies = of_kind(latency(synthetic_latency.tidy(found, lies=True), found), "slit_mismatch")
    assert len(lies) == 1
    assert lies[0].metric == "latency_ns"
    assert of_kind(latency(synthetic_latency.tidy(found), found), "slit_mismatch") == []


# What is told twice, and in what order.


def slow_node(share=0.7, **keys):
    """A machine of which the memory of node 1 is slow by every kernel."""
    found = machine(**keys)
    tidy = found.tidy()
    tidy.loc[(tidy["load"] == "memory") & (tidy["target"] == "node1"), "value"] *= share
    return found, tidy


def test_equal_anomalies_by_several_kernels_are_merged():
    told = [one for one in analysed(*slow_node()).anomalies if one.components == ("node1",)]
    assert [one.kind for one in told] == ["slow_component"]
    assert told[0].target in (1, "node1")
    assert any(line.startswith("Also by bandwidth (") for line in told[0].also)


def test_an_asymmetry_is_merged_with_its_slow_path():
    found = machine()
    tidy = found.tidy()
    way = (tidy["load"] == "memory") & (tidy["initiator_nodes"] == "0")
    tidy.loc[way & (tidy["target"] == "node3"), "value"] *= 0.6
    told = analysed(found, tidy)
    (one,) = [one for one in told.anomalies if one.components == ("node0->node3",)]
    assert one.kind == "slow_path"
    assert of_kind(told, "asymmetry") == []
    assert any("worse than the opposite direction" in line for line in one.also)


def test_the_worst_anomaly_is_first_for_all_metrics():
    told = analysed(*slow_node(slow={SLOW: 0.2})).anomalies
    losses = [one.loss_as_share_of_better_value for one in told]
    assert losses == sorted(losses, reverse=True)
    places = [one.components for one in told]
    assert places.index((SLOW,)) < places.index(("node1",))


def test_a_table_without_comparable_rows_is_not_tested():
    found = synthetic.small()
    told = analysed(found)
    assert told.anomalies == () or about_drives(told) == []
    empty = analyse_host(Measurements.from_table(found.tidy().iloc[:0]), HostComponentFacts())
    assert empty.verdict.startswith("Not tested: there are no comparable measurements")


def test_host_parts_are_from_components_and_topology():
    found = machine()
    known = host_component_facts(topology_from_json(found.topology()), found.components())
    assert known.models[SLOW] == "Corsair MP600 PRO"
    assert known.descriptions[SLOW] == "Corsair MP600 PRO, serial S10, node 1"
    assert host_component_facts(None, None) == HostComponentFacts()


def test_a_sparse_matrix_has_no_slit_mismatch_and_no_slow_path():
    machine = synthetic.epyc()
    tidy = machine.tidy()
    memory = tidy["load"] == "memory"
    pairs = (tidy["initiator"] + tidy["target"]).map(lambda name: sum(map(ord, name)) % 7)
    found = analyse_host(
        Measurements.from_table(tidy[~memory | (pairs == 0)]),
        host_component_facts(topology_from_json(machine.topology()), {}),
    )
    assert not [one for one in found.anomalies if one.kind == "slit_mismatch"]
    slow = [one for one in found.anomalies if one.kind == "slow_path"]
    assert not [one for one in slow if one.where["load"] == "memory"]


def test_drives_of_an_unknown_node_are_not_part_of_a_nodes_drive_set():
    rows = synthetic.epyc().tidy()
    rows = rows[
        (rows["target_kind"] == "all_of_node") & (rows["experiment"] == "storage_bandwidth")
    ]
    lost = rows[rows["target"] == "node0drives"].assign(
        target="unknowndrives", target_nodes="", drives=2, value=lambda t: t["value"] * 2.0
    )
    assert analyse_host(Measurements.from_table(pd.concat([rows, lost]))).anomalies == ()


# Cores of different kinds.

ROOT = Path(__file__).resolve().parents[3]
HYBRIDS = [
    ROOT / "tests/data/topologies/m1-pro-by-hand.xml",
    REAL_MACHINES / "xml/20em64t-hybrid-1p6c2t+2ca4co1t.xml",
]


def core_latencies(topology: Topology, slow: int) -> pd.DataFrame:
    """Latency of each processing unit: efficiency cores take 1.4 times as long, one 1.3 times."""
    kinds = topology.core_kind_of_pu
    slower_kind = kinds[min(topology.core_kinds, key=lambda kind: kind.index).cpus[0]]
    rows = [
        {
            "host": "h",
            "configuration": "default",
            "experiment": "latency_matrix",
            "point": f"chase=pu{pu}",
            "replicate": replicate,
            "status": "valid",
            "load": "chase",
            "benchmark": "chaosity_latency",
            "category": "memory_latency",
            "kernel": "chase",
            "initiator": f"pu{pu}",
            "initiator_kind": "pu",
            "initiator_nodes": "0",
            "threads": 1,
            "target": "node0",
            "target_kind": "node",
            "target_nodes": "0",
            "file_backed": False,
            "relation": "same_node",
            "metric": "latency_ns",
            "factors": "{}",
            "levels": "{}",
            "value": 90.0
            * (1.4 if kinds[pu] == slower_kind else 1.0)
            * (1.3 if pu == slow else 1.0)
            * (1.0 + 0.001 * ((pu + replicate) % 3)),
        }
        for pu in topology.pus
        for replicate in (1, 2, 3)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


@pytest.mark.parametrize("xml", HYBRIDS, ids=lambda path: path.stem)
def test_cores_are_compared_with_cores_of_their_kind(xml):
    topology = discover_topology(str(xml))
    performance = topology.core_kinds[-1].cpus
    slow = performance[3]
    tidy = core_latencies(topology, slow)
    found = analyse_host(Measurements.from_table(tidy), host_component_facts(topology, {}))
    assert [one.components for one in found.anomalies] == [(f"pu{slow}",)]
    assert found.anomalies[0].loss_percent == pytest.approx(30.0, abs=1.0)
    # The same after the topology was stored and read again.
    stored = topology_from_json(json.loads(json.dumps(topology_to_json(topology))))
    assert (
        analyse_host(Measurements.from_table(tidy), host_component_facts(stored, {})).anomalies
        == found.anomalies
    )
    # Without the kinds all efficiency cores look slow.
    assert len(analyse_host(Measurements.from_table(tidy), HostComponentFacts()).anomalies) > 1
