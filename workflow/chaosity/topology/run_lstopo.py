"""Run hwloc's lstopo, which alone reads the structure of a machine, and explain its failures.

For each source lstopo prints hwloc's XML format 2 with all I/O devices, so the other modules read a
single format. lstopo converts files of version 1, and explores a live machine or a captured /sys.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lxml import etree

from chaosity.errors import UserError
from chaosity.runner.describe_host import (
    LSTOPO_PROGRAMS,
    TIMEOUT_SECONDS,
    lstopo_command,
    lstopo_environment,
)

_INSTALL = (
    "install hwloc (`apt install hwloc-nox` on Debian and Ubuntu, `dnf install hwloc` on RHEL)"
)
_OLDEST_HWLOC = (2, 0)
# This parser loads no DTD, since none is needed, and expands no entities.
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
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
    # --disallowed keeps forbidden processing units that the file has; lstopo would drop them.
    return run_lstopo(str(path), ["--if", "xml", "--input", str(path), "--disallowed"])


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
    where: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> etree._Element:
    """Return the root element of the XML that lstopo prints.

    Args:
        where: the source, for errors.
        arguments: arguments that select the source; none for this machine.
        variables: additional environment variables.

    Raises:
        UserError: hwloc is missing or too old, or lstopo failed.
    """
    command = lstopo_command(_program(), installed_hwloc_version()[0], list(arguments))
    environment = {**lstopo_environment(), **(variables or {})}
    try:
        answer = subprocess.run(
            command, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        message = f"lstopo did not answer within {TIMEOUT_SECONDS} s"
        remedy = f"run `{' '.join(command)}` to see where lstopo hangs"
        raise UserError(message, where, remedy) from None
    if answer.returncode or not answer.stdout.strip():
        raise _failure(answer.stderr.decode(errors="replace"), where)
    try:
        xml = etree.fromstring(answer.stdout, _PARSER)
    except etree.XMLSyntaxError:
        xml = None
    if xml is None or xml.tag != "topology" or xml.find("object") is None:
        shown = answer.stdout[:_SHOWN_CHARACTERS].decode(errors="replace")
        raise UserError(f"lstopo printed {shown!r}, not a topology", where, "reinstall hwloc")
    return xml


def _failure(stderr: str, where: str) -> UserError:
    """Return the error for a failure of lstopo, with the first line of its own message."""
    if "XML version" in stderr and ">" in stderr:
        return _too_new("newer", where)
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    message = lines[0] if lines else "no message"
    return UserError(
        f"hwloc {_dotted(installed_hwloc_version())} cannot read the topology: {message}",
        where,
        "test the file with `lstopo --input`, then write or capture it again",
    )


def read_xml_root_element(path: Path) -> etree._Element:
    """Return the root element of an XML file.

    Raises:
        UserError: the file is missing or is not complete XML.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_XML_BYTES + 1)
    except FileNotFoundError:
        remedy = "give `live`, an hwloc XML file, or a directory or tarball with a captured /sys"
        raise UserError("does not exist", str(path), remedy) from None
    except OSError as error:
        raise UserError(f"the file cannot be read: {error.strerror}", str(path)) from None
    remedy = "write the file again with `lstopo --of xml FILE`"
    if not text.lstrip().startswith(b"<"):
        raise UserError("the file is not XML", str(path), remedy)
    if len(text) > _MOST_XML_BYTES:
        raise UserError(f"the file is larger than {_MOST_XML_BYTES // 2**20} MiB", str(path))
    try:
        root = etree.fromstring(text, _PARSER)
        declared: Any = root.getroottree().docinfo.internalDTD
        if declared is not None and any(True for _ in declared.iterentities()):
            # hwloc writes no entities. lstopo could expand them, or read files that they name.
            raise UserError("the file declares XML entities", str(path), remedy)
        return root
    except etree.XMLSyntaxError as error:
        whole = text.rstrip().endswith(b"</topology>")
        what = "the file is not well-formed XML" if whole else "is truncated"
        raise UserError(f"{what}: {error.msg}", str(path), remedy) from None


def _too_new(stated: str, where: str) -> UserError:
    installed = installed_hwloc_version()
    return UserError(
        f"the file is hwloc XML format {stated}, and the installed hwloc {_dotted(installed)} "
        f"reads formats up to {installed[0]}",
        where,
        "write the file again with `lstopo --export-xml-flags v2 --of xml FILE` on its host, "
        "or install a newer hwloc",
    )
