"""Describes this host for discovery: hwloc's topology, kernel files and tools, as one tarball.

The tarball holds ``topology.xml`` (hwloc), the files of /sys and /proc that discovery reads, under
their own paths, and ``host.json`` with facts that only a process on the host can find. Discovery
reads the tarball on the controller, so the same code handles every host.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TypedDict

from chaosity.records.point_types import Needs

# Debian's hwloc-nox and RHEL's hwloc have only the first; a graphical build has both.
LSTOPO_PROGRAMS = ("lstopo-no-graphics", "lstopo")
# Environment variables that make lstopo describe another machine.
LSTOPO_REDIRECTIONS = (
    "HWLOC_XMLFILE",
    "HWLOC_FSROOT",
    "HWLOC_SYNTHETIC",
    "HWLOC_CPUID_PATH",
    "HWLOC_COMPONENTS",
    "HWLOC_THISSYSTEM",
)
# By default hwloc hides GPU memory that the kernel shows as NUMA nodes.
LSTOPO_SETTINGS = {"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1", "HWLOC_XML_VERBOSE": "1"}
# lstopo takes milliseconds, or seconds where it loads CUDA; the limit is for a hung driver.
TIMEOUT_SECONDS = 120
# Folders of programs that are meant for root; often not in PATH.
SYSTEM_PATH = "/usr/sbin:/sbin"

TOPOLOGY_MEMBER, FACTS_MEMBER = "topology.xml", "host.json"
# Files that discovery reads besides hwloc's XML (topology/sysfs_reader.py, topology/host_facts.py).
KERNEL_FILE_PATTERNS = (
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/zoneinfo",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/vm/zone_reclaim_mode",
    "sys/bus/pci/devices/*/numa_node",
    "sys/bus/pci/devices/*/current_link_speed",
    "sys/bus/pci/devices/*/current_link_width",
    "sys/bus/pci/devices/*/max_link_speed",
    "sys/bus/pci/devices/*/max_link_width",
    "sys/class/block/*/size",
    "sys/class/block/*/device/serial",
    "sys/class/block/*/device/model",
    "sys/class/block/*/device/firmware_rev",
    "sys/devices/system/cpu/online",
    "sys/devices/system/cpu/cpu*/topology/physical_package_id",
    "sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size",
    "sys/devices/system/cpu/cpu0/cpuidle/state*/name",
    "sys/devices/system/cpu/cpu0/cpuidle/state*/disable",
    "sys/devices/system/cpu/cpuidle/current_*",
    "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_driver",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq",
    "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/smt/control",
    "sys/devices/system/cpu/vulnerabilities/*",
    "sys/devices/system/node/node*/cpulist",
    "sys/devices/system/node/node*/distance",
    "sys/devices/system/node/node*/meminfo",
    "sys/devices/system/node/node*/hugepages/*/nr_hugepages",
    "sys/devices/virtual/memory_tiering/memory_tier*/nodelist",
    "sys/kernel/mm/hugepages/*/nr_hugepages",
    "sys/kernel/mm/ksm/run",
    "sys/kernel/mm/numa/demotion_enabled",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/transparent_hugepage/defrag",
)


class DescriptionError(Exception):
    """This host cannot be described; the text says what is missing."""


class ToolFacts(TypedDict):
    """A benchmark's program on this host; None where it is missing."""

    program: str
    path: str | None
    version: str | None
    sha256: str | None


class HostFacts(TypedDict):
    """The content of ``host.json``: facts that only a process on the host can find.

    Attributes:
        memory_modules: output of dmidecode.
        opencl: output of clinfo.
        runner_sha256: hash of the zipapp that runs; None when it runs from its sources.
        usable_cpus: number of processing units that this process may use.
    """

    hostname: str
    architecture: str
    boot_id: str | None
    memory_modules: str | None
    opencl: str | None
    tools: list[ToolFacts]
    runner_sha256: str | None
    user_id: int
    usable_cpus: int


class DescriptionRequest(TypedDict):
    """A request for a description: the tools to look for."""

    needs: list[Needs]


def _search_path() -> str:
    """Return the search path for programs, with the folders that are meant for root."""
    return f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"


def lstopo_environment() -> dict[str, str]:
    """Return the environment variables with which lstopo describes this machine."""
    kept = {key: value for key, value in os.environ.items() if key not in LSTOPO_REDIRECTIONS}
    return kept | LSTOPO_SETTINGS


def lstopo_command(program: str, version: int, source: Sequence[str] = ()) -> list[str]:
    """Return the command that prints hwloc's XML in format 2, with every I/O device.

    Args:
        program: path of lstopo.
        version: hwloc's major version.
        source: arguments that select another machine; empty for this machine.
    """
    format_2 = ["--export-xml-flags", "v2"] if version >= 3 else []  # version 3 has another format
    return [program, *source, "--filter", "io:all", "--of", "xml", *format_2, "-"]


def _run_and_read(command: Sequence[str]) -> str | None:
    """Return the standard output and standard error of a program; None if it cannot run."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (answer.stdout + answer.stderr).strip()


def _read_lstopo_xml() -> bytes:
    """This machine as hwloc's XML, format 2, with every I/O device.

    Raises:
        DescriptionError: hwloc is missing or fails.
    """
    program = next(filter(None, (shutil.which(name) for name in LSTOPO_PROGRAMS)), None)
    if program is None:
        raise DescriptionError("lstopo is not installed; run ansible-playbook provision.yml")
    version = re.search(r"(\d+)\.", _run_and_read([program, "--version"]) or "")
    try:
        answer = subprocess.run(
            lstopo_command(program, int(version[1]) if version else 0),
            env=lstopo_environment(),
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DescriptionError(f"lstopo did not answer within {TIMEOUT_SECONDS} s") from None
    if answer.returncode or not answer.stdout.strip():
        errors = answer.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise DescriptionError(f"lstopo failed: {errors[0]}")
    return answer.stdout


def read_memory_modules() -> str | None:
    """Return the output of ``dmidecode --type 17``; None without root, dmidecode or SMBIOS."""
    program = shutil.which("dmidecode", path=_search_path())
    if program is None or os.geteuid() != 0:
        return None
    return _run_and_read([program, "--quiet", "--type", "17"])


def read_clinfo() -> str | None:
    """Return the output of ``clinfo --raw``; None without clinfo.

    clinfo's JSON is not used: it has duplicate keys up to version 3.0.
    """
    program = shutil.which("clinfo")
    return None if program is None else _run_and_read([program, "--raw"])


def find_tool(need: Needs) -> ToolFacts:
    """Return the path, version and hash of a benchmark's program on this host."""
    program = shutil.which(need["program"])
    if program is None:
        return {"program": need["program"], "path": None, "version": None, "sha256": None}
    version = _run_and_read([program, *need["version"][1:]]) if "version" in need else None
    return {
        "program": need["program"],
        "path": program,
        "version": (version or "").partition("\n")[0],
        "sha256": hashlib.sha256(Path(program).read_bytes()).hexdigest(),
    }


def _running_zipapp_digest() -> str | None:
    """Return the SHA-256 of the zipapp that runs; None when the program runs from its sources."""
    path = Path(sys.argv[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".pyz" else None


def host_facts(needs: Iterable[Needs]) -> HostFacts:
    """Return the facts that only a process on the host can find, see `HostFacts`."""
    return {
        "hostname": platform.node(),
        "architecture": platform.machine(),
        "boot_id": _read_kernel_file(Path("/proc/sys/kernel/random/boot_id")),
        "memory_modules": read_memory_modules(),
        "opencl": read_clinfo(),
        "tools": [find_tool(need) for need in needs],
        "runner_sha256": _running_zipapp_digest(),
        "user_id": os.geteuid(),
        "usable_cpus": len(os.sched_getaffinity(0)),
    }


def _read_kernel_file(path: Path) -> str | None:
    """Return the content of a kernel file; None if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _read_kernel_files() -> Iterator[tuple[str, str]]:
    """Return the names and contents of the files of /sys and /proc that discovery reads."""
    for pattern in KERNEL_FILE_PATTERNS:
        for path in sorted(Path("/").glob(pattern)):
            text = _read_kernel_file(path)
            if text is not None:
                yield str(path.relative_to("/")), text


def write_host_description(request: DescriptionRequest, output: BinaryIO) -> None:
    """Write the tarball that describes this host.

    Args:
        request: ``needs``: the tools to look for, as benchmark files name them.
        output: the tarball goes here from begin to end, so it may be a pipe.

    Raises:
        DescriptionError: hwloc is missing or fails; nothing was written.
    """
    facts = json.dumps(host_facts(request["needs"])).encode()
    members = [(TOPOLOGY_MEMBER, _read_lstopo_xml()), (FACTS_MEMBER, facts)]
    members += [(name, text.encode()) for name, text in _read_kernel_files()]
    with tarfile.open(fileobj=output, mode="w|gz") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
