"""Where a topology comes from: this machine, an hwloc XML file, or a captured /sys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from chaosity.topology import lstopo
from chaosity.topology.captures import capture_root, is_tarball, unpacked
from chaosity.topology.sysfs import SysTree

LIVE = "live"


@dataclass(frozen=True)
class Source:
    """An opened source: hwloc's XML, and its /sys and /proc, which an XML file comes without."""

    name: str
    kind: str
    xml: etree._Element
    sysfs: SysTree | None


@contextmanager
def opened(name: str) -> Iterator[Source]:
    """Opens `live`, an hwloc XML file, or a directory or tarball with a captured /sys.

    A tarball is unpacked into a temporary directory, which is gone after the context.

    Raises:
        UserError: when the source cannot be read, or hwloc is missing or too old for it.
    """
    path = Path(name)
    if name == LIVE:
        yield Source(name, "live", lstopo.explore_live(), SysTree(Path("/")))
    elif path.is_dir():
        yield _capture(name, capture_root(path.resolve(), path))
    elif path.exists() and is_tarball(path):
        with unpacked(path) as top:
            yield _capture(name, top)
    else:
        yield Source(name, "xml", lstopo.read_xml(path), None)


def _capture(name: str, root: Path) -> Source:
    return Source(name, "sysfs", lstopo.explore_capture(root, name), SysTree(root))
