"""Read facts about a host that affect all results: firmware, processor, memory modules, settings.

A reboot does not change facts about a host. Load, temperature, free memory and current frequency
are not read. Values are plain JSON; None means that the source lacks the value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from chaosity.runner.describe_host import MemoryModule
from chaosity.topology.hwloc import HwlocObject, HwlocTree
from chaosity.topology.topology_parts import (
    DRAM,
    FrequencySettings,
    HostFacts,
    IdleSettings,
    MemoryModuleSlot,
    MemoryPeak,
    Node,
)
from chaosity.topology.topology_sources import LIVE_SOURCE, SysfsReader, TopologySource

_CPU_FOLDER = "sys/devices/system/cpu"
# Kernel parameters that can change a measured number. Other parameters (root=, console=) differ
# from host to host but do not change the speed.
_RELEVANT_KERNEL_PARAMETER = re.compile(
    r"(isolcpus|nohz|rcu_nocb|mitigations|spec|nospec|retbleed|pti|nopti|l1tf|mds|tsx|srbds|mmio|"
    r"transparent_hugepage|thp|hugepages|default_hugepagesz|numa|cgroup_disable|swiotlb|"
    r"maxcpus|nr_cpus|nosmt|threadirqs|irqaffinity|preempt|clocksource|tsc|haltpoll|cpuidle|"
    r"intel_pstate|amd_pstate|amd_prefcore|cpufreq|processor\.|intel_idle|idle|"
    r"iommu|intel_iommu|amd_iommu|pcie|pci=|nvme|scsi_mod|memmap|mem=|efi=|memory_hotplug|"
    r"page_reporting|init_on_)"
)

# Name of a value in dmidecode's output -> name in Chaosity, for values that a person would compare.
_SpeedField = Literal["slot", "bank", "size", "type", "ranks", "speed", "configured_speed"]
_FIELD_OF_DMIDECODE_KEY: dict[str, _SpeedField | Literal["manufacturer", "part", "serial"]] = {
    "Locator": "slot",
    "Bank Locator": "bank",
    "Size": "size",
    "Type": "type",
    "Rank": "ranks",
    "Speed": "speed",
    "Configured Memory Speed": "configured_speed",
    "Configured Clock Speed": "configured_speed",  # dmidecode before 3.2
    "Manufacturer": "manufacturer",
    "Part Number": "part",
    "Serial Number": "serial",
}
_TEXTS_WITHOUT_VALUE = frozenset(
    {"", "Unknown", "Not Specified", "None", "NO DIMM", "Not Provided"}
)


def read_host_facts(tree: HwlocTree, source: TopologySource) -> HostFacts:
    """Return all facts about a host that the source has; an XML file has only facts from hwloc."""
    infos, sysfs = tree.machine.infos, source.sysfs
    cpuinfo = sysfs.read_cpuinfo()
    parts = (*tree.machine.objects_of_type("Package"), tree.machine)

    def _processor_fact(info: str, key: str) -> str | None:
        """Return a fact from hwloc's infos on a package or machine, or else /proc/cpuinfo."""
        values = (*(part.infos.get(info) for part in parts), cpuinfo.get(key))
        return next((" ".join(value.split()) for value in values if value), None)

    facts: HostFacts = {
        "name": infos.get("HostName"),
        "firmware": _firmware_facts(infos),
        "cpu_model": _processor_fact("CPUModel", "model name"),
        "cpu_vendor": _processor_fact("CPUVendor", "vendor_id"),
        "cpu_family": _processor_fact("CPUFamilyNumber", "cpu family"),
        "cpu_model_number": _processor_fact("CPUModelNumber", "model"),
        "cpu_stepping": _processor_fact("CPUStepping", "stepping"),
        "architecture": infos.get("Architecture") or source.facts.get("architecture"),
        "operating_system": infos.get("OSName"),
        "cpu_flags": sorted((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()),
        "kernel_release": infos.get("OSRelease"),
        "kernel_version": infos.get("OSVersion"),
        "memory_modules": _memory_modules(tree, source),
    }
    return facts if source.kind == "xml" else {**facts, **_kernel_facts(sysfs, cpuinfo)}


def _memory_modules(tree: HwlocTree, source: TopologySource) -> list[MemoryModuleSlot] | None:
    """Return the slots for memory modules; None if the source does not list them."""
    # Only root can read the slots from SMBIOS. On a live machine dmidecode reads the slots. An XML
    # file has the slots if root ran hwloc. Empty slots are listed too, since a memory channel
    # without a module costs bandwidth.
    if source.kind == LIVE_SOURCE:
        return parse_dmidecode_memory_modules(source.facts.get("memory_modules") or "") or None
    items = [
        item for item in tree.machine.objects_of_type("Misc") if item.subtype == "MemoryModule"
    ]
    return [
        {
            "slot": _info_of_object(item, "DeviceLocation"),
            "bank": _info_of_object(item, "BankLocation"),
            "manufacturer": _info_of_object(item, "Vendor"),
            "part": _info_of_object(item, "PartNumber"),
            "serial": _info_of_object(item, "SerialNumber"),
        }
        for item in items
    ] or None


def _info_of_object(item: HwlocObject, name: str) -> str | None:
    return item.infos.get(name, "").strip() or None


def parse_dmidecode_memory_modules(text: str) -> list[MemoryModuleSlot]:
    """Return the slots in the output of `dmidecode --type 17`, in the order of the output."""
    modules: list[MemoryModuleSlot] = []
    for line in text.splitlines():
        if line.strip() == "Memory Device":
            modules.append({})
        elif modules and line.startswith(("\t", "  ")) and ":" in line:
            name, _, value = line.strip().partition(":")
            if key := _FIELD_OF_DMIDECODE_KEY.get(name):
                modules[-1][key] = None if value.strip() in _TEXTS_WITHOUT_VALUE else value.strip()
    return modules


def _firmware_facts(infos: dict[str, str]) -> dict[str, str | None]:
    """Return the facts about firmware and board that hwloc read from /sys/class/dmi."""
    names = {
        "bios_vendor": "DMIBIOSVendor",
        "bios_version": "DMIBIOSVersion",
        "bios_date": "DMIBIOSDate",
        "board_vendor": "DMIBoardVendor",
        "board_name": "DMIBoardName",
        "board_version": "DMIBoardVersion",
        "product_vendor": "DMISysVendor",
        "product_name": "DMIProductName",
        "product_version": "DMIProductVersion",
    }
    return {key: infos.get(name, "").strip(" .") or None for key, name in names.items()}


def _kernel_facts(sysfs: SysfsReader, cpuinfo: dict[str, str]) -> HostFacts:
    return {
        "microcode": cpuinfo.get("microcode"),
        "hypervisor": "hypervisor" in cpuinfo.get("flags", "").split(),
        "kernel_parameters": relevant_kernel_parameters(sysfs.read_text("proc/cmdline") or ""),
        "smt": sysfs.read_text(f"{_CPU_FOLDER}/smt/control"),
        "frequency": _frequency_settings(sysfs),
        "idle": _idle_settings(sysfs),
        "memory_settings": _memory_settings(sysfs),
        "mitigations": {
            name: sysfs.read_text(f"{_CPU_FOLDER}/vulnerabilities/{name}")
            for name in sysfs.list_directory(f"{_CPU_FOLDER}/vulnerabilities")
        },
    }


def relevant_kernel_parameters(command_line: str) -> list[str]:
    """Return the parameters on the kernel's command line that can change a measured number.

    Words after `--` are left out, since these words are for the init program.
    """
    kernel = re.split(r"\s--(?:\s|$)", command_line, maxsplit=1)[0]
    return [
        word for word in kernel.split() if _RELEVANT_KERNEL_PARAMETER.match(word.replace("-", "_"))
    ]


def _frequency_settings(sysfs: SysfsReader) -> FrequencySettings:
    """Return how the kernel chooses frequencies: the distinct values of all cpufreq policies."""
    base = f"{_CPU_FOLDER}/cpufreq"
    policies = [name for name in sysfs.list_directory(base) if name.startswith("policy")]

    def _distinct_values(attribute: str) -> list[str]:
        values = {sysfs.read_text(f"{base}/{policy}/{attribute}") for policy in policies}
        return sorted(value for value in values if value)

    return {
        "drivers": _distinct_values("scaling_driver"),
        "governors": _distinct_values("scaling_governor"),
        "energy_preferences": _distinct_values("energy_performance_preference"),
        "lower_limits_hertz": [1000 * int(khz) for khz in _distinct_values("scaling_min_freq")],
        "upper_limits_hertz": [1000 * int(khz) for khz in _distinct_values("scaling_max_freq")],
        "turbo": _is_turbo_allowed(sysfs),
    }


def _is_turbo_allowed(sysfs: SysfsReader) -> bool | None:
    """Return whether cores may exceed their base frequency; None if the kernel does not say."""
    no_turbo = sysfs.read_number(f"{_CPU_FOLDER}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = sysfs.read_number(f"{_CPU_FOLDER}/cpufreq/boost")
    return None if boost is None else boost == 1


def _idle_settings(sysfs: SysfsReader) -> IdleSettings:
    """Return the idle driver, idle governor, and sleep states that are disabled on CPU 0."""
    base = f"{_CPU_FOLDER}/cpu0/cpuidle"
    return {
        "driver": sysfs.read_text(f"{_CPU_FOLDER}/cpuidle/current_driver"),
        "governor": sysfs.read_text(f"{_CPU_FOLDER}/cpuidle/current_governor"),
        "disabled_states": [
            sysfs.read_text(f"{base}/{state}/name") or state
            for state in sysfs.list_directory(base)
            if sysfs.read_number(f"{base}/{state}/disable") == 1
        ],
    }


def _memory_settings(sysfs: SysfsReader) -> dict[str, str | None]:
    """Return the kernel's settings of memory, such as `madvise` for `always [madvise] never`."""
    thp = "sys/kernel/mm/transparent_hugepage"
    return {
        "transparent_huge_pages": bracketed_word(sysfs.read_text(f"{thp}/enabled")),
        "transparent_huge_page_defrag": bracketed_word(sysfs.read_text(f"{thp}/defrag")),
        "numa_balancing": sysfs.read_text("proc/sys/kernel/numa_balancing"),
        "zone_reclaim_mode": sysfs.read_text("proc/sys/vm/zone_reclaim_mode"),
        "numa_demotion": sysfs.read_text("sys/kernel/mm/numa/demotion_enabled"),
        "kernel_samepage_merging": sysfs.read_text("sys/kernel/mm/ksm/run"),
    }


def bracketed_word(text: str | None) -> str | None:
    """Return the word in brackets, which is the kernel's current choice, or else the full text."""
    match = re.search(r"\[(.+?)\]", text or "")
    return match[1] if match else text


# The package in a slot's name, such as "P0 CHANNEL A", "CPU1_DIMM_A1", "PROC 1 DIMM 2", "NODE 0".
_PACKAGE_IN_SLOT_NAME = re.compile(
    r"(?<![A-Z0-9])(?:P|CPU|PROC|SOCKET|NODE)[ _-]?\d+", re.IGNORECASE
)


def find_memory_peak(
    modules: list[MemoryModule] | str,
    nodes: Iterable[Node],
    packages: int,
    may_be_virtual: bool,
) -> MemoryPeak:
    """Return the upper bounds of the bandwidth of a host's DRAM, or why the bounds are unknown.

    `modules` are the memory modules, or the reason why they are unknown; `packages` is the number
    of packages. The bound of the machine is the sum of speed x width over all modules. The sum can
    be too high, since modules may share a channel. A bound that is too low would refuse correct
    values, so a doubtful bound counts as unknown.
    """
    if isinstance(modules, str):
        return MemoryPeak(None, None, modules)
    if may_be_virtual:  # some clouds list one module for any size of machine
        return MemoryPeak(None, None, "a table of modules in a virtual machine may be invented")
    held = Counter[int | None]({None: 0})
    size, rate = Counter[str](), Counter[str]()
    for node in nodes:
        held[node.package] += (node.size_bytes or 0) if node.kind == DRAM else 0
    for size_bytes, bytes_per_second, locator in modules:
        package = named[0] if (named := _PACKAGE_IN_SLOT_NAME.search(locator)) else ""
        size[package] += size_bytes
        rate[package] += bytes_per_second
    if size.total() < held.total():
        return MemoryPeak(None, None, "the table lists less memory than the host has")
    # Numbers of packages in slot names may differ from the kernel's numbers of packages. So the
    # package with the most bandwidth gives the bound for every package.
    is_known = "" not in size and len(size) == packages and max(size.values()) >= max(held.values())
    return MemoryPeak(rate.total(), max(rate.values()) if is_known else None)
