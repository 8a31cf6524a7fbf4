"""Anomalies of published machines."""

from __future__ import annotations

import pytest

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.anomalies.matrix_anomalies import analyse_matrix
from chaosity.store.csv_tables import read_matrix_csv, read_published_csv
from chaosity.store.measurements import Measurements
from shipped_data import PUBLISHED_TABLES

TWO = (("local", "remote"), None)
DIE = (("local", "same package", "other package"), ((0, 1), (2, 3)))
MATRICES = {
    "mlc_hyrise_koroneia_bandwidth_MBps": TWO,
    "mlc_vsc_broadwell_e5-2680v4_cod4_bandwidth_MBps": DIE,
    "mlc_vsc_broadwell_e5-2680v4_cod4_idle_latency_ns": DIE,
    "nes_penguin_stream_triad_5gb_8t": (("local", "near", "far"), None),
    **{
        f"mlc_vsc_{machine}_{metric}": TWO
        for machine in (
            "genius_cascadelake",
            "genius_skylake",
            "skylake_gold6132",
            "thinking_haswell",
            "thinking_ivybridge",
        )
        for metric in ("bandwidth_MBps", "idle_latency_ns")
    },
}


def matrix(name):
    return read_matrix_csv(
        PUBLISHED_TABLES / f"{name}.csv", "latency" if name.endswith("_ns") else "bandwidth"
    )


@pytest.mark.parametrize("name", MATRICES)
def test_published_matrices_have_structure_and_no_anomaly(name):
    found = analyse_matrix(matrix(name))
    assert (tuple(one.name for one in found.groups), found.packages) == MATRICES[name]
    assert found.anomalies == ()


@pytest.mark.parametrize("metric", ["bandwidth_MBps", "idle_latency_ns"])
def test_a_published_machine_with_many_nodes_has_no_anomalies(metric):
    found = analyse_matrix(matrix(f"mlc_vsc_wice_icelake_8360y_{metric}"))
    assert found.anomalies == ()


@pytest.mark.parametrize("metric", ["bandwidth_MBps", "idle_latency_ns"])
def test_the_packages_of_a_broadwell_can_be_given(metric):
    measured = matrix(f"mlc_vsc_broadwell_e5-2680v4_cod4_{metric}")
    found = analyse_matrix(measured, ((0, 1), (2, 3)))
    assert (found.anomalies, found.packages) == ((), ((0, 1), (2, 3)))
    wrong = analyse_matrix(measured, ((0, 2), (1, 3)))
    assert [one.kind for one in wrong.anomalies] == ["slit_mismatch"]


def test_the_structural_pattern_of_a_broadwell_is_noted():
    found = analyse_matrix(matrix("mlc_vsc_broadwell_e5-2680v4_cod4_bandwidth_MBps"))
    (note,) = [note for note in found.notes if "the same pattern recurs across the machine" in note]
    assert "0->1" in note and "2->3" in note


def sweep():
    path = PUBLISHED_TABLES / "numa_bench_epyc7a53_latency_sweep_ns.csv"
    return analyse_host(Measurements.from_table(read_published_csv(path, "numa_bench", "x")))


def test_half_of_the_cores_of_an_epyc_show_contention():
    found = [one for one in sweep().anomalies if one.kind == "contention_within_node"]
    assert {one.components[0]: one.initiator for one in found} == {
        "node0": "pu1",
        "node1": "pu17",
        "node2": "pu33",
        "node3": "pu49",
    }
    assert all(25.0 < one.loss_percent < 40.0 for one in found)
    assert all(one.confidence <= 0.95 for one in found)
    assert all("128 MiB" in one.sentence for one in found)
    assert all("the times is 1.0" in one.sentence or "is 0.99" in one.sentence for one in found)


def test_the_inverted_order_of_two_cores_of_an_epyc_in_a_single_run_is_a_suspicion():
    (one,) = sweep().suspicions
    assert one.kind == "inversion_with_size"
    assert one.doubt.startswith("By chance, 13 % of healthy hosts show such a loss")
    assert (one.components, one.initiator) == (("node0",), "pu9")
    assert one.sentence.startswith("Inversion at 16 GiB on node 0")


def test_the_epyc_has_no_anomaly_when_each_core_runs_alone():
    found = sweep()
    reported = [*found.anomalies, *found.suspicions]
    assert {one.where["mode"] for one in reported} == {"concurrent"}
    assert (len(found.anomalies), len(found.suspicions)) == (4, 1)


def test_a_drive_that_its_own_node_reads_slower_in_a_single_run_is_a_suspicion():
    path = PUBLISHED_TABLES / "fio_issue141_nvme_node1_seqread4k_qd1.csv"
    (one,) = analyse_host(
        Measurements.from_table(read_published_csv(path, "fio_numa", "x"))
    ).suspicions
    assert (one.kind, one.initiator) == ("remote_better_than_local", "node0")
    assert one.loss_percent == pytest.approx(100 * (1 - 93 / 189), abs=0.1)
    assert one.confidence <= 0.95


def test_published_cores_of_different_kinds_are_not_compared():
    path = PUBLISHED_TABLES / "chaosity_table1_m1pro_GBps.csv"
    found = analyse_host(Measurements.from_table(read_published_csv(path, "table_1", "x")))
    assert found.anomalies == ()
