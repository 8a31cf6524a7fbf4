"""The programs of hwloc read the exported XML and answer from it."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

from chaosity.errors import UserError
from chaosity.export.hwloc_xml_with_measurements import export_hwloc_xml
from chaosity.export.main_matrices import read_measured_host
from chaosity.topology.topology_discovery import discover_topology
from machines import refusal_by_chaosity, run_chaosity
from shipped_data import REAL_MACHINES
from table_rows import BANDWIDTH, folder_of, measured, rows, table

ROOT = Path(__file__).resolve().parents[3]
EPYC = ROOT / "tests/data/topologies/epyc-7413-2s-nps4-30drives.xml"
HBM = ROOT / "tests/data/topologies/xeon-max-2s-hbm-flat.xml"
LSTOPO = shutil.which("lstopo-no-graphics") or shutil.which("lstopo") or "lstopo"


def answer(program: str, *arguments: str) -> str:
    found = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    assert not found.stderr
    return found.stdout.strip()


def best(file: Path, attribute: str, cpu: int, *more: str) -> int:
    """OS index of the node that hwloc-calc takes for the best of all from a processing unit."""
    asked = ("-i", str(file), "-p", "--po", *more, "--best-memattr", attribute, f"pu:{cpu}")
    return int(answer("hwloc-calc", *asked))


def exported(folder: Path) -> Path:
    output = folder / "out.xml"
    run_chaosity("export", "hwloc", folder, "--output", output)
    return output


def synthetic(text: str, file: Path) -> Path:
    subprocess.run([LSTOPO, "-i", text, "--of", "xml", str(file)], check=True)
    return file


class Drawn:
    """A value for each pair of nodes, drawn once; no order of nodes could give it by chance."""

    def __init__(self, low: float, high: float, seed: int) -> None:
        self.random, self.low, self.high = random.Random(seed), low, high
        self.values: dict[tuple[int, int], float] = {}

    def __call__(self, initiator: int, target: int) -> float:
        drawn = self.random.uniform(self.low, self.high)
        return self.values.setdefault((initiator, target), drawn)

    def best(self, initiator: int, *, least: bool) -> int:
        own = {target: value for (row, target), value in self.values.items() if row == initiator}
        return (min if least else max)(own, key=own.__getitem__)


def check_answers(xml: Path, folder: Path, at_most: int = 8) -> int:
    """Nodes' best targets are those that were drawn, asked from their first and last unit."""
    bandwidth, latency = Drawn(5e9, 50e9, 1), Drawn(80, 400, 2)
    output = exported(measured(xml, folder, bandwidth, latency))
    asked = 0
    for node in discover_topology(str(xml)).initiator_nodes[-at_most:]:
        for cpu in {node.cpus[0], node.cpus[-1]}:
            found = best(output, "bandwidth", cpu, "--local-memory-flags", "4")
            assert found == bandwidth.best(node.os_index, least=False)
            found = best(output, "latency", cpu, "--local-memory-flags", "4")
            assert found == latency.best(node.os_index, least=True)
            asked += 2
    return asked


def test_eight_nodes_answer_as_measured(tmp_path):
    assert check_answers(EPYC, tmp_path / "r") == 32


def test_nodes_without_units_answer_as_measured(tmp_path):
    assert check_answers(HBM, tmp_path / "r") == 8


@pytest.mark.thorough
@pytest.mark.parametrize("xml", sorted(REAL_MACHINES.glob("xml/*.xml")), ids=lambda path: path.stem)
def test_real_machines_answer_as_measured(xml, tmp_path):
    assert check_answers(xml, tmp_path / "r", at_most=3) > 0


@pytest.mark.parametrize(("stacked", "node"), [(90e9, 2), (20e9, 0)])
def test_hwloc_names_the_best_local_node(tmp_path, stacked, node):
    folder = measured(HBM, tmp_path / "r", lambda i, j: stacked if j >= 2 else 40e9)
    output = exported(folder)
    assert best(output, "bandwidth", 0, "--local-memory") == node
    said = answer("hwloc-info", "-i", str(output), "--best-memattr", "bandwidth", "-p", "pu:0")
    assert f"NUMANode L#{[0, 2, 1, 3].index(node)} " in f"{said.splitlines()[0]} "


def claimed(xml: Path, file: Path, *claims: tuple[str, int, str]) -> Path:
    """A machine whose firmware claims bandwidths: units, target's OS index, MiB/s."""
    root = etree.parse(str(xml)).getroot()
    gp = {
        item.get("os_index"): item.get("gp_index")
        for item in root.iterfind(".//object[@type='NUMANode']")
    }
    claim = etree.SubElement(root, "memattr", name="Bandwidth", flags="5")
    for cpus, target, value in claims:
        etree.SubElement(
            claim,
            "memattr_value",
            target_obj_type="NUMANode",
            value=value,
            target_obj_gp_index=gp[str(target)],
            initiator_cpuset=cpus,
        )
    etree.ElementTree(root).write(str(file))
    return file


def test_firmwares_claims_do_not_compete_with_measurements(tmp_path):
    two = synthetic("package:2 [numa] core:2 pu:1", tmp_path / "two.xml")
    xml = claimed(two, tmp_path / "hmat.xml", ("0x1", 1, "99999999"), ("0xc", 0, "77"))
    assert best(xml, "bandwidth", 0, "--local-memory-flags", "4") == 1
    # hwloc 2.12 names no best node if one of them has no value.
    from_node_0 = rows(lambda i, j: 30e9 if j == 0 else 10e9, [0], [0, 1], BANDWIDTH)
    xml_text, notes = export_hwloc_xml(
        read_measured_host(folder_of(xml, table(from_node_0), tmp_path / "r"))
    )
    (tmp_path / "out.xml").write_text(xml_text)
    assert best(tmp_path / "out.xml", "bandwidth", 0, "--local-memory-flags", "4") == 0
    # Nothing was measured from node 1, so what firmware claims of it stays.
    assert "99999999" not in xml_text and 'value="77"' in xml_text
    assert "Bandwidth: 1 claim of the firmware removed" in " ".join(notes)
    assert "Bandwidth: 1 claim of the firmware kept" in " ".join(notes)


def test_missing_values_are_noted(tmp_path):
    def value(initiator: int, target: int) -> float | None:
        return None if (initiator, target) == (0, 5) else 30e9

    _, notes = export_hwloc_xml(read_measured_host(measured(EPYC, tmp_path / "r", value)))
    said = "\n".join(notes)
    assert "63 values written, medians of triad of memory_bandwidth, tool." in said
    assert "left out node 0 to 5 (killed)." in said
    assert "Latency: no value written" in said


def test_a_node_that_hwloc_does_not_show_is_left_out(tmp_path):
    folder = folder_of(EPYC, table(rows(lambda i, j: 1e9, [0], [0, 42], BANDWIDTH)), tmp_path / "r")
    _, notes = export_hwloc_xml(read_measured_host(folder))
    assert notes[0].startswith("Bandwidth: 1 value written, ")
    assert "0 to 42 (hwloc shows no node 42)" in "\n".join(notes)


def test_a_folder_with_any_name_gives_a_file_that_hwloc_reads(tmp_path):
    folder = tmp_path / 'a\x01\nb <&" c'
    output = exported(measured(EPYC, folder, lambda i, j: 30e9))
    said = answer("hwloc-info", "-i", str(output), "machine:0")
    assert f"info ChaosityCommand = chaosity export hwloc '{tmp_path}/a\\x01 b <&\" c'" in said


def test_the_discovered_topology_is_not_overwritten(tmp_path):
    folder = measured(EPYC, tmp_path / "r", lambda i, j: 30e9)
    before = (folder / "topology.xml").read_text()
    refusal_by_chaosity("export", "hwloc", folder, "--output", folder / "topology.xml")
    assert (folder / "topology.xml").read_text() == before


@pytest.mark.parametrize("name", ["topology.json", "topology.xml", "measurements.parquet"])
def test_a_folder_without_results_is_refused(tmp_path, name):
    folder = measured(EPYC, tmp_path / "r", lambda i, j: 30e9)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        read_measured_host(folder)


def test_a_folder_without_valid_values_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no valid measurement yet"):
        read_measured_host(measured(EPYC, tmp_path / "r", lambda i, j: None))
