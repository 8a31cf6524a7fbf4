"""hwloc's XML of a host with measured memory attributes.

hwloc has the firmware's claims about memory (the HMAT) as attributes: Bandwidth in MiB/s and
Latency in ns, of a target node from an initiator, which is a set of processing units
(hwloc/memattrs.h). Programs ask hwloc for the best node from where they run. With measured values
as attributes, hwloc answers from the measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lxml import etree

from chaosity.cpusets import CpuSet, format_mask, parse_mask
from chaosity.errors import UserError
from chaosity.export.host_measurements_for_export import (
    MeasuredHost,
    NodeMeasurements,
    select_node_measurements,
)
from chaosity.store.node_matrix_csv import BANDWIDTH, LATENCY
from chaosity.topology.run_lstopo import read_xml_of_description
from chaosity.units import format_count

_MIB = 2**20
_MAX_LISTED = 3  # pairs of nodes that a note names


@dataclass(frozen=True)
class _Attribute:
    """An attribute of hwloc.

    Attributes:
        name: hwloc's name.
        flags: 1 when higher is better, 2 when lower is better, plus 4 for a needed initiator.
        factor: hwloc's unit in the unit of our metric.
    """

    name: str
    flags: int
    factor: float


# Our metric -> hwloc's attribute. ReadBandwidth and similar attributes stay as in the firmware:
# kernels that only read are measured on local memory alone, which does not show the best node.
_ATTRIBUTES = {
    BANDWIDTH: _Attribute("Bandwidth", 5, float(_MIB)),
    LATENCY: _Attribute("Latency", 6, 1.0),
}


@dataclass(frozen=True)
class HwlocExport:
    """The XML and notes on its content.

    Attributes:
        xml: format 2, as the host's own ``topology.xml``; hwloc 2.3 and later have attributes.
        notes: what was written, left out, replaced and kept, a sentence each.
        values: number of written values, of all attributes.
    """

    xml: str
    notes: tuple[str, ...]
    values: int


@dataclass
class _AttributeValues:
    """The values of one attribute.

    Attributes:
        values: (gp_index of the target, processing units of the initiator) -> value.
        left_out: pairs of nodes without a value, with the reason.
        replaced: number of the firmware's claims that were removed.
        kept: number of the firmware's claims that were kept.
    """

    values: dict[tuple[str, CpuSet], int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    replaced: int = 0
    kept: int = 0


def export_hwloc_xml(host: MeasuredHost) -> HwlocExport:
    """The host's topology with the measured attributes.

    Raises:
        UserError: ``topology.xml`` is not readable.
    """
    root = read_xml_of_description(host.folder / "topology.xml")
    notes: list[str] = []
    written = 0
    for metric, attribute in _ATTRIBUTES.items():
        found = select_node_measurements(host, metric)
        if found is None:
            notes.append(
                f"{attribute.name}: no value written, since no pair of nodes was measured."
            )
            continue
        part = _attribute_values(root, host, found, attribute)
        if part.values:
            _write_values(root, attribute, part)
            _write_source(root, attribute, found, len(part.values))
        notes += _notes(attribute, found, part)
        written += len(part.values)
    others = [
        str(table.get("name"))
        for table in root.iterfind("memattr")
        if table.get("name") not in {attribute.name for attribute in _ATTRIBUTES.values()}
    ]
    if others:
        notes.append(f"{', '.join(others)}: kept as claimed by the firmware.")
    text = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8").decode()
    return HwlocExport(text + "\n", tuple(notes), written)


def _machine(root: etree._Element) -> etree._Element:
    """The outermost object, which is the machine.

    Raises:
        UserError: the XML has no object.
    """
    machine = root.find("object")
    if machine is None:
        raise UserError("has no object of type Machine", "topology.xml")
    return machine


def _attribute_values(
    root: etree._Element, host: MeasuredHost, found: NodeMeasurements, attribute: _Attribute
) -> _AttributeValues:
    """The values of an attribute, as integers, since hwloc has no fractions."""
    targets = {
        int(item.get("os_index", "0")): item.get("gp_index", "")
        for item in root.iterfind(".//object[@type='NUMANode']")
    }
    machine = set(parse_mask(_machine(root).get("cpuset", "0x0")))
    part = _AttributeValues(left_out=[f"{row} to {to} ({why})" for row, to, why in found.missing])
    for initiator, target, cell in found.valid:
        node = host.topology.find_node(initiator)
        cpus = tuple(cpu for cpu in (node.shown_cpus if node else ()) if cpu in machine)
        if target not in targets:
            part.left_out.append(f"{initiator} to {target} (hwloc shows no node {target})")
        elif not cpus:
            part.left_out.append(f"{initiator} to {target} (hwloc shows no unit of {initiator})")
        else:
            value = max(1, round(float(cell["median"]) / attribute.factor))
            part.values[targets[target], cpus] = value
    return part


def _write_values(root: etree._Element, attribute: _Attribute, part: _AttributeValues) -> None:
    """Write the values, and remove the claims that hwloc would compare with them.

    hwloc takes the first value whose initiator includes the units that a program asks for, and
    compares it with the values of other targets. So a claim of the firmware is removed as soon as
    one of its units has a measured value, even if the claim is for another node.
    """
    table = root.find(f"memattr[@name='{attribute.name}']")
    if table is None:
        table = etree.Element("memattr", name=attribute.name, flags=str(attribute.flags))
        table.text = table.tail = "\n  "
        kinds = root.find("cpukind")  # the last element in hwloc's DTD
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


def _write_source(
    root: etree._Element, attribute: _Attribute, found: NodeMeasurements, values: int
) -> None:
    """Write the origin of the values as an info of the machine, for copies of the file."""
    machine = _machine(root)
    info = etree.Element("info", name=f"Chaosity{attribute.name}")
    info.set("value", f"{format_count(values, 'value')}, measured: {found.text}")
    info.tail = "\n    "
    first = machine.find("info")
    machine.insert(0, info) if first is None else first.addprevious(info)


def _notes(attribute: _Attribute, found: NodeMeasurements, part: _AttributeValues) -> Iterator[str]:
    name = attribute.name
    replaced, kept = (format_count(n, "claim") for n in (part.replaced, part.kept))
    yield f"{name}: {format_count(len(part.values), 'value')} written, medians of {found.text}."
    if part.left_out:
        listed = ", ".join(part.left_out[:_MAX_LISTED])
        more = len(part.left_out) - _MAX_LISTED
        others = f" and {format_count(more, 'other')}" if more > 0 else ""
        yield f"{name}: left out node {listed}{others}."
    if part.replaced:
        yield (
            f"{name}: {replaced} of the firmware removed, since hwloc would "
            "compare them with the measured values."
        )
    if part.kept:
        yield (f"{name}: {kept} of the firmware kept, from units without a measured value.")
