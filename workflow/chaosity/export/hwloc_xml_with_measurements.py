"""Export hwloc's XML of a host with measured memory attributes.

hwloc reads the firmware's claims about memory (from the HMAT) as attributes: Bandwidth in MiB/s and
Latency in ns. A value of an attribute belongs to a target node and an initiator, which is a set of
processing units (hwloc/memattrs.h). Programs ask hwloc which node is best for their processing
units. If the attributes have measured values, hwloc answers from the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from lxml import etree

from chaosity.cpusets import CpuSet, format_mask, parse_mask
from chaosity.errors import UserError, printable_short_line
from chaosity.export.main_matrices import MainMatrix, MeasuredHost, memory_matrix
from chaosity.place_names import node_name
from chaosity.store.csv_tables import BANDWIDTH, LATENCY
from chaosity.topology.hwloc import read_xml_root_element
from chaosity.units import format_count

_MIB_BYTES = 2**20
_MOST_LISTED_PAIRS = 3  # a note names at most this number of pairs of nodes


class _HwlocAttribute(NamedTuple):
    """An attribute of hwloc: its name, its flags, and its unit.

    `unit` is hwloc's unit, expressed in the unit of Chaosity's metric. `flags` is 1 if higher is
    better or 2 if lower is better, plus 4 if a value needs an initiator.
    """

    name: str
    flags: int
    unit: float


# Chaosity's metric -> hwloc's attribute. The attribute ReadBandwidth and similar attributes keep
# the firmware's values: kernels that only read are measured on local memory alone, so they do not
# show the best node.
_HWLOC_ATTRIBUTE_OF_METRIC = {
    BANDWIDTH: _HwlocAttribute("Bandwidth", 5, float(_MIB_BYTES)),
    LATENCY: _HwlocAttribute("Latency", 6, 1.0),
}


# (gp_index of the target, processing units of the initiator) -> value of an attribute
_ValueOfNodeAndCpus = Mapping[tuple[str, CpuSet], int]


def export_hwloc_xml(host: MeasuredHost) -> tuple[str, list[str]]:
    """Return the topology with measured attributes as XML, and sentences on the written values.

    The XML has format 2, like the host's ``topology.xml``; hwloc reads attributes from 2.3 on. The
    sentences say which values were written, left out, replaced and kept.

    Raises:
        UserError: ``topology.xml`` is not readable, or has no machine; or the host is simulated.
    """
    host.refuse_simulated_values("hwloc")
    root = read_xml_root_element(host.folder / "topology.xml")
    machine = root.find("object")
    if machine is None:
        raise UserError("the file has no object of type Machine", "topology.xml")
    origin = host.origin("hwloc")
    # The XML says where its values are from, so that copies of the file say so too. hwloc writes
    # the names of host and processor itself.
    infos = {
        "Configuration": str(origin["configuration"]),
        "MeasuredAt": f"{origin['measured_at_first']} to {origin['measured_at_last']}",
        "Version": str(origin["chaosity_version"]),
        "Command": printable_short_line(str(origin["command"])),  # XML has no control characters
    }
    notes: list[str] = []
    for metric, attribute in _HWLOC_ATTRIBUTE_OF_METRIC.items():
        name = attribute.name
        found = memory_matrix(host, metric)
        if found is None:
            notes.append(f"{name}: no value written, since no pair of nodes was measured.")
            continue
        values, left_out = _attribute_values(machine, host, found, attribute)
        number = format_count(len(values), "value")
        notes.append(f"{name}: {number} written, medians of {found.source}.")
        if left_out:
            listed = ", ".join(left_out[:_MOST_LISTED_PAIRS])
            more = len(left_out) - _MOST_LISTED_PAIRS
            others = f" and {format_count(more, 'other')}" if more > 0 else ""
            notes.append(f"{name}: left out node {listed}{others}.")
        if values:
            notes += _write_values(root, attribute, values)
            infos[name] = f"{number}, measured: {found.source}"
    _write_infos(machine, infos)
    own = {attribute.name for attribute in _HWLOC_ATTRIBUTE_OF_METRIC.values()}
    names = [str(table.get("name")) for table in root.iterfind("memattr")]
    if others := ", ".join(name for name in names if name not in own):
        notes.append(f"{others}: kept as claimed by the firmware.")
    text = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8").decode()
    return text + "\n", notes


def _write_infos(machine: etree._Element, infos: Mapping[str, str]) -> None:
    """Write infos about the values into the machine's element, before hwloc's infos."""
    first = machine.find("info")
    for name, value in infos.items():
        info = etree.Element("info", name=f"Chaosity{name}", value=value)
        info.tail = "\n    "
        machine.insert(0, info) if first is None else first.addprevious(info)


def _attribute_values(
    machine: etree._Element, host: MeasuredHost, found: MainMatrix, attribute: _HwlocAttribute
) -> tuple[_ValueOfNodeAndCpus, list[str]]:
    """Return the values as the integers that hwloc requires, and the pairs without a value."""
    targets = {
        node_name(int(item.get("os_index", "0"))): item.get("gp_index", "")
        for item in machine.iterfind(".//object[@type='NUMANode']")
    }
    shown = set(parse_mask(machine.get("cpuset", "0x0")))
    left_out = [
        f"{node} to {target.removeprefix('node')} ({why})"
        for (node, target), why in found.missing.items()
    ]
    values: dict[tuple[str, CpuSet], int] = {}
    for cell in found.cells:
        initiator, target = cell.node, cell.target.removeprefix("node")
        node = host.topology.find_node(initiator)
        cpus = tuple(cpu for cpu in (node.shown_cpus if node else ()) if cpu in shown)
        if cell.target not in targets:
            left_out.append(f"{initiator} to {target} (hwloc shows no node {target})")
        elif not cpus:
            left_out.append(f"{initiator} to {target} (hwloc shows no core of {initiator})")
        else:
            value = max(1, round(cell.estimate.median / attribute.unit))
            values[targets[cell.target], cpus] = value
    return values, left_out


def _write_values(
    root: etree._Element, attribute: _HwlocAttribute, values: _ValueOfNodeAndCpus
) -> list[str]:
    """Write the measured values, and remove those claims of the firmware that would mislead hwloc.

    hwloc takes the first value whose initiator includes the processing units of a query, and
    compares this value with the values of other targets. So a claim of the firmware is removed if
    one of its processing units has a measured value, even if the claim is for another node.

    Returns:
        Sentences on the removed and kept claims.
    """
    table = root.find(f"memattr[@name='{attribute.name}']")
    if table is None:
        table = etree.Element("memattr", name=attribute.name, flags=str(attribute.flags))
        table.text = table.tail = "\n  "
        kinds = root.find("cpukind")  # by hwloc's DTD the last element
        root.append(table) if kinds is None else kinds.addprevious(table)
    measured = {cpu for _, cpus in values for cpu in cpus}
    claims = list(table)
    for claim in claims:
        if not measured.isdisjoint(parse_mask(claim.get("initiator_cpuset") or "0x0")):
            table.remove(claim)
    kept = len(table)
    for (target, cpus), value in values.items():
        item = etree.SubElement(table, "memattr_value")
        item.set("target_obj_type", "NUMANode")
        item.set("target_obj_gp_index", target)
        item.set("value", str(value))
        item.set("initiator_cpuset", format_mask(cpus))
    etree.indent(table, level=1)
    reasons = {
        "removed, since hwloc would compare them with the measured values": len(claims) - kept,
        "kept, from processing units without a measured value": kept,
    }
    return [
        f"{attribute.name}: {format_count(number, 'claim')} of the firmware {reason}."
        for reason, number in reasons.items()
        if number
    ]
