"""Any description of a machine gives a topology or one sentence."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from captured import Capture, CapturedDrive, CapturedNode
from hypothesis import strategies as st
from lxml import etree

from chaosity.components import (
    make_component_documents,
    read_component_documents,
    read_component_histories,
    write_changed_components,
)
from chaosity.cpusets import format_cpu_list, parse_cpu_list, parse_mask
from chaosity.documents.shipped_documents import ROOT
from chaosity.runner.describe_host import parse_memory_modules
from chaosity.topology.host_facts import parse_dmidecode_memory_modules
from chaosity.topology.topology_discovery import discover_topology_with_xml
from chaosity.topology.topology_model import (
    configuration_name,
    read_topology,
    topology_from_json,
    topology_to_json,
)
from inventories import OWN_TOPOLOGIES, topology_file
from machines import shipped_topology
from strategies import (
    ODD_NUMBERS,
    ODD_TEXTS,
    Draw,
    change_bytes,
    change_document,
    change_text,
    changed,
    changed_json,
    check_any_input,
    write_text,
)

XML = [
    path.read_bytes()
    for path in (
        *(topology_file(name) for name in ("desktop", "xeon_8358", "epyc_9554_cxl")),
        *sorted(OWN_TOPOLOGIES.glob("*.xml")),
    )
    if path.stat().st_size < 120_000
]
ODD_XML = [b'<topology version="2.0">' + b"<object>" * 5000, b"", b"<topology/>"]
# What `chaosity-run --describe` copies beside the tree of `Capture`.
FILES = {
    "sys/devices/system/cpu/smt/control": "on",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "3600000",
    "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": "1",
    "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "4",
    "sys/devices/virtual/memory_tiering/memory_tier4/nodelist": "0-1",
    "sys/class/net/eth0/speed": "25000",
    "proc/cmdline": "root=/dev/sda1 isolcpus=1 -- x",
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nclflush size\t: 64\n",
    "proc/zoneinfo": "Node 0, zone   Normal\n        present  4000\nNode 1, zone   Normal",
}
DMIDECODE = (
    "Memory Device\n\tSize: 32 GB\n\tLocator: P0 CHANNEL A\n\tType: DDR4\n\tRank: 2\n"
    "\tSpeed: 3200 MT/s\n\tPart Number: M393\n\tConfigured Memory Speed: 2933 MT/s\n\n"
    "Memory Device\n\tSize: No Module Installed\n\tLocator: P0 CHANNEL B\n"
)
FACTS = {
    **{"hostname": "node01", "architecture": "x86_64", "boot_id": "1-2-3\n", "usable_cpus": 4},
    **{"memory_modules": DMIDECODE, "module_table": [[2**34, 25_600_000_000, "P0 A"]]},
    **{"tools": [], "runner_sha256": None, "user_id": 0},
    "opencl_devices": json.loads(
        (ROOT / "tests/data/recorded/opencl-devices_pocl-3.1.json").read_text()
    )["devices"],
}
COMPONENT = {"component": "drive", "serial": "S1", "node": 0, "size_bytes": 10**12}
HISTORY = json.dumps({"since": "2026-11-20T13:45:00.000Z", "content": COMPONENT}) + "\n"


def change_xml(draw: Draw, data: bytes) -> bytes:
    """Change, remove or repeat an element or an attribute; the result is still XML."""
    try:
        root = etree.fromstring(data)
    except etree.XMLSyntaxError:
        return data
    tag = draw(st.sampled_from(sorted({str(each.tag) for each in root.iter(etree.Element)})))
    elements = list(root.iter(tag))
    element, other = (draw(st.integers(0, len(elements) - 1)) for _ in range(2))
    chosen, parent = elements[element], elements[element].getparent()
    kind = draw(st.sampled_from(("value", "value", "no value", "text", "remove", "repeat")))
    new = draw(
        st.sampled_from((*ODD_NUMBERS, *ODD_TEXTS, *map(str, elements[other].attrib.values())))
    )
    new = "".join(letter for letter in new if letter >= " ")
    if kind == "remove" and parent is not None:
        parent.remove(chosen)
    elif kind == "repeat":
        elements[other].append(etree.fromstring(etree.tostring(chosen)))
    elif kind == "text":
        chosen.text = " ".join([*(chosen.text or "").split()[1:], new][: draw(st.integers(0, 99))])
    elif chosen.attrib:
        name = draw(st.sampled_from(sorted(map(str, chosen.attrib))))
        chosen.attrib.pop(name) if kind == "no value" else chosen.set(name, new)
    return etree.tostring(root)


def change_description(draw: Draw, text: str) -> str:
    """Change hwloc's XML, a file, or any part of a description."""
    facts = json.loads(text)
    kind = draw(st.sampled_from(("xml", "file", "file", "any")))
    if kind == "xml":
        xml = change_xml(draw, facts["topology_xml"].encode())
        return json.dumps({**facts, "topology_xml": xml.decode(errors="replace")})
    if kind == "file":
        name = draw(st.sampled_from(sorted(facts["files"])))
        facts["files"][name] = change_text(draw, facts["files"][name])
        return json.dumps(facts)
    return json.dumps(change_document(draw, facts))


def smbios_table() -> bytes:
    """Return an SMBIOS table with two modules and an empty slot."""
    table = b""
    for size, kind in ((0x7FFF, 0x1A), (32768, 0x22), (0, 2)):
        fields = bytearray(0x5C)
        fields[0], fields[1] = 17, 0x5C
        struct.pack_into("<HH", fields, 0x0A, 64, size)
        fields[0x10:0x13] = bytes((1, 2, kind))
        struct.pack_into("<IH", fields, 0x1C, 65536, 3200)
        table += bytes(fields) + b"P0 CHANNEL A\0BANK 0\0\0"
    return table + b"\x7f\x04\0\0\0\0"


@cache
def described() -> str:
    """Return the description of a host with two nodes and a drive."""
    nodes = {0: CapturedNode("0-1", 16, (10, 21)), 1: CapturedNode("2-3", 16, (21, 10))}
    drive = CapturedDrive("0000:41:00.0", "nvme0n1", 1)
    with tempfile.TemporaryDirectory() as name:
        root = Capture(nodes, {0: "0-3"}, [drive], FILES).write(Path(name))
        paths = [path for path in root.rglob("*") if path.is_file()]
        files = {str(path.relative_to(root)): path.read_text() for path in paths}
    return json.dumps({**FACTS, "topology_xml": XML[0].decode(), "files": files})


def use(topology: Any, folder: Path) -> None:
    """Write what a run writes of a topology, and read it again."""
    again = topology_from_json(json.loads(json.dumps(topology_to_json(topology))))
    assert configuration_name(again) == configuration_name(topology)
    write_changed_components(folder / "components", make_component_documents(topology))


def parse_file(data: bytes, folder: Path) -> None:
    path = folder / ("description.json" if data[:1] == b"{" else "machine.xml")
    path.write_bytes(data)
    topology, text = discover_topology_with_xml(str(path))
    etree.fromstring(text.encode())
    use(topology, folder)


def parse_topology_json(text: str, folder: Path) -> None:
    topology = read_topology(write_text(folder / "topology.json", text))
    assert topology is not None
    use(topology, folder)


def parse_components(texts: tuple[str, str], folder: Path) -> None:
    write_text(folder / "a.json", texts[0])
    write_text(folder / ".history/a.jsonl", texts[1])
    read_component_documents(folder)
    read_component_histories(folder)


def parse_modules(data: bytes, _folder: Path) -> None:
    found = parse_memory_modules(data)
    assert isinstance(found, str) or all(size >= 0 and rate > 0 for size, rate, _ in found)


def parse_cpu_set(text: str, _folder: Path) -> None:
    for parse in (parse_cpu_list, parse_mask):
        try:
            found = parse(text)
        except ValueError:
            continue
        assert parse_cpu_list(format_cpu_list(found)) == found


def topology_documents() -> list[Any]:
    return [topology_to_json(shipped_topology(name)) for name in ("desktop", "epyc_9554_cxl")]


xml = st.one_of(changed(XML, change_xml), changed(XML, change_bytes), st.sampled_from(ODD_XML))
# Name -> its inputs, its parser and its share of the examples.
CASES: dict[
    str, tuple[Callable[[], st.SearchStrategy[Any]], Callable[[Any, Path], None], float]
] = {
    "hwloc XML": (lambda: xml, parse_file, 0.1),
    "description": (
        lambda: changed([described()], change_description),
        lambda text, folder: parse_file(text.encode(), folder),
        0.12,
    ),
    "dmidecode": (
        lambda: changed([DMIDECODE], change_text),
        lambda text, _: parse_dmidecode_memory_modules(text) and None,
        0.4,
    ),
    "SMBIOS table": (
        lambda: changed([smbios_table()], change_bytes) | st.binary(max_size=200),
        parse_modules,
        0.4,
    ),
    "CPU sets": (
        lambda: (
            changed(["0-3,8", "0x0000000f,,0x1", "ff,00000001"], change_text)
            | st.text("0123456789abcdefx,- ", max_size=40)
        ),
        parse_cpu_set,
        0.4,
    ),
    "topology.json": (lambda: changed_json(topology_documents()), parse_topology_json, 0.15),
    "components": (
        lambda: st.tuples(changed_json([COMPONENT]), changed([HISTORY], change_text)),
        parse_components,
        0.2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_any_input_gives_a_value_or_one_sentence(name: str, tmp_path: Path) -> None:
    inputs, parse, share = CASES[name]
    check_any_input(inputs(), parse, tmp_path, share)


def test_any_xml_without_hwloc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without lstopo, the XML is read as it is."""
    monkeypatch.setenv("PATH", "/nowhere")
    check_any_input(xml, parse_file, tmp_path, 0.15)
