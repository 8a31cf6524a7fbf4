"""The drawing of a machine: every part in its place, with its measured value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from chaosity.anomalies.host_anomalies import analyse_host
from chaosity.export.main_matrices import MeasuredHost
from chaosity.figures.machine_drawing import draw_machine, draw_machines
from chaosity.figures.machine_parts import MachineParts
from chaosity.statistics.cell_summary import with_variance_priors
from chaosity.store.measurements import PREDICTION_COLUMNS
from chaosity.store.tidy_table_parquet import write_parquet_table
from machines import SHIPPED_MACHINES, planned, shipped_topology
from table_rows import BANDWIDTH

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["memory_bandwidth", "latency_matrix", "package_bandwidth", "storage_bandwidth"]
GPUS = ["gpu_bandwidth", "gpu_copies"]
SLOW = {"fault": "slow_node", "node": 3, "remaining": 0.7}
LINK = {"fault": "slow_link", "from_package": 1, "to_package": 0, "remaining": 0.5}


def measured(machine: str, *faults: dict, missing=(), folder=Path("results"), names=NAMES):
    """A simulated machine with its values and its findings."""
    host = planned(machine, None, faults, experiments=names, replicates=3)
    table = with_variance_priors(host.table(1, missing=missing))
    findings = analyse_host(table, host.component_facts)
    return MeasuredHost(folder, table, host.topology), findings.anomalies


def drawn(machine: str, *faults: dict, **keys) -> tuple[MeasuredHost, etree._Element]:
    """Draw a simulated machine with its findings."""
    host, findings = measured(machine, *faults, **keys)
    return host, etree.fromstring(draw_machine(MachineParts(host, findings)).encode())


def texts(root: etree._Element) -> list[str]:
    return [text.text for text in root.iter(f"{SVG}text") if text.text]


def hover(root: etree._Element) -> list[str]:
    return [title.text for title in root.iter(f"{SVG}title")]


def red_parts(root: etree._Element) -> list[str]:
    """What the drawing says of each part whose frame, line or value is red."""
    red = root.xpath(
        "//*[local-name()='g'][@class='mark'][*[@stroke='#b3261e' or @fill='#f6d5d2']]"
    )
    return [part[0].text for part in red]


def test_a_slow_drive_is_red_in_its_node():
    topology = shipped_topology("two_packages")
    slot = next(each for each in topology.drives if each.node == 1).pci
    drive = f"drive-{slot.replace(':', '-').replace('.', '-')}"
    _, root = drawn("two_packages", {"fault": "slow_drive", "drive": drive, "remaining": 0.6})
    [part] = red_parts(root)
    assert part.startswith("2 drives of node 1")


def test_drives_that_are_slow_only_from_elsewhere_keep_their_own_rate_and_get_a_line():
    path = {"fault": "slow_drive_path", "drive_node": 0, "to_package": 1, "remaining": 0.6}
    _, root = drawn("two_packages", path)
    [own] = [text for text in hover(root) if text.startswith("2 drives of node 0, read by")]
    assert own not in red_parts(root)
    labels = [text for text in texts(root) if text.startswith(("from 2 nodes", "drive, node"))]
    assert labels and any("read from nodes 2 and 3" in text for text in hover(root))


def test_drives_that_whole_packages_read_slowly_are_red_themselves():
    """Their own package is among the readers, so it is no path from elsewhere that is slow."""
    topology = shipped_topology("epyc_7413_nps4")
    slots = [each.pci for each in topology.drives if each.node == 5]
    drives = [f"drive-{slot.replace(':', '-').replace('.', '-')}" for slot in slots]
    port = {"fault": "slow_port", "drives": drives, "remaining": 0.6}
    _, root = drawn("epyc_7413_nps4", port, names=["storage_sample"])
    [part] = red_parts(root)
    assert part.startswith("4 drives of node 5")


@pytest.mark.parametrize(
    ("machine", "source", "sink"),
    [
        ("two_packages", 1, 0),
        ("opteron_6272", 0, 1),
        ("opteron_6272", 0, 2),
        ("opteron_6272", 1, 2),
    ],
)
def test_a_slow_link_is_a_red_arrow_with_the_direction_of_the_data(machine, source, sink):
    """Packages beside, above and across from each other."""
    link = {**LINK, "from_package": source, "to_package": sink}
    _, root = drawn(machine, link, names=NAMES[:3])
    assert [part.split(":")[0] for part in red_parts(root)] == [
        f"package {sink} reads the memory of package {source}"
    ]


def test_a_package_that_is_one_node_and_memory_without_cores_have_their_values():
    _, root = drawn("epyc_9554_cxl", names=NAMES[:3])
    assert any(
        text.startswith("package 0 reads the memory of package 1: 1") for text in hover(root)
    )
    [far] = [text for text in hover(root) if text.startswith("memory of node 2;")]
    assert "memory bandwidth from node " in far and "memory latency from node " in far


def test_a_gpu_shows_its_memory_and_the_copies():
    _, root = drawn("desktop", names=GPUS)
    assert "8 + 16 cores, 64 GiB" in texts(root)
    [memory] = [text for text in hover(root) if "; memory bandwidth: " in text]
    [copies] = [text for text in hover(root) if "; copies to it: " in text]
    assert "95 % interval" in memory and "; from it: " in copies


def test_predicted_rates_of_drives_are_hatched(tmp_path):
    host, _ = measured("two_packages", folder=tmp_path)
    rows = host.measurements.where(initiator="node0", target="nodes0-1drives").rows
    predicted = rows.head(1).reindex(columns=list(PREDICTION_COLUMNS))
    predicted = predicted.assign(value=2e10, low=1.9e10, high=2.1e10).astype(PREDICTION_COLUMNS)
    write_parquet_table(rows, tmp_path / "unmeasured.parquet")
    write_parquet_table(predicted, tmp_path / "predictions.parquet", PREDICTION_COLUMNS)
    sets = {p for p in host.measurements.rows["point"] if "nodes0-1drives" in p}
    _, root = drawn("two_packages", missing=sets, folder=tmp_path)
    hatched = root.xpath("//*[@fill='url(#machine-hatch)']/parent::*/*[1]/text()")
    assert [text.split(": ")[1].split(",")[:2] for text in hatched] == [["predicted", " 20.0 GB/s"]]


def test_the_experiment_with_most_pairs_gives_the_rates_that_several_measured():
    """The largest of five medians would be too large, and buffers elsewhere are another load."""
    more = ["interference_memory", "storage_sample", "storage_buffers", "interference"]
    host, _ = measured("two_packages", names=NAMES + more)
    alone = replace(host, measurements=host.measurements.where(experiment=NAMES))
    assert draw_machine(MachineParts(host, ())) == draw_machine(MachineParts(alone, ()))


def test_configurations_stand_beside_each_other_with_links_to_their_reports():
    sides = [
        (name, page, MachineParts(*measured("two_packages", SLOW)))
        for name, page in (("nps1", ""), ("nps2", "../nps2/report.html"))
    ]
    root = etree.fromstring(draw_machines(sides).encode())
    assert {"nps1", "nps2"} <= {*texts(root)}
    links = [each.get("href") for each in root.iter(f"{SVG}a")]
    assert links == ["#finding-1", "../nps2/report.html#finding-1"]


def test_what_was_not_measured_says_so():
    host = planned("two_packages", None, (), experiments=NAMES, replicates=3)
    lost = [p["point"] for p in host.points if p["point"].startswith("memory=node3+node3")]
    lost += [p["point"] for p in host.points if p["point"].startswith("memory=package0+nodes2-3")]
    _, root = drawn("two_packages", missing=lost)
    assert "not measured" in texts(root)
    assert "package 0 reads the memory of package 1: not measured" in hover(root)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (SHIPPED_MACHINES / "topologies").glob("*.xml"))
)
def test_boxes_are_inside_each_other_and_do_not_overlap(name: str):
    """A machine without measurements is drawn too: with its packages and nodes, without values."""
    topology = shipped_topology(name)
    host = planned("two_packages", None, (), experiments=["memory_bandwidth"], replicates=1)
    nothing = host.table(1).where(metric=BANDWIDTH, initiator="nobody")
    text = draw_machine(MachineParts(MeasuredHost(Path("results"), nothing, topology), ()))
    root = etree.fromstring(text.encode())
    boxes = [
        tuple(float(box.get(key)) for key in ("x", "y", "width", "height"))
        for box in root.xpath("//*[local-name()='rect'][@stroke]")
    ]
    width, height = float(root.get("width")), float(root.get("height"))
    assert len(boxes) >= len(topology.memory_nodes) + 1
    for number, (x, y, w, h) in enumerate(boxes):
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        for left, top, wide, high in boxes[number + 1 :]:
            apart = left >= x + w or left + wide <= x or top >= y + h or top + high <= y
            inside = x <= left and left + wide <= x + w and y <= top and top + high <= y + h
            assert apart or inside
