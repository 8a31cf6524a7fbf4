"""The whole way on the paper's server: provisioned, discovered, measured, repaired, set otherwise.

The speed of memory means nothing in an emulated machine. Placement is real, and so is the throttle
of each drive, which gives storage a known truth.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaosity.place_names import place_in_words
from lab_machines import FIFTH, FULL, Lab, Machine
from lab_workflow import SERVER, Pipeline, placed
from published_schemas import schema_errors
from virtual_lab import replace_or_slow_drive

pytestmark = pytest.mark.lab

NEW = "NV-NEW"


@pytest.fixture(scope="module")
def measured(server: Machine, root: Path, tmp_path_factory) -> Iterator[Pipeline]:
    """The server measured while a drive has a fifth of its speed, one that is measured alone, too.

    Tests share it in the order in which they stand here.
    """
    pipeline = Pipeline(root, tmp_path_factory.mktemp("server"), SERVER)
    alone = re.compile(r"storage=node\d+\+(drive-[0-9a-f-]+)$")
    found = sorted(match[1] for _, point, _ in pipeline.selected() if (match := alone.match(point)))
    # A dry run writes no file that has the serial number of a drive, so the host is asked.
    *address, function = found[len(found) // 2].removeprefix("drive-").split("-")
    device = f"/sys/bus/pci/devices/{':'.join(address)}.{function}"
    pipeline.slow = server.says(f"cat {device}/nvme/nvme*/serial").strip()
    replace_or_slow_drive.limit_read_rate(server.folder, pipeline.slow, FIFTH)
    pipeline.run_and_try_again()
    yield pipeline
    replace_or_slow_drive.limit_read_rate(server.folder, pipeline.slow, FULL)


def test_a_second_provisioning_changes_nothing(lab: Lab, server: Machine) -> None:
    assert lab.playbook("--limit", SERVER, playbook="provision.yml").count("changed") == 0


def test_every_record_is_valid_and_the_kernel_says_where_its_pages_were(measured: Pipeline) -> None:
    records = measured.records(SERVER)
    points = list((measured.folder / f"results/{SERVER}/nps4/points").glob("*/*.json"))
    assert len(points) == sum(measured.config["sample"].values())
    assert len(records) == len(points) * measured.config["replicates"]
    for path, record in records.items():
        assert schema_errors(record, "record") == []
        assert record["verdict"]["status"] == "valid", (path, record["verdict"]["reason"])
        assert placed(record), (path, record["verdict"]["checks"])
    assert measured.selected() == set()
    html = measured.path(f"{SERVER}/nps4/report.html").read_text()
    assert "memory_bandwidth: a sample of 10 of" in html


def test_drives_are_as_fast_as_their_throttle(measured: Pipeline) -> None:
    """Single drives within 3 %; sets as far as two cores can emulate eight."""
    for serials, seen in measured.storage(SERVER).items():
        truth = sum(FIFTH if one == measured.slow else FULL for one in serials)
        if len(serials) == 1:
            assert seen == pytest.approx(truth, rel=0.03), serials
        else:  # the sum is an upper bound; what the emulation cannot do is printed
            print(f"{len(serials):2} drives: {seen / truth:.3f} of the sum of their throttles")
            assert seen <= 1.03 * truth, serials


def findings(measured: Pipeline) -> list[dict[str, Any]]:
    return json.loads(measured.path(f"{SERVER}/nps4/findings.json").read_text())["anomalies"]


def test_the_slow_drive_is_the_first_finding(measured: Pipeline) -> None:
    drive = measured.component(SERVER, measured.slow)
    first = findings(measured)[0]
    assert (first["kind"], first["components"]) == ("slow_component", [drive])
    assert first["loss_percent"] == pytest.approx(80.0, abs=3.0)
    sentence = f"{place_in_words(drive).capitalize()} is slow"
    assert sentence in json.dumps(measured.summary(SERVER)["worst"][0])
    html = measured.path(f"{SERVER}/nps4/report.html").read_text()
    assert measured.slow in html[html.index(sentence) :][:2000]


def test_a_replaced_drive_selects_exactly_the_points_that_touch_it(
    server: Machine, measured: Pipeline
) -> None:
    points = sorted((measured.folder / f"results/{SERVER}/nps4/points").glob("*/*.json"))
    planned = [json.loads(path.read_text()) for path in points]
    touching = {
        (point["experiment"], point["point"], str(replicate))
        for point in planned
        for replicate in range(1, 1 + measured.config["replicates"])
        for load in point["loads"]
        for drive in load["target"]["drives"]
        if drive.get("serial") == measured.slow
    }
    assert touching
    try:
        replace_or_slow_drive.replace_drive(server.folder, measured.slow, NEW, FULL)
        assert measured.selected() == touching
        measured.run_and_try_again()
        assert measured.selected() == set()
        assert measured.storage(SERVER)[(NEW,)] == pytest.approx(FULL, rel=0.03)
        replaced = measured.component(SERVER, NEW)
        assert not any(replaced in one["components"] for one in findings(measured))
        html = measured.path(f"{SERVER}/nps4/report.html").read_text()
        assert measured.slow in html  # before
        assert NEW in html  # after
    finally:
        replace_or_slow_drive.replace_drive(server.folder, NEW, measured.slow, FULL)


def test_buffers_on_a_third_node_are_where_the_kernel_says(
    server: Machine, root: Path, tmp_path: Path
) -> None:
    """Cores, drives and buffers on three nodes; the pages of fio are on the node of the buffers."""
    pipeline = Pipeline(root, tmp_path, SERVER)
    pipeline.config |= {
        "experiments": ["storage_buffers", "storage_latency"],
        "sample": {"storage_buffers": 8, "storage_latency": 3},
    }
    pipeline.run_and_try_again()
    third = []
    for path, record in pipeline.records(SERVER).items():
        assert record["verdict"]["status"] == "valid", (path, record["verdict"]["reason"])
        assert placed(record), (path, record["verdict"]["checks"])
        [load] = record["loads"]
        if record["point"]["experiment"] == "storage_buffers":
            [cores], [buffers] = load["initiator"]["nodes"], load["placement"]["memory_nodes"]
            drives = load["target"]["nodes"]  # none for the system drive, whose node is unknown
            assert load["levels"] == {"buffers": f"node{buffers}"}
            seen = load["placement_seen"]["memory_bytes_by_node"]
            # 32 reads of 1 MiB in flight for each drive.
            assert seen[str(buffers)] >= len(load["target"]["drives"]) * 32 * 2**20
            assert seen[str(buffers)] >= 0.98 * sum(seen.values())
            if len({cores, buffers, *drives}) == 3:
                third.append(path)
    print(f"{len(third)} points with cores, drives and buffers on three nodes")
    assert third
    html = pipeline.path(f"{SERVER}/nps4/report.html").read_text()
    assert "Storage bandwidth by node of the buffers" in html


def test_the_modes_of_the_firmware_one_after_the_other(
    server: Machine, root: Path, tmp_path: Path
) -> None:
    pipeline = Pipeline(root, tmp_path, SERVER)
    pipeline.config |= {
        "configurations": ["nps1", "nps4"],
        "experiments": ["memory_bandwidth"],
        "sample": {"memory_bandwidth": 6},
    }
    pipeline.with_variables(firmware_reboot_allowed=True)
    pipeline.run()
    for name, nodes in (("nps1", 2), ("nps4", 8)):
        folder = tmp_path / "results" / SERVER / name
        assert len(json.loads((folder / "topology.json").read_text())["nodes"]) == nodes
        records = list(folder.glob("memory_bandwidth/*/rep*.json"))
        assert len(records) == 6
        other = {"nps1": "nps4", "nps4": "nps1"}[name]
        assert other in (folder / "report.html").read_text()
    stamp = (server.folder / "qemu.pid").stat().st_mtime
    pipeline.run()  # nothing is missing, so nothing is rebooted
    assert (server.folder / "qemu.pid").stat().st_mtime == stamp
