"""Run hwloc's program lstopo and read the XML that lstopo prints as a tree of objects.

Only lstopo explores the structure of a machine. For each kind of source, lstopo prints hwloc's XML
format 2 with all I/O devices, so the other modules read a single format. lstopo converts XML files
of format 1, and explores a live machine or a captured /sys. The tree of objects has sets of numbers
instead of hwloc's bit masks. The modules `topology_discovery` and `devices` interpret the tree.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from lxml import etree

from chaosity.cpusets import HIGHEST_UNIT_OR_NODE_INDEX, CpuSet, is_index, parse_mask
from chaosity.errors import UserError
from chaosity.runner.describe_host import (
    ERROR_OF_HIDDEN_NODES,
    LSTOPO_PROGRAMS,
    TIMEOUT_SECONDS,
    are_nodes_hidden,
    lstopo_command,
    lstopo_environment,
)
from chaosity.topology.topology_parts import CoreKind, MemoryAttribute, SlitDistances

_REMEDY_TO_INSTALL_HWLOC = (
    "install hwloc (`apt install hwloc-nox` on Debian and Ubuntu, `dnf install hwloc` on RHEL)"
)
_OLDEST_HWLOC = (2, 0)
# This parser loads no DTD, expands no entities and removes comments. The XML that is written from
# this tree may have no comments, since hwloc's parser refuses XML with comments.
_SAFE_XML_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
)
_MOST_QUOTED_CHARACTERS = 80  # an error shows at most this part of unexpected output
# A larger file is refused. The XML of a server with 12 nodes and 192 processing units has 0.3 MB.
_MOST_XML_BYTES = 2**27


def read_hwloc_xml_as_format_2(path: Path) -> etree._Element:
    """Return an hwloc XML file of any format that the installed hwloc reads, converted to format 2.

    Raises:
        UserError: the file is missing, is not complete hwloc XML, or has a format that is too new.
    """
    root = read_xml_root_element(path)
    if root.tag != "topology":
        wrong = (
            f"the file is not the XML of hwloc: its root element is <{root.tag}>, not <topology>"
        )
        raise UserError(wrong, str(path), "write the file with `lstopo --of xml FILE`")
    stated = root.get("version", "1.0")  # a file of format 1 names no version
    major = stated.partition(".")[0]
    if not major.isdigit():
        wrong = f"{stated!r} is not a format version of hwloc's XML"
        raise UserError(wrong, str(path), "write the file with `lstopo --of xml FILE`")
    if major == "2" and not any(map(shutil.which, LSTOPO_PROGRAMS)):
        return root  # Format 2 needs no conversion, so a simulated host does not need hwloc.
    if int(major) > installed_hwloc_version()[0]:
        raise _too_new_version_error(f"version {stated}", str(path))
    return run_lstopo(str(path), root=root)


@cache
def installed_hwloc_version() -> tuple[int, ...]:
    """Return the version of the installed hwloc, such as `(2, 9, 0)`.

    Raises:
        UserError: hwloc is missing, or is older than 2.0 and so cannot write format 2.
    """
    answer = subprocess.run(
        [_lstopo_program(), "--version"], capture_output=True, text=True, check=False
    )
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    if not match:
        shown = f"`{_lstopo_program()} --version` prints {answer.stdout!r}, which has no version"
        raise UserError(shown, remedy=_REMEDY_TO_INSTALL_HWLOC)
    version = tuple(int(part or 0) for part in match.groups())
    if version < _OLDEST_HWLOC:
        text = f"hwloc {_dotted_text(version)} is too old; 2.0 or later is needed"
        raise UserError(text, remedy=_REMEDY_TO_INSTALL_HWLOC)
    return version


def _lstopo_program() -> str:
    for name in LSTOPO_PROGRAMS:
        if path := shutil.which(name):
            return path
    raise UserError("lstopo is not installed", remedy=_REMEDY_TO_INSTALL_HWLOC)


def _dotted_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def run_lstopo(
    where: str, *, root: etree._Element | None = None, capture: Path | None = None
) -> etree._Element:
    """Return the root element of the XML that lstopo prints.

    `where` names the source in error messages. With `root`, lstopo converts this XML. The XML is
    written anew for lstopo, because hwloc's own parser reads neither UTF-16 nor the line ends of
    Windows. With `capture`, lstopo explores the captured `sys` in this folder. Without `root` and
    `capture`, lstopo explores this machine.

    Raises:
        UserError: hwloc is missing or too old, or lstopo failed.
    """
    environment, given, source = lstopo_environment(), None, []
    if root is not None:
        tree = root.getroottree()
        given = etree.tostring(tree, xml_declaration=True, encoding="UTF-8")
        # Without --disallowed, lstopo would drop processing units that are forbidden in the file.
        source = ["--if", "xml", "--input", "-", "--disallowed"]
    elif capture:
        # Only hwloc's Linux component may run, since other components (CUDA, cpuid) would explore
        # this machine and not the capture.
        environment |= {"HWLOC_COMPONENTS": "linux,stop", "HWLOC_FSROOT": f"{capture}/"}
    command = lstopo_command(_lstopo_program(), installed_hwloc_version()[0], source)
    try:
        answer = subprocess.run(
            command,
            env=environment,
            input=given,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"lstopo did not answer within {TIMEOUT_SECONDS} s"
        remedy = f"run `{' '.join(command)}` to see where lstopo hangs"
        raise UserError(message, where, remedy) from None
    if answer.returncode or not answer.stdout.strip():
        if root is None and are_nodes_hidden(capture or Path("/")):
            raise UserError(ERROR_OF_HIDDEN_NODES, where)
        remedy = f"run `{_lstopo_program()}` to see the whole message"
        if root is not None or capture:
            remedy = "write the XML file, or capture /sys, again"
        raise _lstopo_error(answer.stderr.decode(errors="replace"), where, remedy)
    try:
        xml = etree.fromstring(answer.stdout, _SAFE_XML_PARSER)
    except etree.XMLSyntaxError:
        xml = None
    if xml is None or xml.tag != "topology" or xml.find("object") is None:
        shown = answer.stdout[:_MOST_QUOTED_CHARACTERS].decode(errors="replace")
        raise UserError(f"lstopo printed {shown!r}, not a topology", where, "reinstall hwloc")
    return xml


def _lstopo_error(stderr: str, where: str, remedy: str) -> UserError:
    """Return an error with the first line of the message with which lstopo failed."""
    if "XML version" in stderr and ">" in stderr:
        return _too_new_version_error("newer", where)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    message = lines[0].removeprefix("stdin: ") if lines else "no message"
    version = _dotted_text(installed_hwloc_version())
    return UserError(f"hwloc {version} cannot read the topology: {message}", where, remedy)


def read_xml_root_element(path: Path) -> etree._Element:
    """Return the root element of an XML file, in any encoding and with any line ends.

    Raises:
        UserError: the file is missing, is not complete XML, or has an impossible index of a node or
            processing unit.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_XML_BYTES + 1)
    except FileNotFoundError:
        remedy = "give `live`, an hwloc XML file, or a directory with a captured /sys"
        if path.parts[0] == "machines":  # as shipped with 0.1.0
            remedy = f"the machines that ship are in templates now: templates/{path}"
        raise UserError("does not exist", str(path), remedy) from None
    except OSError as error:
        raise UserError(f"the file cannot be read: {error.strerror}", str(path)) from None
    return parse_xml(text, str(path))


def parse_xml(text: bytes, where: str) -> etree._Element:
    """Return the root element of an XML text in any encoding; error messages name `where`.

    Raises:
        UserError: the text is not complete XML, or has an impossible index of a node or processing
            unit.
    """
    remedy = "write the file again with `lstopo --of xml FILE`"
    if len(text) > _MOST_XML_BYTES:
        raise UserError(f"the file is larger than {_MOST_XML_BYTES // 2**20} MiB", where)
    try:
        root = etree.fromstring(text, _SAFE_XML_PARSER)
    except etree.XMLSyntaxError as error:
        if getattr(error, "code", None) == etree.ErrorTypes.ERR_DOCUMENT_EMPTY:
            raise UserError("the file is not XML", where, remedy) from None
        whole = text.replace(b"\0", b"").rstrip().endswith(b"</topology>")  # UTF-16 has zeros
        what = "the file is not well-formed XML" if whole else "is truncated"
        raise UserError(f"{what}: {error.msg}", where, remedy) from None
    declared: Any = root.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        # hwloc writes no XML entities. lstopo could expand entities, or read files that entities
        # name.
        raise UserError("the file declares XML entities", where, remedy)
    for item in root.iter("object"):
        index = item.get("os_index", "")
        if item.get("type") in ("PU", "NUMANode") and not is_index(index):
            # For a set with a large index, hwloc would need minutes and gigabytes.
            wrong = f"the topology cannot be read: a {item.get('type')} has the os_index {index!r}"
            raise UserError(
                wrong, where, f"indexes are 0 to {HIGHEST_UNIT_OR_NODE_INDEX}; {remedy}"
            )
    return root


def _too_new_version_error(stated: str, where: str) -> UserError:
    installed = installed_hwloc_version()
    return UserError(
        f"the file is hwloc XML format {stated}, and the installed hwloc {_dotted_text(installed)} "
        f"reads formats up to {installed[0]}",
        where,
        "write the file again with `lstopo --export-xml-flags v2 --of xml FILE` on its host, "
        "or install a newer hwloc",
    )


IO_TYPES = frozenset({"Bridge", "PCIDev", "OSDev", "Misc"})
_MIB_BYTES = 2**20
_MHZ_HERTZ = 10**6
# Name of an attribute of memory in hwloc (hwloc/memattrs.h) -> name in Chaosity, and factor that
# converts hwloc's value (in MiB/s or ns).
_MEMORY_ATTRIBUTES = {
    "Bandwidth": ("bandwidth_bytes_per_second", _MIB_BYTES),
    "ReadBandwidth": ("read_bandwidth_bytes_per_second", _MIB_BYTES),
    "WriteBandwidth": ("write_bandwidth_bytes_per_second", _MIB_BYTES),
    "Latency": ("latency_ns", 1),
    "ReadLatency": ("read_latency_ns", 1),
    "WriteLatency": ("write_latency_ns", 1),
}


@dataclass
class HwlocObject:
    """An object of hwloc's tree; an object for I/O has neither processing units nor nodes.

    `complete_cpus` and `complete_nodes` also include processing units and nodes that are offline or
    that a cgroup forbids.
    """

    type: str
    attributes: dict[str, str]
    infos: dict[str, str]
    parent: HwlocObject | None
    children: list[HwlocObject] = field(default_factory=list)
    cpus: CpuSet = ()
    complete_cpus: CpuSet = ()
    nodes: CpuSet = ()
    complete_nodes: CpuSet = ()

    @property
    def os_index(self) -> int | None:
        """Return the operating system's number for the object; None if there is no number."""
        return self.attribute_number("os_index")

    @property
    def required_os_index(self) -> int:
        """Return the OS index of a node, processing unit or package, which all have an OS index."""
        return int(self.attributes["os_index"])

    @property
    def name(self) -> str | None:
        """Return the name of an OS device, such as nvme0n1."""
        return self.attributes.get("name")

    @property
    def subtype(self) -> str | None:
        """Return hwloc's subtype, such as MCDRAM for a node or CUDA for a device."""
        return self.attributes.get("subtype")

    @property
    def pci_function(self) -> HwlocObject | None:
        """Return this object or its nearest ancestor that is a PCI function; None without any."""
        return self if self.type == "PCIDev" else self.nearest_ancestor("PCIDev")

    @property
    def pci_address(self) -> str | None:
        """Return the address of the PCI function, such as 0000:41:00.0; None without one."""
        function = self.pci_function
        return function.attributes.get("pci_busid") if function else None

    @property
    def pci_class(self) -> str:
        """Return the class of a PCI function, four hexadecimal digits; "" if unknown."""
        # The attribute has the form `0108 [144d:a900] [144d:ad06] 00`.
        return self.attributes.get("pci_type", "").partition(" ")[0]

    @property
    def pci_id(self) -> str:
        """Return vendor and device numbers of a PCI function (`144d:a900`); "" if unknown."""
        match = re.search(r"\[(\w+:\w+)\]", self.attributes.get("pci_type", ""))
        return match[1] if match else ""

    def attribute_number(self, attribute: str) -> int | None:
        """Return an attribute as a whole number, or None if it is missing.

        Raises:
            ValueError: the attribute is not a whole number.
        """
        text = self.attributes.get(attribute)
        return None if text is None else int(text)

    def walk_subtree(self) -> Iterator[HwlocObject]:
        """Yield this object and all objects below it, in hwloc's order."""
        yield self
        for child in self.children:
            yield from child.walk_subtree()

    def objects_of_type(self, type_name: str) -> list[HwlocObject]:
        """Return all objects of a type at or below this object, in hwloc's order."""
        return [item for item in self.walk_subtree() if item.type == type_name]

    def ancestors_up_to_machine(self) -> Iterator[HwlocObject]:
        """Yield the parent of this object, then the parent's parent, and so on to the machine."""
        item = self.parent
        while item is not None:
            yield item
            item = item.parent

    def nearest_ancestor(self, type_name: str) -> HwlocObject | None:
        """Return the nearest ancestor that has this type; None without one."""
        return next(
            (item for item in self.ancestors_up_to_machine() if item.type == type_name), None
        )


class HwlocTree:
    """The tree of objects in an hwloc XML file, and the tables after the tree in the file."""

    def __init__(self, root: etree._Element) -> None:
        self.machine = _make_object(next(root.iterfind("object")), None)
        packages = self.machine.objects_of_type("Package")
        if any(
            package.os_index is None for package in packages
        ):  # hwloc on Windows writes no index
            for index, package in enumerate(packages):
                package.attributes["os_index"] = str(index)
        self._root = root

    @property
    def page_bytes(self) -> int:
        """Return the size of base pages in bytes: the first size in the file, or else 4 KiB."""
        page = self._root.find(".//page_type")
        return 4096 if page is None else int(page.attrib["size"])

    @property
    def allowed_cpus(self) -> CpuSet:
        """Return the processing units that the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_cpuset"])

    @property
    def allowed_nodes(self) -> CpuSet:
        """Return the NUMA nodes whose memory the cgroup allows."""
        return parse_mask(self.machine.attributes["allowed_nodeset"])

    def slit_distances(self) -> SlitDistances | None:
        """Return the SLIT, which has no name in files that hwloc 1 wrote; None if there is none."""
        tables = [
            item for item in self._root.iterfind("distances2") if item.get("type") == "NUMANode"
        ]
        tables.sort(key=lambda item: item.get("name") != "NUMALatency")
        if not tables:
            return None
        table, indexes = tables[0], _numbers_in_elements(tables[0], "indexes")
        if table.get("indexing") == "gp":
            nodes = self._nodes_by_gp_index()
            indexes = [nodes[index] for index in indexes]
        values, size = _numbers_in_elements(table, "u64values"), len(indexes)
        rows = tuple(tuple(values[row * size : (row + 1) * size]) for row in range(size))
        return SlitDistances(tuple(indexes), rows)

    def _nodes_by_gp_index(self) -> dict[int | None, int]:
        """Return global persistent index (which hwloc's tables use) -> OS index of the node."""
        return {
            node.attribute_number("gp_index"): node.required_os_index
            for node in self.machine.objects_of_type("NUMANode")
        }

    def memory_attributes(self) -> tuple[MemoryAttribute, ...]:
        """Return bandwidths and latencies of the HMAT, an item for each target and initiator."""
        nodes = self._nodes_by_gp_index()
        attributes = []
        for table in self._root.iterfind("memattr"):
            if (known := _MEMORY_ATTRIBUTES.get(table.get("name", ""))) is None:
                continue
            name, factor = known
            for item in table.iterfind("memattr_value"):
                target = nodes.get(int(item.attrib["target_obj_gp_index"]))
                cpus = item.get("initiator_cpuset")
                if target is not None and cpus:
                    value = int(item.attrib["value"]) * factor
                    attributes.append(MemoryAttribute(name, target, parse_mask(cpus), value))
        return tuple(attributes)

    def core_kinds(self) -> Iterator[CoreKind]:
        """Yield the core kinds in hwloc's order, slow kinds first; none if hwloc has no kinds."""
        for index, item in enumerate(self._root.iterfind("cpukind")):
            infos = _infos_of_element(item)
            yield CoreKind(
                index,
                parse_mask(item.get("cpuset", "0x0")),
                int(item.attrib["forced_efficiency"]) if item.get("forced_efficiency") else None,
                _hertz_of_megahertz(infos.get("FrequencyBaseMHz", "")),
                _hertz_of_megahertz(infos.get("FrequencyMaxMHz", "")),
                infos.get("CoreType"),
            )


def _hertz_of_megahertz(megahertz: str) -> int | None:
    return int(megahertz) * _MHZ_HERTZ if megahertz.isdigit() else None


def _make_object(element: etree._Element, parent: HwlocObject | None) -> HwlocObject:
    attributes = {str(name): str(value) for name, value in element.attrib.items()}
    item = HwlocObject(
        attributes.pop("type"),
        attributes,
        _infos_of_element(element),
        parent,
        cpus=parse_mask(attributes.get("cpuset", "0x0")),
        complete_cpus=parse_mask(attributes.get("complete_cpuset", "0x0")),
        nodes=parse_mask(attributes.get("nodeset", "0x0")),
        complete_nodes=parse_mask(attributes.get("complete_nodeset", "0x0")),
    )
    item.children = [_make_object(child, item) for child in element.iterfind("object")]
    return item


def _infos_of_element(element: etree._Element) -> dict[str, str]:
    return {item.get("name", ""): item.get("value", "") for item in element.iterfind("info")}


def _numbers_in_elements(table: etree._Element, tag: str) -> list[int]:
    """Return the numbers in all `tag` elements; hwloc puts ten numbers into each element."""
    return [int(word) for item in table.iterfind(tag) for word in (item.text or "").split()]
