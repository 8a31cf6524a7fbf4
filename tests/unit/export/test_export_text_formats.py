"""Readers of each format take the exported text, and each text says where its values are from."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from chaosity.cli import chaosity
from chaosity.errors import UserError
from chaosity.topology.topology_discovery import discover_topology
from table_rows import BANDWIDTH, LATENCY, drive_rows, folder_of, rows, table, whole_map

EPYC = Path(__file__).resolve().parents[2] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"


def exported(form: str, folder: Path) -> str:
    found = CliRunner().invoke(chaosity, ["export", form, str(folder)])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.fixture(scope="module")
def epyc(tmp_path_factory) -> Path:
    return whole_map(EPYC, tmp_path_factory.mktemp("measured") / "r")


@pytest.mark.parametrize("form", ["fio", "openmetrics", "reframe", "roofline", "slurm"])
def test_a_map_without_values_is_refused(form, tmp_path):
    other = table(rows(lambda i, j: 1.0, [0], [1], "other_metric"))
    found = CliRunner().invoke(chaosity, ["export", form, str(folder_of(EPYC, other, tmp_path))])
    assert isinstance(found.exception, UserError)


def test_duckdb_reads_the_roofline_with_types(epyc, tmp_path):
    (tmp_path / "roofline.csv").write_text(exported("roofline", epyc))
    found = duckdb.connect().execute(
        "SELECT initiator, target, kernel, bandwidth_bytes_per_second, low_bytes_per_second, n "
        "FROM read_csv(?, strict_mode = true) ORDER BY ALL",
        [str(tmp_path / "roofline.csv")],
    )
    read = found.fetchall()
    assert len(read) == 64
    initiator, target, kernel, bandwidth, low, n = read[1]
    assert (initiator, target, kernel, n) == ("node0", "node1", "triad", 3)
    assert bandwidth == pytest.approx(32e9) and low < bandwidth


def packages(tmp_path):
    """Results with the bandwidth of a package on its own memory and on that of the other."""
    whole = {"initiator": "package0", "initiator_kind": "package", "initiator_nodes": "0,1,2,3"}
    measured = [
        {**row, **whole, "kernel": kernel, "point": f"{target} {kernel}", "target": target}
        | {"target_kind": "nodes", "target_nodes": nodes, "value": row["value"] * share}
        for target, nodes, share in (("nodes0-3", "0,1,2,3", 1.0), ("nodes4-7", "4,5,6,7", 0.5))
        for kernel in ("read", "fill_nt")
        for row in rows(lambda i, j: 137e9, [0], [0], BANDWIDTH)
    ]
    near = rows(lambda i, j: 30e9, [0, 1], [0, 1], BANDWIDTH)
    return folder_of(EPYC, table(near, measured), tmp_path)


def test_the_roofline_has_packages_on_all_of_their_memory(tmp_path):
    lines = exported("roofline", packages(tmp_path)).splitlines()
    own = next(line for line in lines if line.startswith("package,package0,nodes0-3,"))
    assert ",137000000000.0," in own
    assert any(line.startswith("package,package0,nodes4-7,") for line in lines)


def test_show_prints_packages_with_each_kernel(tmp_path):
    shown = CliRunner().invoke(chaosity, ["show", str(packages(tmp_path))]).output
    [own] = [line for line in shown.splitlines() if "package0" in line and "nodes0-3" in line]
    assert own.split()[-2:] == ["137", "137"]
    assert "read" in shown and "fill_nt" in shown


def test_prometheus_reads_the_map(epyc):
    text = exported("openmetrics", epyc)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    latency = families["chaosity_map_memory_latency_seconds"]
    assert (latency.type, latency.unit, len(latency.samples)) == ("gauge", "seconds", 64)
    values = {
        (sample.labels["initiator"], sample.labels["target"]): sample.value
        for sample in latency.samples
    }
    assert values["node0", "node4"] == pytest.approx(192e-9)
    drives = families["chaosity_map_drive_bandwidth_low_bytes_per_second"].samples
    assert len(drives) == 240 and all(0 < sample.value < 7e9 for sample in drives)
    assert drives[0].labels["origin"] == "measured"
    # The textfile collector of node_exporter reads Prometheus's own format.
    assert sum(len(family.samples) for family in plain_families(text)) == 3 * (64 + 64 + 240) + 1


def test_names_of_hosts_cannot_add_keys(tmp_path):
    tidy = table(rows(lambda i, j: 90.0, [0], [0], LATENCY))
    folder = folder_of(EPYC, tidy.assign(host='h"\nkind: Pod'), tmp_path)
    assert list(yaml.safe_load(exported("reframe", folder))) == ["ChaosityMap"]


def test_a_file_gives_a_host_no_feature_of_drives(tmp_path):
    topology = discover_topology(str(EPYC))
    memory = rows(lambda i, j: 40e9, [0], [0], BANDWIDTH)
    files = ({**row, "target": "file0"} for row in drive_rows(lambda node, drive: 7e9, topology))
    text = exported("slurm", folder_of(EPYC, table(memory, files), tmp_path))
    assert "local_memory_ge_20GBps" in text and "drive_ge_" not in text
