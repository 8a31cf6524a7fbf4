"""Parsers of what describes a machine: hwloc's XML, tarballs, firmware tables, OpenCL listings."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from lxml import etree

from chaosity.checked_yaml_files import ROOT
from chaosity.components.component_files import (
    read_component_documents,
    write_changed_components,
)
from chaosity.components.component_history import read_component_histories
from chaosity.components.make_component_documents import make_component_documents
from chaosity.cpusets import format_cpu_list, parse_cpu_list, parse_mask
from chaosity.runner.memory_module_table import parse_memory_modules
from chaosity.topology.configuration_names import configuration_name
from chaosity.topology.host_facts import parse_dmidecode_memory_modules
from chaosity.topology.topology_discovery import discover_topology, discover_topology_with_xml
from chaosity.topology.topology_json import read_topology, topology_from_json, topology_to_json
from fuzz.mutations import (
    ODD_NUMBERS,
    ODD_TEXTS,
    change_bytes,
    change_document,
    change_text,
    change_xml,
    mutated,
    mutated_json,
)
from fuzz.watched_parser import Parser
from shipped_data import REAL_MACHINES

DATA = ROOT / "tests" / "data"
_LARGEST_SAMPLE = 120_000

Files = dict[str, bytes]


@cache
def xml_samples() -> list[etree._Element]:
    """Return small and middle-sized topologies: shipped, made for tests, and real."""
    folders = (ROOT / "machines" / "topologies", DATA / "topologies", REAL_MACHINES / "xml")
    paths = [path for folder in folders for path in sorted(folder.glob("*.xml"))]
    small = [path for path in paths if path.stat().st_size < _LARGEST_SAMPLE]
    return [etree.fromstring(path.read_bytes()) for path in small]


_BOMB = (
    '<?xml version="1.0"?><!DOCTYPE topology [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(12))
    + '<!ENTITY file SYSTEM "file:///etc/passwd">]>'
    '<topology version="2.0"><object type="Machine" os_index="0" cpuset="0x1"'
    ' complete_cpuset="0x1" allowed_cpuset="0x1" nodeset="0x1" allowed_nodeset="0x1">'
    '<info name="OSName" value="&m;"/><info name="HostName" value="x">&file;</info>'
    '<object type="PU" os_index="0" cpuset="0x1"/></object></topology>'
)


def xml_inputs() -> st.SearchStrategy[bytes]:
    """Return XML files: trees with changed elements, and changed bytes."""
    files = [etree.tostring(root) for root in xml_samples()]
    deep = b'<topology version="2.0">' + b'<object type="Group">' * 5000
    return st.one_of(
        *[mutated(xml_samples(), change_xml, 3).map(etree.tostring)] * 4,
        mutated(files, change_bytes),
        st.sampled_from([_BOMB.encode(), deep, b"", b"<", b"<topology/>", b"\0" * 100]),
    )


def _parse_xml(data: bytes, folder: Path, *, with_hwloc: bool) -> None:
    path, search = folder / "machine.xml", os.environ["PATH"]
    path.write_bytes(data)
    try:
        os.environ["PATH"] = search if with_hwloc else str(folder)
        topology, text = discover_topology_with_xml(str(path))
    finally:
        os.environ["PATH"] = search
    etree.fromstring(text.encode())
    again = topology_from_json(json.loads(json.dumps(topology_to_json(topology))))
    assert configuration_name(again) == configuration_name(topology)
    make_component_documents(topology)


@cache
def description_samples() -> list[Files]:
    """Return the members of descriptions, as runner/describe_host.py writes them."""
    files: Files = {
        "sys/devices/system/cpu/online": b"0-3\n",
        "sys/devices/system/cpu/smt/control": b"on\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq": b"800000\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": b"3600000\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": b"0\n",
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": b"0\n",
        "sys/devices/system/cpu/cpu0/cpuidle/state1/disable": b"1\n",
        "sys/devices/virtual/memory_tiering/memory_tier4/nodelist": b"0-1\n",
        "sys/bus/pci/devices/0000:41:00.0/numa_node": b"1\n",
        "sys/bus/pci/devices/0000:41:00.0/current_link_speed": b"16.0 GT/s PCIe\n",
        "sys/bus/pci/devices/0000:41:00.0/current_link_width": b"4\n",
        "sys/class/block/nvme0n1/size": b"7501476528\n",
        "sys/class/block/nvme0n1/device/serial": b"S64GNE0R\n",
        "sys/class/net/eth0/speed": b"25000\n",
        "sys/kernel/mm/transparent_hugepage/enabled": b"always [madvise] never\n",
        "proc/cmdline": b"root=/dev/sda1 isolcpus=1 -- x\n",
        "proc/cpuinfo": b"processor\t: 0\nvendor_id\t: AuthenticAMD\nclflush size\t: 64\n\n",
        "proc/zoneinfo": b"Node 0, zone   Normal\n        present  4000\nNode 1, zone   Normal\n",
    }
    for node in (0, 1):
        base = f"sys/devices/system/node/node{node}"
        files[f"{base}/cpulist"] = f"{2 * node}-{2 * node + 1}\n".encode()
        files[f"{base}/distance"] = b"10 21\n" if node == 0 else b"21 10\n"
        files[f"{base}/meminfo"] = f"Node {node} MemTotal:       24683520 kB\n".encode()
        files[f"{base}/hugepages/hugepages-2048kB/nr_hugepages"] = b"4\n"
    listed = json.loads((DATA / "recorded" / "opencl-devices_pocl-3.1.json").read_text())
    facts = {
        **{"hostname": "node01", "architecture": "x86_64", "boot_id": "1-2-3\n"},
        "opencl_devices": listed["devices"],
        **{"memory_modules": DMIDECODE, "module_table": [[2**34, 25_600_000_000, "P0 A"]]},
        **{"tools": [], "runner_sha256": None, "user_id": 0, "usable_cpus": 4},
    }
    files["host.json"] = json.dumps(facts).encode()
    return [{"topology.xml": etree.tostring(root), **files} for root in xml_samples()[:6]]


def change_files(generator: random.Random, files: Files) -> Files:
    """Change, remove, rename or repeat one file of a description."""
    files = dict(files)
    name, kind = generator.choice(sorted(files)), generator.randrange(7)
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[
            generator.choice(("../out", "/tmp/chaosity-out", "sys/../../out", "sys", name + "/x"))
        ] = b"x"
    elif kind == 2:
        files[name] = generator.choice((*ODD_NUMBERS, *ODD_TEXTS)).encode(errors="replace")
    elif name == "topology.xml":
        files[name] = etree.tostring(change_xml(generator, etree.fromstring(files[name])))
    elif name == "host.json":
        files[name] = json.dumps(change_document(generator, json.loads(files[name]))).encode()
    else:
        text = change_text(generator, files[name].decode(errors="replace"))
        files[name] = text.encode(errors="replace")
    return files


def _safe_change_files(generator: random.Random, files: Files) -> Files:
    try:
        return change_files(generator, files)
    except (ValueError, etree.XMLSyntaxError, IndexError):  # an earlier change broke the file
        return {**files, generator.choice(sorted(files)): b"\xff\x00broken"}


def tarball(files: Files, seed: int = 0) -> bytes:
    """Return files as a tarball, rarely with links, devices and repeated members."""
    generator, stream = random.Random(seed), io.BytesIO()
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("\0", "0"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            if seed and generator.randrange(20) == 0:
                odd = tarfile.TarInfo(generator.choice((name, "sys", "sys/link", "topology.xml")))
                odd.type = generator.choice(kinds)
                odd.linkname = generator.choice(("/etc", "../..", "sys", "host.json", "/dev/zero"))
                archive.addfile(odd)
    return stream.getvalue()


def description_inputs() -> st.SearchStrategy[bytes]:
    """Return descriptions with changed files, unusual members and changed bytes."""
    files = mutated(description_samples(), _safe_change_files)
    good = [tarball(sample) for sample in description_samples()]
    return st.one_of(
        *[st.builds(tarball, files, st.sampled_from([0, 0, 1, 2, 3, 4, 5, 6]))] * 4,
        mutated(good, change_bytes),
        mutated([gzip.decompress(one) for one in good[:2]], change_bytes),
    )


def _parse_description(data: bytes, folder: Path) -> None:
    path = folder / "description.tar.gz"
    path.write_bytes(data)
    topology, _ = discover_topology_with_xml(str(path))
    write_changed_components(folder / "components", make_component_documents(topology))
    topology_from_json(json.loads(json.dumps(topology_to_json(topology))))


@cache
def capture_samples() -> list[bytes]:
    """Return captured /sys of a small machine."""
    files = {
        name: content
        for name, content in description_samples()[0].items()
        if name.startswith(("sys/", "proc/"))
    }
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files[f"{base}/topology/physical_package_id"] = b"0\n"
        files[f"{base}/topology/core_id"] = f"{cpu}\n".encode()
        files[f"{base}/topology/core_cpus"] = f"{1 << cpu:x}\n".encode()
        files[f"{base}/topology/thread_siblings"] = f"{1 << cpu:x}\n".encode()
        files[f"{base}/topology/package_cpus"] = b"f\n"
        files[f"{base}/topology/core_siblings"] = b"f\n"
    files["sys/devices/system/cpu/possible"] = files["sys/devices/system/cpu/present"] = b"0-3\n"
    files["sys/devices/system/node/online"] = files["sys/devices/system/node/possible"] = b"0-1\n"
    for node in (0, 1):
        files[f"sys/devices/system/node/node{node}/cpumap"] = b"3\n" if node == 0 else b"c\n"
    return [tarball(files)]


def _capture_files() -> list[Files]:
    found = []
    for data in capture_samples():
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found.append({m.name: archive.extractfile(m).read() for m in archive if m.isfile()})  # type: ignore[union-attr]
    return found


def _parse_capture(data: bytes, folder: Path) -> None:
    path = folder / "capture.tar.gz"
    path.write_bytes(data)
    discover_topology(str(path))


DMIDECODE = """Memory Device
\tSize: 32 GB
\tLocator: P0 CHANNEL A
\tBank Locator: BANK 0
\tType: DDR4
\tRank: 2
\tSpeed: 3200 MT/s
\tManufacturer: Samsung
\tSerial Number: 12345678
\tPart Number: M393A4K40DB3-CWE
\tConfigured Memory Speed: 2933 MT/s

Memory Device
\tSize: No Module Installed
\tLocator: P0 CHANNEL B
"""


def smbios_table() -> bytes:
    """Return an SMBIOS table with two modules and an empty slot."""
    table = b""
    for size, kind in ((0x7FFF, 0x1A), (32768, 0x22), (0, 2)):
        fields = bytearray(0x5C)
        fields[0], fields[1] = 17, 0x5C
        struct.pack_into("<HH", fields, 0x0A, 64, size)
        fields[0x10:0x13] = bytes((1, 2, kind))
        struct.pack_into("<I", fields, 0x1C, 65536)
        struct.pack_into("<H", fields, 0x20, 3200)
        table += bytes(fields) + b"P0 CHANNEL A\0BANK 0\0\0"
    return table + b"\x7f\x04\0\0\0\0"


def _parse_smbios(data: bytes, _folder: Path) -> None:
    found = parse_memory_modules(data)
    assert isinstance(found, str) or all(size >= 0 and rate > 0 for size, rate, _ in found)


def _parse_cpu_sets(text: str, _folder: Path) -> None:
    for parse in (parse_cpu_list, parse_mask):
        try:
            found = parse(text)
        except ValueError:
            continue
        assert parse_cpu_list(format_cpu_list(found)) == found


@cache
def topology_documents() -> list[Any]:
    """Return the documents of topology.json of some machines."""
    names = ("desktop", "xeon_8358", "epyc_9554_cxl")
    folder = ROOT / "machines" / "topologies"
    return [topology_to_json(discover_topology(str(folder / f"{name}.xml"))) for name in names]


def _parse_topology_json(text: str, folder: Path) -> None:
    path = folder / "topology.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    topology = read_topology(path)
    assert topology is not None
    topology_to_json(topology)
    make_component_documents(topology)
    configuration_name(topology)


def _parse_components(texts: tuple[str, str], folder: Path) -> None:
    (folder / ".history").mkdir()
    for path, text in zip((folder / "a.json", folder / ".history" / "a.jsonl"), texts, strict=True):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
    read_component_documents(folder)
    read_component_histories(folder)


def _capture_inputs() -> st.SearchStrategy[bytes]:
    files = mutated(_capture_files(), _safe_change_files).map(tarball)
    return st.one_of(files, mutated(capture_samples(), change_bytes))


def parsers() -> list[Parser]:
    """Return the parsers of this family."""
    components = [{"component": "drive", "serial": "S1", "node": 0, "size_bytes": 10**12}]
    history = [json.dumps({"since": "2026-11-20T13:45:00.000Z", "content": components[0]}) + "\n"]
    return [
        Parser(
            "hwloc XML",
            "hwloc's XML of a machine, from a user; read without hwloc",
            xml_inputs,
            lambda data, folder: _parse_xml(data, folder, with_hwloc=False),
            examples=120,
        ),
        Parser(
            "hwloc XML through lstopo",
            "the same, converted by lstopo",
            xml_inputs,
            lambda data, folder: _parse_xml(data, folder, with_hwloc=True),
            examples=25,
        ),
        Parser(
            "description",
            "the tarball of `chaosity-run --describe` from a host: hwloc's XML, files of /sys and"
            " /proc, facts with the output of dmidecode and the OpenCL devices",
            description_inputs,
            _parse_description,
            examples=120,
        ),
        Parser(
            "captured /sys",
            "the tarball of hwloc-gather-topology, from a user",
            _capture_inputs,
            _parse_capture,
            examples=15,
        ),
        Parser(
            "dmidecode",
            "output of dmidecode --type 17",
            lambda: mutated([DMIDECODE], change_text),
            lambda text, _: parse_dmidecode_memory_modules(text),
        ),
        Parser(
            "SMBIOS table",
            "the firmware's table of memory modules",
            lambda: st.one_of(mutated([smbios_table()], change_bytes), st.binary(max_size=200)),
            _parse_smbios,
            examples=200,
        ),
        Parser(
            "CPU lists and masks",
            "sets of CPUs in /sys, hwloc's XML and files of others",
            lambda: st.one_of(
                mutated(["0-3,8", "0x0000000f,,0x1", "ff,00000001"], change_text),
                st.text("0123456789abcdefx,- ", max_size=40),
                st.sampled_from(ODD_NUMBERS),
            ),
            _parse_cpu_sets,
            examples=200,
        ),
        Parser(
            "topology.json",
            "the topology in results, perhaps of another hand",
            lambda: mutated_json(topology_documents()),
            _parse_topology_json,
            examples=120,
        ),
        Parser(
            "component files",
            "components/*.json and .history/*.jsonl, which people edit",
            lambda: st.tuples(mutated_json(components), mutated(history, change_text)),
            _parse_components,
            (),
            100,
        ),
    ]
