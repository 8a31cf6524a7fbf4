"""hwloc's XML of a host with what was measured as memory attributes.

hwloc keeps what firmware claims of memory (the HMAT) as attributes: Bandwidth in MiB/s and Latency
in ns, of a target node from an initiator, which is a set of processing units (hwloc/memattrs.h).
Programs ask it for the best node from where they run. Put measured values there, and each program
that asks hwloc is answered from measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from chaosity.export.measured_host import MeasuredHost, NodeMeasurements, select_node_measurements
from chaosity.store.node_matrix import BANDWIDTH, LATENCY
from chaosity.topology import CpuSet, format_mask, parse_mask
from chaosity.topology.lstopo import read_described_xml
from chaosity.units import format_count

_MIB = 2**20
_LISTED = 3  # pairs that a note names; the others are counted


@dataclass(frozen=True)
class _Attribute:
    """One of hwloc's own attributes.

    Attributes:
        name: as hwloc calls it.
        flags: 1 for higher is better, 2 for lower, and 4 since an initiator is needed.
        factor: what one of hwloc's unit is in ours.
    """

    name: str
    flags: int
    factor: float


# Our metric -> hwloc's attribute. ReadBandwidth and the like stay as firmware gave them: kernels
# that only read are measured from a node to itself alone, which says nothing of which node is best.
_ATTRIBUTES = {
    BANDWIDTH: _Attribute("Bandwidth", 5, float(_MIB)),
    LATENCY: _Attribute("Latency", 6, 1.0),
}


@dataclass(frozen=True)
class HwlocExport:
    """The XML and what has to be said of it.

    Attributes:
        xml: format 2, as the host's own ``topology.xml``; hwloc 2.3 and later know attributes.
        notes: what was written, left out, replaced and kept, a sentence each.
        values: how many values were written, of all attributes.
    """

    xml: str
    notes: tuple[str, ...]
    values: int


@dataclass
class _Part:
    """What becomes of one attribute: values by target's gp_index and initiator, and notes."""

    values: dict[tuple[str, CpuSet], int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    replaced: int = 0
    kept: int = 0


def export_hwloc(host: MeasuredHost) -> HwlocExport:
    """The host's topology with what was measured.

    Raises:
        UserError: the folder has no readable ``topology.xml``.
    """
    root = read_described_xml(host.folder / "topology.xml")
    notes: list[str] = []
    written = 0
    for metric, attribute in _ATTRIBUTES.items():
        found = select_node_measurements(host, metric)
        if found is None:
            notes.append(f"{attribute.name}: nothing to write, no pair of nodes was measured.")
            continue
        part = _part(root, host, found, attribute)
        if part.values:
            _write(root, attribute, part)
            _say_source(root, attribute, found, len(part.values))
        notes += _notes(attribute, found, part)
        written += len(part.values)
    others = [
        str(table.get("name"))
        for table in root.iterfind("memattr")
        if table.get("name") not in {one.name for one in _ATTRIBUTES.values()}
    ]
    if others:
        notes.append(f"{', '.join(others)}: kept as firmware claims.")
    text = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8").decode()
    return HwlocExport(text + "\n", tuple(notes), written)


def _part(
    root: etree._Element, host: MeasuredHost, found: NodeMeasurements, attribute: _Attribute
) -> _Part:
    """The values of an attribute; hwloc knows no part of a unit, so they are whole."""
    targets = {
        int(item.get("os_index")): item.get("gp_index")
        for item in root.iterfind(".//object[@type='NUMANode']")
    }
    machine = set(parse_mask(root.find("object").get("cpuset")))
    part = _Part(left_out=[f"{row} to {to} ({why})" for row, to, why in found.missing])
    for initiator, target, cell in found.valid:
        node = host.topology.node(initiator)
        cpus = tuple(cpu for cpu in (node.shown_cpus if node else ()) if cpu in machine)
        if target not in targets:
            part.left_out.append(f"{initiator} to {target} (hwloc shows no node {target})")
        elif not cpus:
            part.left_out.append(f"{initiator} to {target} (hwloc shows no unit of {initiator})")
        else:
            value = max(1, round(float(cell["median"]) / attribute.factor))
            part.values[targets[target], cpus] = value
    return part


def _write(root: etree._Element, attribute: _Attribute, part: _Part) -> None:
    """Put the values in, and take out the claims that they would be compared with.

    hwloc takes the first value whose initiator holds the units that a program asks for, and
    compares it with those of other targets. So a claim of firmware has to go as soon as one of its
    units was measured from, be it for a node that was not.
    """
    table = root.find(f"memattr[@name='{attribute.name}']")
    if table is None:
        table = etree.Element("memattr", name=attribute.name, flags=str(attribute.flags))
        table.text = table.tail = "\n  "
        kinds = root.find("cpukind")  # the last in hwloc's DTD
        root.append(table) if kinds is None else kinds.addprevious(table)
    measured = {cpu for _, cpus in part.values for cpu in cpus}
    for claim in list(table):
        if measured.isdisjoint(parse_mask(claim.get("initiator_cpuset") or "0x0")):
            part.kept += 1
        else:
            table.remove(claim)
            part.replaced += 1
    for (target, cpus), value in part.values.items():
        item = etree.SubElement(table, "memattr_value")
        item.set("target_obj_type", "NUMANode")
        item.set("target_obj_gp_index", target)
        item.set("value", str(value))
        item.set("initiator_cpuset", format_mask(cpus))
    etree.indent(table, level=1)


def _say_source(
    root: etree._Element, attribute: _Attribute, found: NodeMeasurements, values: int
) -> None:
    """An info of the machine, so that a copy of the file still says where its values are from."""
    machine = root.find("object")
    info = etree.Element("info", name=f"Chaosity{attribute.name}")
    info.set("value", f"{format_count(values, 'value')}, measured: {found.words}")
    info.tail = "\n    "
    first = machine.find("info")
    machine.insert(0, info) if first is None else first.addprevious(info)


def _notes(attribute: _Attribute, found: NodeMeasurements, part: _Part) -> Iterator[str]:
    name = attribute.name
    yield f"{name}: {format_count(len(part.values), 'value')} written, medians of {found.words}."
    if part.left_out:
        listed = ", ".join(part.left_out[:_LISTED])
        more = len(part.left_out) - _LISTED
        others = f" and {format_count(more, 'other')}" if more > 0 else ""
        yield f"{name}: left out node {listed}{others}."
    if part.replaced:
        yield (
            f"{name}: {format_count(part.replaced, 'claim')} of firmware taken out, since hwloc would "
            "compare them with what was measured."
        )
    if part.kept:
        yield (
            f"{name}: {format_count(part.kept, 'claim')} of firmware kept, from units that nothing was "
            "measured from."
        )
