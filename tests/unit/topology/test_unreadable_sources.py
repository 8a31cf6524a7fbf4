"""The error for an unreadable source says in a sentence what is wrong, where, and the remedy."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from captured import Capture, CapturedNode
from lxml import etree

from chaosity.errors import UserError
from chaosity.topology import hwloc
from chaosity.topology.hwloc import HwlocTree
from chaosity.topology.topology_discovery import discover_topology
from inventories import OWN_TOPOLOGIES, topology_file

V3 = '<?xml version="1.0"?>\n<topology version="3.0"><object type="Machine"/></topology>\n'


def refusal(source) -> str:
    with pytest.raises(UserError) as error:
        discover_topology(str(source))
    return str(error.value)


@pytest.fixture
def written(tmp_path):
    def write(text: str, name: str = "topology.xml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def whole() -> str:
    return (OWN_TOPOLOGIES / "devices.xml").read_text()


# What is done to the text of a whole file, and words of the sentence.
NO_TOPOLOGY = {
    "empty": (lambda _: "", ["topology.xml: the file is not XML"]),
    "words": (lambda _: "hello", ["topology.xml: the file is not XML"]),
    "JSON": (lambda _: "{}", ["topology.xml: the file is not XML"]),
    "a program": (lambda _: "\x7fELF", ["topology.xml: the file is not XML"]),
    "HTML": (lambda _: "<html><body/></html>", ["not the XML of hwloc", "<html>"]),
    "begin": (lambda text: text[:200], ["is truncated"]),
    "half": (lambda text: text[: len(text) // 2], ["is truncated"]),
    "all but the end": (lambda text: text[:-5], ["is truncated"]),
    "malformed": (lambda text: text.replace("</object>", "</objec>", 1), ["not well-formed XML"]),
    "another object": (
        lambda text: text.replace('type="Machine"', 'type="Submarine"', 1),
        ["hwloc", "cannot read the topology"],
    ),
    "version": (lambda _: V3.replace("3.0", "x"), ["'x' is not a format version"]),
}


@pytest.mark.parametrize(("change", "words"), NO_TOPOLOGY.values(), ids=NO_TOPOLOGY)
def test_a_file_that_is_no_topology(written, whole, change, words):
    said = refusal(written(change(whole)))
    assert all(word in said for word in words)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_xml_with_windows_line_ends_or_another_encoding_is_read(tmp_path, line_end, encoding):
    plain, path = OWN_TOPOLOGIES / "devices.xml", tmp_path / "devices.xml"
    text = plain.read_text().replace('encoding="UTF-8"', "").replace("\n", line_end)
    commented = text.replace("<object", "<!-- a comment --><object", 3)
    path.write_bytes(commented.encode(encoding))
    assert discover_topology(str(path)) == replace(discover_topology(str(plain)), source=str(path))


def test_truncated_utf_16_is_truncated(tmp_path, whole):
    path = tmp_path / "topology.xml"
    path.write_bytes(whole.replace('encoding="UTF-8"', "")[:5000].encode("utf-16"))
    assert "is truncated" in refusal(path)


@pytest.mark.parametrize("type_name", ["PU", "NUMANode"])
@pytest.mark.parametrize("index", ["9" * 20, "1048576", "-1", ""])
def test_an_index_that_no_machine_has_is_refused_before_hwloc_reads_it(
    written, whole, monkeypatch, type_name, index
):
    monkeypatch.setattr(hwloc, "run_lstopo", lambda *_, **__: pytest.fail("hwloc was run"))
    changed = re.sub(f'(type="{type_name}" os_index=)"[0-9]+"', rf'\1"{index}"', whole, count=1)
    said = refusal(written(changed))
    assert f"topology.xml: the topology cannot be read: a {type_name} has the os_index" in said
    assert "indexes are 0 to 1048575" in said


def test_a_container_that_hides_the_nodes(tmp_path):
    root = Capture(nodes={0: CapturedNode("0-1", 1)}, packages={0: "0-1"}).write(tmp_path)
    shutil.rmtree(root / "sys/devices/system/node")
    (root / "sys/devices/system/node").mkdir()
    assert "sys/devices/system/node is empty; if a container hides it, mount" in refusal(root)


def test_a_format_newer_than_the_installed_hwloc(written, monkeypatch):
    monkeypatch.setattr(hwloc, "installed_hwloc_version", lambda: (2, 9, 0))
    said = refusal(written(V3))
    assert "format version 3.0" in said
    assert "hwloc 2.9.0" in said
    assert "--export-xml-flags v2" in said


def test_a_newer_format_is_recognised_from_the_error_of_lstopo(written, whole, fake_lstopo):
    fake_lstopo(
        'if [ "$1" = --version ]; then echo lstopo 2.9.0; else\n'
        'echo "hwloc/xml: Cannot import XML version 3.0 > 2" >&2; exit 1; fi'
    )
    said = refusal(written(whole))
    assert "reads formats up to 2" in said


def test_a_directory_without_a_captured_sys(tmp_path):
    (tmp_path / "etc").mkdir()
    said = refusal(tmp_path)
    assert "sys/devices/system of a captured /sys is missing" in said
    assert "hwloc-gather-topology" in said


def test_a_tarball_has_to_be_unpacked_first(written):
    said = refusal(written("", "machine.tar.bz2"))
    assert "the file is a tarball; unpack it, and give its directory" in said


@pytest.fixture
def fake_lstopo(tmp_path, monkeypatch):
    """Replaces lstopo by a shell script, or removes it."""

    def put(script: str | None):
        folder = tmp_path / "bin"
        folder.mkdir()
        if script is not None:
            program = folder / "lstopo-no-graphics"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        hwloc.installed_hwloc_version.cache_clear()

    yield put
    hwloc.installed_hwloc_version.cache_clear()


VERSION = '[ "$1" = --version ] && echo lstopo 2.9.0'
FAKES = {
    None: ["lstopo is not installed", "apt install hwloc-nox", "dnf install hwloc"],
    "echo lstopo 1.11.13": ["hwloc 1.11.13 is too old"],
    "echo rubbish": ["rubbish"],
    f"{VERSION}; exit 0": ["cannot read the topology: no message"],
    "echo lstopo 2.9.0": ["lstopo printed 'lstopo 2.9.0\\n', not a topology"],
    f"{VERSION} && exit 0; while :; do :; done": ["did not answer within"],
}


@pytest.mark.parametrize(("script", "words"), FAKES.items())
def test_a_host_without_an_hwloc_that_works(fake_lstopo, monkeypatch, script, words):
    monkeypatch.setattr(hwloc, "TIMEOUT_SECONDS", 0.2)
    fake_lstopo(script)
    said = refusal("live")
    assert all(word in said for word in words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('cpuset="0x', 'cpuset="0xs'),
        ('os_index="0"', 'os_index="0x10"'),
        ('type="PU"', ""),
        ('local_memory="', 'local_memory="\N{SUPERSCRIPT TWO}'),
        ('complete_nodeset="', 'complete_nodeset="0x1,' + "0x0," * 9999),
    ],
)
def test_attributes_that_hwloc_never_writes(written, whole, monkeypatch, tmp_path, old, new):
    assert old in whole
    path = written(whole.replace(old, new))
    monkeypatch.setenv("PATH", str(tmp_path))  # without hwloc, the file is read as it is
    said = refusal(path)
    assert "the topology cannot be read" in said
    assert said.isprintable()


FACTS = {"memory_modules": None, "architecture": "x86_64", "opencl_devices": None}
KERNEL = "sys/devices/system"


def described(tmp_path, whole, kernel, **changes):
    """A description of a host with these files and changed facts."""
    files = {f"{KERNEL}/cpu/online": "0", **kernel}
    facts = {**FACTS, "module_table": "unknown", "topology_xml": whole, "files": files, **changes}
    path = tmp_path / "description.json"
    path.write_text(json.dumps(facts))
    return path


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ({}, {"memory_modules": [1]}),
        ({}, {"files": [1]}),
        ({f"{KERNEL}/node/node0/distance": "10 nan"}, {}),
        ({f"{KERNEL}/node/node0/meminfo": "Node 0 MemTotal: 24\N{SUPERSCRIPT TWO} kB"}, {}),
        ({"proc/zoneinfo": "Node x, zone Normal"}, {}),
        ({f"{KERNEL}/cpu/cpufreq/policy0/scaling_min_freq": "fast"}, {}),
    ],
)
def test_a_description_with_broken_files(tmp_path, whole, files, changes):
    said = refusal(described(tmp_path, whole, files, **changes))
    assert "the topology cannot be read" in said


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000, '{"a": "\\ud800"}', "\N{SNOWMAN}"])
def test_a_description_of_another_form(tmp_path, text):
    path = tmp_path / "description.json"
    path.write_text(text)
    assert "the description of the host is broken" in refusal(path)
    path.write_text("{}")
    assert "the topology cannot be read: the key 'topology_xml' is missing" in refusal(path)


def test_a_number_above_64_bits_of_the_kernel(tmp_path, whole):
    pools = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    path = described(tmp_path, whole, {pools: str(10**29)})
    assert f"the number {10**29} does not fit into 64 bits" in refusal(path)


def test_a_table_of_distances_with_a_missing_value():
    text = topology_file("epyc_7413_nps4").read_text()
    changed = re.sub(r'(<u64values length="\d+">)\d+ ', r"\g<1>", text, count=1)
    with pytest.raises(ValueError, match="the matrix of distances does not fit 8 nodes"):
        HwlocTree(etree.fromstring(changed.encode())).slit_distances()
