"""Run hwloc's lstopo, which alone reads the structure of a machine, and explain its failures.

For each source lstopo prints hwloc's XML format 2 with all I/O devices, so the other modules read a
single format. lstopo converts files of version 1, and explores a live machine or a captured /sys.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from lxml import etree

from chaosity.cpusets import HIGHEST_INDEX, is_index
from chaosity.errors import UserError
from chaosity.runner.describe_host import (
    LSTOPO_PROGRAMS,
    NODES_HIDDEN,
    TIMEOUT_SECONDS,
    are_nodes_hidden,
    lstopo_command,
    lstopo_environment,
)

_INSTALL = (
    "install hwloc (`apt install hwloc-nox` on Debian and Ubuntu, `dnf install hwloc` on RHEL)"
)
_OLDEST_HWLOC = (2, 0)
# This parser loads no DTD, since none is needed, and expands no entities. hwloc's own parser, which
# reads what is written again, knows no comments.
_PARSER = etree.XMLParser(
    resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
)
_SHOWN_CHARACTERS = 80  # of unexpected output that an error shows
# A server with 12 nodes and 192 processing units has an XML of 0.3 MB.
_MOST_XML_BYTES = 2**27


def read_hwloc_xml_as_format_2(path: Path) -> etree._Element:
    """Return an hwloc XML file, of any version that the installed hwloc reads, as format 2.

    Raises:
        UserError: the file is missing, is not complete hwloc XML, or is too new.
    """
    root = read_xml_root_element(path)
    if root.tag != "topology":
        wrong = (
            f"the file is not the XML of hwloc: its root element is <{root.tag}>, not <topology>"
        )
        raise UserError(wrong, str(path), "write the file with `lstopo --of xml FILE`")
    stated = root.get("version", "1.0")  # a file of version 1 names no version
    major = stated.partition(".")[0]
    if not major.isdigit():
        wrong = f"the file has the format version {stated!r}, which is not a version of hwloc's XML"
        raise UserError(wrong, str(path))
    if major == "2" and not any(map(shutil.which, LSTOPO_PROGRAMS)):
        return root  # format 2 needs no conversion, so a simulated host needs no hwloc
    if int(major) > installed_hwloc_version()[0]:
        raise _too_new(f"version {stated}", str(path))
    return run_lstopo(str(path), root=root)


@cache
def installed_hwloc_version() -> tuple[int, ...]:
    """Return the version of the installed hwloc, such as `(2, 9, 0)`.

    Raises:
        UserError: hwloc is missing, or older than 2.0, which cannot write format 2.
    """
    answer = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    if not match:
        shown = f"`{_program()} --version` prints {answer.stdout!r}, which has no version"
        raise UserError(shown, remedy=_INSTALL)
    version = tuple(int(part or 0) for part in match.groups())
    if version < _OLDEST_HWLOC:
        text = f"hwloc {_dotted(version)} is too old; 2.0 or later is needed"
        raise UserError(text, remedy=_INSTALL)
    return version


def _program() -> str:
    for name in LSTOPO_PROGRAMS:
        if path := shutil.which(name):
            return path
    raise UserError("lstopo is not installed", remedy=_INSTALL)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def run_lstopo(
    where: str, *, root: etree._Element | None = None, capture: Path | None = None
) -> etree._Element:
    """Return the root element of the XML that lstopo prints.

    Args:
        where: the source, for errors.
        root: root element of the XML that lstopo converts. It is written again, because hwloc's own
            parser reads neither UTF-16 nor Windows' line ends.
        capture: the folder with a captured `sys`. Without both, lstopo explores this machine.

    Raises:
        UserError: hwloc is missing or too old, or lstopo failed.
    """
    environment, given, source = lstopo_environment(), None, []
    if root is not None:
        tree = root.getroottree()
        given = etree.tostring(tree, xml_declaration=True, encoding="UTF-8")
        # --disallowed keeps forbidden processing units that the file has; lstopo would drop them.
        source = ["--if", "xml", "--input", "-", "--disallowed"]
    elif capture:
        # Only hwloc's Linux component runs. Others (CUDA, cpuid) would explore this machine.
        environment |= {"HWLOC_COMPONENTS": "linux,stop", "HWLOC_FSROOT": f"{capture}/"}
    command = lstopo_command(_program(), installed_hwloc_version()[0], source)
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
            raise UserError(NODES_HIDDEN, where)
        remedy = f"run `{_program()}` to see the whole message"
        if root is not None or capture:
            remedy = "write or capture it again"
        raise _failure(answer.stderr.decode(errors="replace"), where, remedy)
    try:
        xml = etree.fromstring(answer.stdout, _PARSER)
    except etree.XMLSyntaxError:
        xml = None
    if xml is None or xml.tag != "topology" or xml.find("object") is None:
        shown = answer.stdout[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise UserError(f"lstopo printed {shown!r}, not a topology", where, "reinstall hwloc")
    return xml


def _failure(stderr: str, where: str, remedy: str) -> UserError:
    """Return the error for a failure of lstopo, with the first line of its own message."""
    if "XML version" in stderr and ">" in stderr:
        return _too_new("newer", where)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    message = lines[0].removeprefix("stdin: ") if lines else "no message"
    version = _dotted(installed_hwloc_version())
    return UserError(f"hwloc {version} cannot read the topology: {message}", where, remedy)


def read_xml_root_element(path: Path) -> etree._Element:
    """Return the root element of an XML file, in any encoding and with any line ends.

    Raises:
        UserError: the file is missing, is not complete XML, or has an index of a node or processing
            unit that no machine has.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_XML_BYTES + 1)
    except FileNotFoundError:
        remedy = "give `live`, an hwloc XML file, or a directory or tarball with a captured /sys"
        if path.parts[0] == "machines":  # as shipped with 0.1.0
            remedy = f"the machines that ship are in templates now: templates/{path}"
        raise UserError("does not exist", str(path), remedy) from None
    except OSError as error:
        raise UserError(f"the file cannot be read: {error.strerror}", str(path)) from None
    remedy = "write the file again with `lstopo --of xml FILE`"
    if len(text) > _MOST_XML_BYTES:
        raise UserError(f"the file is larger than {_MOST_XML_BYTES // 2**20} MiB", str(path))
    try:
        root = etree.fromstring(text, _PARSER)
    except etree.XMLSyntaxError as error:
        if getattr(error, "code", None) == etree.ErrorTypes.ERR_DOCUMENT_EMPTY:
            raise UserError("the file is not XML", str(path), remedy) from None
        whole = text.replace(b"\0", b"").rstrip().endswith(b"</topology>")  # zeros of UTF-16
        what = "the file is not well-formed XML" if whole else "is truncated"
        raise UserError(f"{what}: {error.msg}", str(path), remedy) from None
    declared: Any = root.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        # hwloc writes no entities. lstopo could expand them, or read files that they name.
        raise UserError("the file declares XML entities", str(path), remedy)
    for item in root.iter("object"):
        index = item.get("os_index", "")
        if item.get("type") in ("PU", "NUMANode") and not is_index(index):
            # hwloc would need minutes and gigabytes for a set with a large index.
            wrong = f"the topology cannot be read: a {item.get('type')} has the os_index {index!r}"
            raise UserError(wrong, str(path), f"indexes are 0 to {HIGHEST_INDEX}; {remedy}")
    return root


def _too_new(stated: str, where: str) -> UserError:
    installed = installed_hwloc_version()
    return UserError(
        f"the file is hwloc XML format {stated}, and the installed hwloc {_dotted(installed)} "
        f"reads formats up to {installed[0]}",
        where,
        "write the file again with `lstopo --export-xml-flags v2 --of xml FILE` on its host, "
        "or install a newer hwloc",
    )
