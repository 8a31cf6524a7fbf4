"""The sources of a topology: a live machine, an hwloc XML file, or a captured /sys.

A captured /sys is a directory, as hwloc-gather-topology packs it. The runner describes a live host
as a JSON object (runner/describe_host.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lxml import etree

from chaosity.errors import UserError, malformed_as_user_error
from chaosity.runner.describe_host import read_machine_facts
from chaosity.topology import hwloc
from chaosity.topology.sysfs_reader import SysfsReader

LIVE = "live"

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# A host with 192 processing units describes itself in less than 2 MB.
_MOST_DESCRIPTION_BYTES = 2**27


@dataclass(frozen=True)
class TopologySource:
    """An opened source of a topology: hwloc's XML, and the kernel's files if there are any."""

    name: str  # name of the file or directory, or "live"
    kind: str  # live, xml or sysfs
    xml: etree._Element  # hwloc's XML, format 2
    # Reader of the source's /sys and /proc; without any file for an XML.
    sysfs: SysfsReader = field(default_factory=lambda: SysfsReader({}))
    # Facts on a live machine, as `runner.describe_host.read_machine_facts` returns them.
    facts: Mapping[str, Any] = field(default_factory=dict)


def open_topology_source(name: str) -> TopologySource:
    """Open `live`, an hwloc XML file, or a directory with a captured /sys.

    A JSON file is the description that the runner made of a live host.

    Raises:
        UserError: the source cannot be read, or hwloc is missing or too old for it.
    """
    path = Path(name)
    if name == LIVE:
        xml, sysfs = hwloc.run_lstopo("this machine"), SysfsReader(Path("/"))
        return TopologySource(name, LIVE, xml, sysfs, read_machine_facts())
    if path.is_dir():
        root = _find_capture_root(path.resolve(), path)
        return TopologySource(
            name, "sysfs", hwloc.run_lstopo(name, capture=root), SysfsReader(root)
        )
    if path.suffix == ".json" and path.exists():
        facts = read_description(path)
        xml = hwloc.parse_xml(facts["topology_xml"].encode(), name)
        return TopologySource(name, LIVE, xml, SysfsReader(facts["files"]), facts)
    if path.name.lower().endswith(_TAR_SUFFIXES) and path.exists():
        raise UserError("the file is a tarball", name, "unpack it, and give its directory")
    return TopologySource(name, "xml", hwloc.read_hwloc_xml_as_format_2(path))


def read_description(path: Path) -> dict[str, Any]:
    """Return the description that a host's runner made: hwloc's XML, kernel files and facts.

    Raises:
        UserError: the file is not a description, or is too large.
    """
    with malformed_as_user_error("the description of the host is broken", str(path)):
        with path.open("rb") as stream:
            text = stream.read(_MOST_DESCRIPTION_BYTES + 1)
        if len(text) > _MOST_DESCRIPTION_BYTES:
            raise ValueError(f"it has more than {_MOST_DESCRIPTION_BYTES // 2**20} MiB")
        facts = json.loads(text)
        json.dumps(facts, ensure_ascii=False).encode()  # half a character would fit into no file
        return {**facts}


def _find_capture_root(folder: Path, source: Path) -> Path:
    """Return the directory that has `sys`: the folder itself, a child of it, or its parent."""
    children = [item for item in sorted(folder.iterdir()) if item.is_dir()]
    for root in (folder, *children):
        if (root / "sys/devices/system").is_dir():
            return root
    if folder.name == "sys" and (folder / "devices/system").is_dir():
        return folder.parent
    remedy = "capture /sys with `hwloc-gather-topology NAME`, and unpack it"
    raise UserError("sys/devices/system of a captured /sys is missing", str(source), remedy)
