"""Documents of components, which change only with them, and their history."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hostile_texts
import pytest

from chaosity.components import (
    COMPONENT_HISTORY_FOLDER,
    drive_component_name,
    make_component_documents,
    notes_on_missing_components,
    read_component_documents,
    read_component_histories,
    write_changed_components,
)
from chaosity.records.record_files import format_utc
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology
from chaosity.topology.topology_parts import Gpu, NvmeDrive
from machines import shipped_topology


@pytest.fixture
def epyc() -> Topology:
    return shipped_topology("epyc-7413-2s-nps4-30drives")


def with_drive(topology: Topology, position: int, **changes: object) -> Topology:
    """Returns the topology with a changed drive."""
    drives = list(topology.drives)
    drives[position] = replace(drives[position], **changes)
    return replace(topology, drives=tuple(drives))


def changed_by(before: Topology, after: Topology, folder: Path) -> list[str]:
    """Names of components that differ between two discoveries."""
    write_changed_components(folder, make_component_documents(before))
    return write_changed_components(folder, make_component_documents(after))


def test_every_part_is_a_component(epyc):
    documents = make_component_documents(epyc)
    nodes = [f"node{i}" for i in range(8)]
    assert list(documents)[:11] == ["system", "package0", "package1", *nodes]
    assert len([name for name in documents if name.startswith("drive-")]) == 30
    assert set(make_component_documents(shipped_topology("devices"))) == {
        "system",
        "package0",
        "node0",
        "node1",
        "drive-0000-02-00-0",
        "drive-0000-42-00-0",
        "drive-0000-42-00-0-n2",
        "drive-0000-81-00-0",
        "drive-FABRIC-7",
        "gpu-0000-01-00-0",
        "gpu-0000-82-00-0",
        "opencl0",
    }
    json.dumps(documents)


# Which drive changes and how, or what changes of the host; the components that change then.
CHANGES = [
    (4, {"serial": "NEW"}, ["drive-0000-12-00-0"]),
    (4, {"name": "nvme99n1"}, []),  # the kernel's name of a drive
    (0, {"link_bytes_per_second": 1}, ["drive-0000-01-00-0"]),
    (0, {"firmware": "X"}, ["drive-0000-01-00-0"]),
    (0, {"node": 7}, ["drive-0000-01-00-0"]),
    (None, {"smt": "off"}, ["system"]),
    (None, {"name": "other"}, []),  # the host's name is no part of the system
]


@pytest.mark.parametrize(("drive", "changes", "components"), CHANGES)
def test_a_change_changes_its_component_alone(epyc, tmp_path, drive, changes, components):
    if drive is None:
        after = replace(epyc, host={**epyc.host, **changes})
    else:
        after = with_drive(epyc, drive, **changes)
    assert changed_by(epyc, after, tmp_path) == components


def test_a_drive_that_vanishes_is_named_until_it_is_back_or_forgotten(epyc, tmp_path):
    drives = with_drive(epyc, 0, serial="S1")
    without = replace(epyc, drives=epyc.drives[1:])
    assert notes_on_missing_components(tmp_path) == []
    assert changed_by(drives, without, tmp_path) == ["drive-0000-01-00-0"]
    assert not (tmp_path / "drive-0000-01-00-0.json").exists()
    for _ in range(2):  # every run says it, not only the first
        [note] = notes_on_missing_components(tmp_path)
        assert note.startswith("drive-0000-01-00-0 (serial S1) is missing since 20")
        write_changed_components(tmp_path, make_component_documents(without))
    changed_by(without, drives, tmp_path)
    assert notes_on_missing_components(tmp_path) == []
    changed_by(drives, without, tmp_path)
    Path(notes_on_missing_components(tmp_path)[0].split("delete ")[1]).unlink()
    assert notes_on_missing_components(tmp_path) == []


def test_what_the_inventory_adds_and_removes_is_not_missing(epyc, tmp_path):
    files = {"file0": {"component": "file0", "file": "/scratch/file0"}}
    write_changed_components(tmp_path, make_component_documents(epyc, extra_drives=files))
    write_changed_components(tmp_path, make_component_documents(epyc))
    assert notes_on_missing_components(tmp_path) == []


def test_tools_and_drives_that_discovery_does_not_know_are_added(epyc):
    extra = {"file0": {"component": "file0", "node": None}, "drive-0000-12-00-0": {}}
    documents = make_component_documents(epyc, tools={"fio": "3.33"}, extra_drives=extra)
    assert documents["system"]["tools"] == {"fio": "3.33"}
    assert documents["file0"] == {"component": "file0", "node": None}
    assert documents["drive-0000-12-00-0"]["component"] == "drive"


def test_memory_is_rounded_to_64_mib_of_what_firmware_gave(epyc):
    node = replace(epyc.nodes[0], memory_bytes=5 * 2**30, present_bytes=24 * 2**30 - 400_000)
    documents = make_component_documents(replace(epyc, nodes=(node, *epyc.nodes[1:])))
    assert documents["node0"]["memory_bytes"] == 24 * 2**30
    assert documents["node1"]["memory_bytes"] == 32 * 2**30


@pytest.mark.parametrize(
    ("drive", "name"),
    [
        (NvmeDrive("nvme3n1", "0000:41:00.0"), "drive-0000-41-00-0"),
        (NvmeDrive("nvme3n2", "0000:41:00.0"), "drive-0000-41-00-0-n2"),
        (NvmeDrive("nvme0n1", "10000:e1:00.0"), "drive-10000-e1-00-0"),
        (NvmeDrive("nvme0n1", None, serial="A b/1"), "drive-A-b-1"),
        (NvmeDrive("nvme0n1", None), "drive-nvme0n1"),
    ],
)
def test_names_of_drives(drive, name):
    assert drive_component_name(drive) == name


def test_unchanged_files_are_not_touched(epyc, tmp_path):
    documents = make_component_documents(epyc)
    assert write_changed_components(tmp_path, documents) == sorted(documents)
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert write_changed_components(tmp_path, make_component_documents(epyc)) == []
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps


def test_files_are_sorted_json_and_nothing_else_is_deleted(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    write_changed_components(tmp_path, {"a": {"z": 1, "b": {"y": "ü", "x": None}}})
    text = (tmp_path / "a.json").read_text()
    assert re.sub(r"\s", "", text) == '{"b":{"x":null,"y":"ü"},"z":1}'
    assert (tmp_path / "notes.txt").read_text() == "mine"
    write_changed_components(tmp_path, {})
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["notes.txt"]


def test_a_persons_edit_stays_until_discovery_finds_a_change(epyc, tmp_path):
    documents = make_component_documents(epyc)
    write_changed_components(tmp_path, documents)
    path = tmp_path / "node3.json"
    edited = path.read_text().replace("{", '{ "note": "DIMM A1 reseated",', 1)
    path.write_text(edited)
    assert write_changed_components(tmp_path, documents) == []
    assert path.read_text() == edited
    documents["node3"] = {**documents["node3"], "tier": 1}
    assert write_changed_components(tmp_path, documents) == ["node3"]
    assert "reseated" not in path.read_text()
    # A stale file is rewritten when the last discovery is unknown.
    for broken in (None, "rubbish"):
        path.write_text("{}")
        (tmp_path / ".discovered.json").unlink()
        if broken:
            (tmp_path / ".discovered.json").write_text(broken)
        assert write_changed_components(tmp_path, documents) == ["node3"]


def _available_bytes() -> int:
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024


@pytest.mark.alone
def test_this_machine_is_the_same_while_memory_is_allocated():
    """A guest with a memory balloon grows its node's MemTotal under such a load."""
    size = 3 * 2**30
    if _available_bytes() < 2 * size:
        pytest.skip("fewer than 6 GiB of memory are available")
    program = (
        "import mmap, sys\n"
        "at_once = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE\n"
        "kept = mmap.mmap(-1, int(sys.argv[1]), flags=at_once)\n"
        "print('full', flush=True); sys.stdin.read()"
    )

    def found() -> dict[str, Any]:
        return make_component_documents(discover_topology("live"), tools={"fio": "3.33"})

    before = found()
    command = [sys.executable, "-c", program, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as load:
        growing = found()
        assert load.stdout.readline() == b"full\n"
        full = found()
        load.stdin.close()
    assert before == growing == full == found()


@pytest.mark.parametrize("text", [*hostile_texts.PATHS[:-1], hostile_texts.SHELL, "x" * 5000])
def test_names_of_devices_are_no_paths(tmp_path, text):
    drives = (NvmeDrive(name="nvme0n1", pci=text), NvmeDrive(name="nvme1n1", serial=text))
    documents = make_component_documents(Topology(drives=drives, gpus=(Gpu(pci=text),)))
    write_changed_components(tmp_path / "components", documents)
    assert [path.name for path in tmp_path.iterdir()] == ["components"]
    assert all(re.fullmatch(r"[a-z]+(-[A-Za-z0-9-]*)?", name) for name in documents)


OLD, NEW = {"serial": "A"}, {"serial": "B"}


def contents(folder, name="drive0"):
    return [state.content for state in read_component_histories(folder).get(name, [])]


def since(folder, name="drive0"):
    return [state.since for state in read_component_histories(folder)[name]]


def test_a_replaced_drive_has_two_states(tmp_path):
    write_changed_components(tmp_path, {"drive0": OLD, "node0": {}})
    path = tmp_path / COMPONENT_HISTORY_FOLDER / "node0.jsonl"
    before = path.stat().st_mtime_ns
    (tmp_path / "node0.json").touch()
    write_changed_components(tmp_path, {"drive0": NEW, "node0": {}})
    assert contents(tmp_path) == [OLD, NEW]
    assert contents(tmp_path, "node0") == [{}]  # what is unchanged adds no state
    assert path.stat().st_mtime_ns == before
    first, second = since(tmp_path)
    assert first < second


# As far ahead as the clock of a file server may be, and long ago.
@pytest.mark.parametrize("ahead", [True, False])
def test_a_persons_edit_is_a_state_from_the_time_of_the_edit_in_order(tmp_path, ahead):
    edited = int(time.time()) + 30 if ahead else 0
    write_changed_components(tmp_path, {"drive0": OLD})
    path = tmp_path / "drive0.json"
    path.write_text(json.dumps({**OLD, "note": "reseated"}))
    os.utime(path, (edited, edited))
    write_changed_components(tmp_path, {"drive0": OLD})
    assert contents(tmp_path) == [OLD, {**OLD, "note": "reseated"}]
    assert since(tmp_path) == sorted(since(tmp_path))
    if ahead:
        assert since(tmp_path)[1] == format_utc(datetime.fromtimestamp(edited, UTC))


def test_a_component_that_returns_unchanged_has_one_state(tmp_path):
    for drives in ({"drive0": OLD}, {}, {"drive0": OLD}):
        write_changed_components(tmp_path, drives)
    assert contents(tmp_path) == [OLD]
    write_changed_components(tmp_path, {})
    write_changed_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path) == [OLD, NEW]


def test_a_broken_line_is_ignored_and_a_broken_file_is_kept_as_text(tmp_path):
    (tmp_path / "drive0.json").write_text(json.dumps(OLD))  # without history: its first state
    write_changed_components(tmp_path, {"drive0": OLD})
    history = tmp_path / COMPONENT_HISTORY_FOLDER / "drive0.jsonl"
    history.write_text(history.read_text() + '{"since": \n[1]\n')
    (tmp_path / "drive0.json").write_text("no JSON")
    write_changed_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path)[0] == OLD
    assert {"unreadable": "no JSON"} in contents(tmp_path)


@pytest.mark.parametrize("left", [b"", b"\0" * 40, b"\n"])
def test_an_emptied_file_gets_its_last_content_again_and_is_no_change(tmp_path, left):
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    (tmp_path / "drive0.json").write_text(json.dumps(NEW))  # a person's edit
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    for name in ("drive0", "drive1"):
        (tmp_path / f"{name}.json").write_bytes(left)
    (tmp_path / COMPONENT_HISTORY_FOLDER / "drive1.jsonl").unlink()
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    assert json.loads((tmp_path / "drive0.json").read_text()) == NEW
    assert json.loads((tmp_path / "drive1.json").read_text()) == OLD
    assert contents(tmp_path) == [OLD, NEW]


def test_files_that_are_nested_too_deeply_are_left_out(tmp_path):
    (tmp_path / COMPONENT_HISTORY_FOLDER).mkdir()
    for path in (tmp_path / "a.json", tmp_path / COMPONENT_HISTORY_FOLDER / "a.jsonl"):
        path.write_text("[" * 100_000)
    assert read_component_documents(tmp_path) == {}
    assert read_component_histories(tmp_path) == {}
