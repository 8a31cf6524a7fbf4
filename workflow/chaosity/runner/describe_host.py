"""Describes this host: what hwloc, the kernel and the tools say, as one tarball.

The tarball holds ``topology.xml`` (hwloc), the files of /sys and /proc that discovery reads, under
their own paths, and ``host.json`` with what only a process on the host can tell. Discovery reads it
on the controller, so that every host is understood by the same code, and it is kept as it came.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

# Debian's hwloc-nox and RHEL's hwloc have only the first; a graphical build has both.
LSTOPO_PROGRAMS = ("lstopo-no-graphics", "lstopo")
# Variables that would make lstopo look at another machine than the one it is asked about.
LSTOPO_REDIRECTIONS = ("HWLOC_XMLFILE", "HWLOC_FSROOT", "HWLOC_SYNTHETIC", "HWLOC_CPUID_PATH",
                       "HWLOC_COMPONENTS", "HWLOC_THISSYSTEM")  # fmt: skip
# GPU memory that the kernel shows as NUMA nodes is hidden by default.
LSTOPO_SETTINGS = {"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1", "HWLOC_XML_VERBOSE": "1"}
# Exploring takes milliseconds, seconds where lstopo loads CUDA; a hung driver must not hang us.
TIMEOUT_SECONDS = 120
# Where packages put what only root is expected to call.
SYSTEM_PATH = "/usr/sbin:/sbin"

TOPOLOGY_MEMBER, FACTS_MEMBER = "topology.xml", "host.json"
# What discovery reads beside hwloc's XML (see topology/sysfs.py and topology/host_facts.py).
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


def search_path() -> str:
    """Where programs are looked for: also where only root is expected to look."""
    return f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"


def lstopo_environment() -> dict[str, str]:
    """The environment in which lstopo looks at this machine and nothing else."""
    kept = {key: value for key, value in os.environ.items() if key not in LSTOPO_REDIRECTIONS}
    return kept | LSTOPO_SETTINGS


def lstopo_command(program: str, version: int, source: Sequence[str] = ()) -> list[str]:
    """The command by which lstopo prints hwloc's XML, format 2, with every I/O device kept.

    Args:
        program: lstopo.
        version: the first number of hwloc's version.
        source: arguments that say what to look at; none for this machine.
    """
    format_2 = ["--export-xml-flags", "v2"] if version >= 3 else []  # its own format is another
    return [program, *source, "--filter", "io:all", "--of", "xml", *format_2, "-"]


def run_and_read(command: Sequence[str]) -> str | None:
    """What a program prints, on whichever of its two outputs; None when it does not run."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (answer.stdout + answer.stderr).strip()


def read_lstopo_xml() -> bytes:
    """This machine as hwloc's XML, format 2, with every I/O device kept.

    Raises:
        DescriptionError: hwloc is missing or does not answer.
    """
    program = next(filter(None, (shutil.which(name) for name in LSTOPO_PROGRAMS)), None)
    if program is None:
        raise DescriptionError("lstopo is not installed; run ansible-playbook provision.yml")
    version = re.search(r"(\d+)\.", run_and_read([program, "--version"]) or "")
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
        said = answer.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
        raise DescriptionError(f"lstopo failed and said: {said[0]}")
    return answer.stdout


def read_memory_modules() -> str | None:
    """What ``dmidecode --type 17`` prints; None without root, dmidecode or SMBIOS."""
    program = shutil.which("dmidecode", path=search_path())
    if program is None or os.geteuid() != 0:
        return None
    return run_and_read([program, "--quiet", "--type", "17"])


def read_clinfo() -> str | None:
    """What ``clinfo --raw`` prints; None without clinfo. Its JSON has keys twice, up to 3.0."""
    program = shutil.which("clinfo")
    return None if program is None else run_and_read([program, "--raw"])


def find_tool(need: Mapping[str, Any]) -> dict[str, str | None]:
    """A tool of a benchmark as it is here: where, what it says of its version, and its hash."""
    program = shutil.which(need["program"])
    if program is None:
        return {"program": need["program"], "path": None, "version": None, "sha256": None}
    said = run_and_read([program, *need["version"][1:]]) if "version" in need else None
    return {
        "program": need["program"],
        "path": program,
        "version": (said or "").partition("\n")[0],
        "sha256": hashlib.sha256(Path(program).read_bytes()).hexdigest(),
    }


def zipapp_of_process_digest() -> str | None:
    """SHA-256 of the zipapp that this is; None when it runs from its sources."""
    path = Path(sys.argv[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".pyz" else None


def host_facts(needs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What only a process on the host can tell."""
    return {
        "hostname": platform.node(),
        "architecture": platform.machine(),
        "boot_id": read_kernel_file(Path("/proc/sys/kernel/random/boot_id")),
        "memory_modules": read_memory_modules(),
        "opencl": read_clinfo(),
        "tools": [find_tool(need) for need in needs],
        "runner_sha256": zipapp_of_process_digest(),
        "user_id": os.geteuid(),
        "usable_cpus": len(os.sched_getaffinity(0)),
    }


def read_kernel_file(path: Path) -> str | None:
    """A file of the kernel's, which may vanish or refuse while it is read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def read_kernel_files() -> Iterator[tuple[str, str]]:
    """Names and contents of the files of /sys and /proc that discovery reads."""
    for pattern in KERNEL_FILE_PATTERNS:
        for path in sorted(Path("/").glob(pattern)):
            text = read_kernel_file(path)
            if text is not None:
                yield str(path.relative_to("/")), text


def write_host_description(request: Mapping[str, Any], output: BinaryIO) -> None:
    """Write the tarball that describes this host.

    Args:
        request: ``needs``: the tools to look for, as benchmark files name them.
        output: where the tarball goes; it is written front to back, so a pipe will do.

    Raises:
        DescriptionError: it cannot be done; nothing was written.
    """
    members = [
        (TOPOLOGY_MEMBER, read_lstopo_xml()),
        (FACTS_MEMBER, json.dumps(host_facts(request["needs"])).encode()),
    ]
    with tarfile.open(fileobj=output, mode="w|gz") as archive:
        for name, content in (*members, *((n, t.encode()) for n, t in read_kernel_files())):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
