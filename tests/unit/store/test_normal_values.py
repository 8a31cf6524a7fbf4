"""A host is compared with published values of its processor and with other hosts' profiles."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from chaosity.documents.checked_yaml import check_document, read_yaml
from chaosity.documents.reference_data import ProcessorsDocument
from chaosity.documents.shipped_documents import PROCESSORS_FOLDER, read_document, yaml_file_names
from chaosity.errors import UserError
from chaosity.report.overview import compare_equal_hosts
from chaosity.report.page import ReportSummary
from chaosity.store.values_normal_for_processor import (
    BANDWIDTH,
    LATENCY,
    compare_with_published_values,
    own_memory_value_by_kernel,
)
from machines import planned, shipped_topology
from shipped_data import PUBLISHED_TABLES
from simulated_fleet import write_fleet
from table_rows import scaled

MODEL = "Intel(R) Xeon(R) Platinum 8360Y CPU @ 2.40GHz"
TOPOLOGY = shipped_topology("xeon_8358")
NAMES = ["memory_bandwidth", "package_bandwidth", "latency_matrix"]


@pytest.fixture(scope="module")
def host():
    return planned("xeon_8358", experiments=NAMES)


def at_published_rate(host, share):
    """The table of a host whose reads give this share of the published rate."""
    own = own_memory_value_by_kernel(host.true_table, BANDWIDTH)["read"]
    return scaled(host.true_table, share * 175.80175e9 / own, metric=BANDWIDTH)


def test_every_shipped_value_has_a_source_and_the_form_of_the_schema():
    for name in yaml_file_names(PROCESSORS_FOLDER):
        document = read_document(PROCESSORS_FOLDER, name, ProcessorsDocument, "test")
        models = [(each["model"], each["nodes_per_package"]) for each in document["values"]]
        assert len(models) == len(set(models)) >= 1
        assert "kernel" in document or not any(BANDWIDTH in each for each in document["values"])
    document = read_yaml(PROCESSORS_FOLDER / f"{name}.yaml") | {"source": ""}
    with pytest.raises(UserError, match="source"):
        check_document(document, ProcessorsDocument, "test")


def test_shipped_values_are_those_of_the_published_tables():
    found = read_document(PROCESSORS_FOLDER, "vsc_intel_mlc", ProcessorsDocument, "test")["values"]
    tables = {"8360Y": "wice_icelake_8360y", "6240": "genius_cascadelake", "6140": "genius_skylake"}
    tables |= {"v2": "thinking_ivybridge", "v3": "thinking_haswell", "6132": "skylake_gold6132"}
    tables |= {"v4": "broadwell_e5-2680v4_cod4"}
    assert len(found) == len(tables)
    for each in found:
        name = tables[each["model"].split()[-1]]
        for key, unit in ((BANDWIDTH, "bandwidth_MBps"), (LATENCY, "idle_latency_ns")):
            path = PUBLISHED_TABLES / f"mlc_vsc_{name}_{unit}.csv"
            table = pd.read_csv(path, index_col=0).to_numpy()
            scale = 1e6 if key == BANDWIDTH else 1.0
            assert each[key] == pytest.approx(scale * np.median(np.diag(table)))


def test_the_latency_of_the_epyc_7a53_is_the_median_of_the_published_cores():
    [found] = read_document(PROCESSORS_FOLDER, "numa_mem_bench", ProcessorsDocument, "test")[
        "values"
    ]
    rows = pd.read_csv(PUBLISHED_TABLES / "numa_bench_epyc7a53_latency_sweep_ns.csv")
    chosen = rows[(rows["mode"] == "serial") & (rows["size_MB"] == 4096)]
    assert found[LATENCY] == pytest.approx(chosen["latency_ns"].median(), abs=0.5)
    assert (chosen["cpu_node"] == chosen["mem_node"]).all() and len(chosen) == 8


@pytest.mark.parametrize(("nodes", "normal"), [("nps1", (None, 134)), ("nps4", (41.8601e9, 125))])
def test_a_value_of_an_amd_processor_counts_in_its_firmware_mode(nodes, normal):
    topology = shipped_topology(f"epyc_7413_{nodes}")
    host = planned("epyc_7413", f"epyc_7413_{nodes}", experiments=NAMES)
    found = compare_with_published_values(
        [host.true_table], "AMD EPYC 7742 64-Core Processor", topology
    )
    assert {each.metric: each.normal for each in found} == {
        metric: value for metric, value in zip((BANDWIDTH, LATENCY), normal, strict=True) if value
    }
    assert {each.kernel for each in found if each.metric == BANDWIDTH} <= {"triad"}


def test_other_processors_and_numbers_of_nodes_do_not_compare(host):
    for model in (None, "AMD EPYC 7413", "Intel(R) Xeon(R) Platinum 8360YX CPU"):
        assert compare_with_published_values([host.true_table], model, TOPOLOGY) == []
    four = shipped_topology("epyc_7413_nps4")
    assert compare_with_published_values([host.true_table], MODEL, four) == []


def test_equal_hosts_that_are_all_slow_are_reported(host, tmp_path):
    tables = [at_published_rate(host, share) for share in (0.5, 0.9, 0.7)]
    [bandwidth, _] = compare_with_published_values(tables, MODEL, TOPOLOGY)
    assert (bandwidth.loss, bandwidth.is_clearly_worse) == (pytest.approx(0.3), True)
    write_fleet(tmp_path, host, 4, {}, cpu_model=MODEL)
    paths = list(tmp_path.glob("*/*/summary.json"))
    [group] = compare_equal_hosts({path: ReportSummary.from_file(path) for path in paths})
    [reported, _] = [each for each in group.statements if "normal for this processor" in each.text]
    assert reported.text.startswith("Median of 4 hosts: node bandwidth ")
