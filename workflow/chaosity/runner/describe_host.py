"""Describe this host for discovery: hwloc's topology, kernel files and tools, as one JSON object.

The object has three parts: ``topology_xml`` (hwloc's XML), ``files`` (the content, by path, of the
files of /sys and /proc that discovery reads), and facts that only a process on the host can find.
Discovery reads the object on the controller, so the same code handles every host.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import unpack_from
from typing import TextIO, TypedDict, cast

from chaosity.errors import UserError
from chaosity.records.record_format import OpenclDeviceFacts, RequiredProgram
from chaosity.runner.guardian_process import kill_program
from chaosity.runner.load_process import VERSION_SECONDS
from chaosity.runner.observed_state import read_file_if_present

# Debian's hwloc-nox and RHEL's hwloc have only lstopo-no-graphics. Packages of hwloc with graphics
# have both programs.
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
# Without HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES, hwloc hides GPU memory that the kernel shows as NUMA
# nodes.
LSTOPO_SETTINGS = {"HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES": "1", "HWLOC_XML_VERBOSE": "1"}
# Longest time that lstopo may take. lstopo needs milliseconds, or seconds if it loads CUDA; it
# reaches this limit only if a driver hangs.
TIMEOUT_SECONDS = 120
# Folders of programs for root; the PATH of a user often lacks these folders.
SYSTEM_PATH = "/usr/sbin:/sbin"

# The program that measures OpenCL devices also lists these devices. Loads run with the same loader
# (libOpenCL) with which this program listed the devices.
OPENCL_PROGRAM = "chaosity-opencl"

# If this folder exists but contains no NUMA node, hwloc stops with a failed assertion.
_NODES_FOLDER = "sys/devices/system/node"
ERROR_OF_HIDDEN_NODES = (
    f"/{_NODES_FOLDER} is empty; if a container hides it, mount it into the container"
)
# Files that discovery reads besides hwloc's XML, by folder (topology/topology_sources.py and
# topology/host_facts.py).
KERNEL_FILES = {
    "proc": "cmdline cpuinfo zoneinfo sys/kernel/numa_balancing sys/vm/zone_reclaim_mode",
    "sys/bus/pci/devices/*": "numa_node uevent current_link_* max_link_* dsa*/state iax*/state",
    "sys/class/net/*": "speed",
    "sys/class/block/*": "size device/serial device/model device/firmware_rev",
    "sys/devices/system/cpu": "online cpu*/topology/physical_package_id"
    " cpu0/cache/index0/coherency_line_size cpu0/cpuidle/state*/name cpu0/cpuidle/state*/disable"
    " cpuidle/current_* intel_pstate/no_turbo smt/control vulnerabilities/*",
    "sys/devices/system/cpu/cpufreq": "boost policy*/scaling_driver policy*/scaling_governor"
    " policy*/scaling_m*_freq policy*/energy_performance_preference",
    f"{_NODES_FOLDER}/node*": "cpulist distance meminfo hugepages/*/nr_hugepages",
    "sys/devices/virtual/memory_tiering/memory_tier*": "nodelist",
    "sys/kernel/mm": "hugepages/*/nr_hugepages ksm/run numa/demotion_enabled"
    " transparent_hugepage/enabled transparent_hugepage/defrag",
}


class DescriptionError(Exception):
    """A host cannot be described; the text gives the reason."""


class ListedOpenclDevice(OpenclDeviceFacts):
    """An OpenCL device with its present numbers and with facts that a point does not contain."""

    platform_number: int
    device_number: int
    unified_memory: bool | None
    shared_virtual_memory: str | None


class OpenclDeviceList(TypedDict):
    """All OpenCL devices, and the path of the loader (libOpenCL) that numbered these devices."""

    loader: str | None
    devices: list[ListedOpenclDevice]


class ToolFacts(TypedDict):
    """A benchmark's program on this host, with None for unknown facts."""

    program: str
    path: str | None
    version: str | None
    sha256: str | None


def lstopo_environment() -> dict[str, str]:
    """Return the environment variables with which lstopo describes this machine."""
    kept = {key: value for key, value in os.environ.items() if key not in LSTOPO_REDIRECTIONS}
    return kept | LSTOPO_SETTINGS


def lstopo_command(program: str, version: int, source: Sequence[str] = ()) -> list[str]:
    """Return the command that prints hwloc's XML in format 2, with every I/O device.

    `version` is hwloc's major version, `source` the arguments of lstopo that select another
    machine.
    """
    # hwloc 3 writes format 3 by default.
    format_2 = ["--export-xml-flags", "v2"] if version >= 3 else []
    return [program, *source, "--filter", "io:all", "--of", "xml", *format_2, "-"]


def are_nodes_hidden(root: Path = Path("/")) -> bool:
    """Return whether the kernel's folder of NUMA nodes below `root` exists without a node."""
    folder = root / _NODES_FOLDER
    return folder.is_dir() and not any(folder.glob("node[0-9]*"))


def _run_program(
    command: Sequence[str], seconds: float = TIMEOUT_SECONDS
) -> tuple[str, str] | None:
    """Run a program and return its standard output and standard error.

    Bytes that are not UTF-8 are replaced. The result is None if the program cannot be started, or
    was killed because it ran longer than `seconds`.
    """
    pipe = subprocess.PIPE
    try:
        program = subprocess.Popen(
            command, text=True, errors="replace", stdout=pipe, stderr=pipe, start_new_session=True
        )
    except OSError:
        return None
    try:
        return program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_program(program.pid)
        program.communicate()
        return None


def _run_and_read(command: Sequence[str], seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Run a program and return its output and errors as one text; None if it cannot run."""
    outputs = _run_program(command, seconds)
    return outputs and "".join(outputs).strip()


def _read_lstopo_xml() -> bytes:
    """Return hwloc's XML of this machine, or raise a `DescriptionError`."""
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
        if are_nodes_hidden():
            raise DescriptionError(ERROR_OF_HIDDEN_NODES)
        errors = answer.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise DescriptionError(f"lstopo failed: {errors[0]}")
    return answer.stdout


def read_dmidecode_output() -> str | None:
    """Return the output of ``dmidecode --type 17``; None without root, dmidecode or SMBIOS."""
    program = shutil.which("dmidecode", path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}")
    if program is None or os.geteuid() != 0:
        return None
    return _run_and_read([program, "--quiet", "--type", "17"])


def list_opencl_devices() -> OpenclDeviceList | None:
    """Return this host's OpenCL devices and the path of the library that numbers these devices.

    The result is None if chaosity-opencl is not installed or refuses to list devices.
    """
    outputs = _run_program([OPENCL_PROGRAM, "--list"])
    try:
        return cast(OpenclDeviceList, json.loads(outputs[0])) if outputs else None
    except ValueError:  # chaosity-opencl printed the reason on its standard error
        return None


def find_tool_path_version_and_hash(need: RequiredProgram) -> ToolFacts:
    """Return the path, version and hash of a benchmark's program on this host."""
    name, path = need["program"], shutil.which(need["program"])
    if path is None:
        return {"program": name, "path": None, "version": None, "sha256": None}
    query = [path, *need.get("version", [])[1:]]
    version = _run_and_read(query, VERSION_SECONDS) if "version" in need else None
    line = (version or "").partition("\n")[0]
    return {"program": name, "path": path, "version": line, "sha256": _sha256_of_file(Path(path))}


def _sha256_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_machine_facts() -> dict[str, object]:
    """Return the facts about this machine that hwloc's XML and `KERNEL_FILES` do not have."""
    listed = list_opencl_devices()
    return {
        "architecture": platform.machine(),
        "memory_modules": read_dmidecode_output(),  # the output of dmidecode on memory modules
        "module_table": read_memory_modules(),
        "opencl_devices": listed and listed["devices"],
    }


def _read_kernel_files() -> Iterator[tuple[str, str]]:
    """Yield the path, without its first slash, and the content of each file in `KERNEL_FILES`."""
    for folder, names in KERNEL_FILES.items():
        for name in names.split():
            for path in sorted(Path("/").glob(f"{folder}/{name}")):
                if (text := read_file_if_present(path)) is not None:
                    yield str(path.relative_to("/")), text


def write_host_description(needs: Iterable[RequiredProgram], output: TextIO) -> None:
    """Write the JSON object that describes this host.

    `needs` are the tools to look for, as benchmark files name them.

    Raises:
        DescriptionError: hwloc is missing or fails, or memory policies are forbidden. After an
            error, nothing is written.
    """
    try:
        check_memory_policies()  # if the check fails, nearly all points would fail
    except UserError as error:
        raise DescriptionError(str(error)) from None
    xml, zipapp = _read_lstopo_xml().decode(errors="replace"), Path(sys.argv[0])
    description = {
        **read_machine_facts(),
        "hostname": platform.node(),
        "boot_id": read_file_if_present("/proc/sys/kernel/random/boot_id"),
        "tools": [find_tool_path_version_and_hash(need) for need in needs],
        # Only a zipapp has a digest; a runner that runs from its source files has None.
        "runner_sha256": _sha256_of_file(zipapp) if zipapp.suffix == ".pyz" else None,
        "user_id": os.geteuid(),
        "usable_cpus": len(os.sched_getaffinity(0)),  # processing units that this process may use
        "topology_xml": xml,
        "files": dict(_read_kernel_files()),
    }
    json.dump(description, output)


# A memory module: its size in bytes, its bandwidth (data rate times width) in bytes per second, and
# a text with the names of its slot and bank.
MemoryModule = tuple[int, int, str]

# Memory modules are in the firmware's SMBIOS table (DMTF DSP0134), in structures of type 17.
_MEMORY_DEVICE, _END_OF_TABLE = 17, b"\x7f"
# Type of a memory module -> lowest speed in SMBIOS that is certainly a data rate in MT/s. Before
# SMBIOS 3.1, firmware could state the clock in MHz, which is half the data rate: at most 1066
# (DDR3) or 1600 (DDR4). LPDDR is absent, because its width is unknown.
_LEAST_DATA_RATE_OF_MODULE_TYPE = {0x18: 1333, 0x1A: 2133, 0x22: 0}
_PERSISTENT_MEMORY_TYPE = (
    0x1F  # persistent memory shares the channels of other modules, and adds no bandwidth
)
_DIMM_BITS = 64  # data width of a DIMM without the bits for error correction; DDR5 has 2 x 32 bits


def read_memory_modules() -> list[MemoryModule] | str:
    """Return this host's memory modules (DDR3 to DDR5), or why they are unknown, as a text."""
    try:
        return parse_memory_modules(Path("/sys/firmware/dmi/tables/DMI").read_bytes())
    except FileNotFoundError:
        return "the firmware of this host has no SMBIOS table"
    except PermissionError:
        return "only root can read the SMBIOS table"
    except OSError as error:
        return f"the SMBIOS table could not be read: {error.strerror}"


def parse_memory_modules(table: bytes) -> list[MemoryModule] | str:
    """Return the memory modules in an SMBIOS table, or why they are unknown, as a text.

    A structure of an SMBIOS table has fields, then texts, then a zero byte. The header of the
    structure has the length of the fields. Each text of a structure ends with a zero byte. A table
    without its end marker counts as damaged.
    """
    modules, at = list[MemoryModule](), 0
    while table[at : at + 1] != _END_OF_TABLE:
        kind, length = (*table[at : at + 2], 0, 0)[:2]
        end = table.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return "the SMBIOS table is damaged"
        if kind == _MEMORY_DEVICE:
            found = _parse_memory_device(table[at : at + length], table[at + length : end])
            if isinstance(found, str):
                return found
            modules += found
        at = end + 2
    return modules or "the SMBIOS table lists no memory module"


def _parse_memory_device(fields: bytes, texts: bytes) -> list[MemoryModule] | str:
    """Return a list with the module of a structure, or why the module is unknown, as a text.

    The list is empty for an empty slot and for persistent memory.
    """
    fields = fields.ljust(0x5C, b"\0")  # older versions of SMBIOS lack the last fields
    width, size = unpack_from("<HH", fields, 0x0A)
    slot, bank, kind = fields[0x10:0x13]
    if size == 0 or kind == _PERSISTENT_MEMORY_TYPE:
        return []
    if kind not in _LEAST_DATA_RATE_OF_MODULE_TYPE:
        return "a memory module is of another type than DDR3, DDR4 and DDR5"
    # The unit is KiB if the top bit of the size is set, else MiB.
    size_bytes = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    if size == 0x7FFF:  # a size of 32 GiB or more is in a separate field
        size_bytes = (unpack_from("<I", fields, 0x1C)[0] & 0x7FFFFFFF) << 20
    rate = unpack_from("<H", fields, 0x20)[0]
    if rate == 0xFFFF:
        rate = unpack_from("<I", fields, 0x58)[0] & 0x7FFFFFFF
    if not rate or size == 0xFFFF:
        return "the firmware does not state sizes and configured speeds of memory modules"
    rate *= 2 if rate < _LEAST_DATA_RATE_OF_MODULE_TYPE[kind] else 1
    bits = max(width if width < 0xFFFF else 0, _DIMM_BITS)
    words = ["", *texts.decode("latin-1").split("\0")]
    locator = " ".join(words[n] for n in (slot, bank) if n < len(words))
    return [(size_bytes, rate * 1_000_000 * bits // 8, locator)]


# Number of the system call get_mempolicy(2): unistd_64.h (x86-64) and asm-generic/unistd.h.
_GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236, "riscv64": 236, "loongarch64": 236}


def check_memory_policies() -> None:
    """Check that this process may use the system calls of memory policies.

    Raises:
        UserError: the container of this process forbids these system calls.
    """
    number = _GET_MEMPOLICY.get(platform.machine())
    if number is None:
        return
    failed = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number), None, None, 0, None, 0
    )
    # Only the filter of a container answers EPERM to get_mempolicy; the kernel never does.
    if failed and ctypes.get_errno() == errno.EPERM:
        remedy = "add CAP_SYS_NICE (docker --cap-add SYS_NICE)"
        raise UserError("the container forbids memory policies", remedy=remedy)
