"""Where a topology comes from: a live machine, an hwloc XML file, or a captured /sys."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from chaosity.runner import describe
from chaosity.topology import lstopo
from chaosity.topology.captures import capture_root, is_tarball, unpacked
from chaosity.topology.sysfs import SysTree

LIVE = "live"


@dataclass(frozen=True)
class Source:
    """An opened source: hwloc's XML, and its /sys and /proc, which an XML file comes without.

    Of a live machine `architecture`, `memory_modules` (what dmidecode printed) and `opencl` (what
    clinfo printed) are known too.
    """

    name: str
    kind: str
    xml: etree._Element
    sysfs: SysTree | None
    architecture: str | None = None
    memory_modules: str | None = None
    opencl: str | None = None


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """Opens `live`, an hwloc XML file, or a directory or tarball with a captured /sys.

    A tarball may also be what the runner says of a live host (runner/describe.py). It is unpacked
    into a temporary directory, which is gone after the context.

    Raises:
        UserError: when the source cannot be read, or hwloc is missing or too old for it.
    """
    path = Path(name)
    if name == LIVE:
        xml, machine = lstopo.explore_live(), platform.machine()
        said = describe.memory_modules(), describe.opencl()
        yield Source(name, LIVE, xml, SysTree(Path("/")), machine, *said)
    elif path.is_dir():
        yield _capture(name, capture_root(path.resolve(), path))
    elif path.exists() and is_tarball(path):
        with unpacked(path) as top:
            facts = top / describe.FACTS
            yield _described(name, top, facts) if facts.exists() else _capture(name, top)
    else:
        yield Source(name, "xml", lstopo.read_xml(path), None)


def _capture(name: str, root: Path) -> Source:
    return Source(name, "sysfs", lstopo.explore_capture(root, name), SysTree(root))


def _described(name: str, root: Path, facts: Path) -> Source:
    said = json.loads(facts.read_text(encoding="utf-8"))
    xml = lstopo.described_xml(root / describe.XML)
    printed = said["memory_modules"], said.get("opencl")
    return Source(name, LIVE, xml, SysTree(root), said["architecture"], *printed)
