"""What of a host changes every number and stays from boot to boot: firmware, processor, settings.

Nothing that varies by itself is read here: no load, temperature, free memory or current frequency.
Values are plain JSON; None means that the source does not tell.
"""

from __future__ import annotations

import re

from chaosity.topology.fact_types import (
    FrequencySettings,
    HostFacts,
    IdleSettings,
    MemoryModule,
)
from chaosity.topology.hwloc_xml import HwlocTree
from chaosity.topology.memory_modules import modules_of_tree, parse_dmidecode
from chaosity.topology.sources import LIVE, Source
from chaosity.topology.sysfs import SysTree

_CPU = "sys/devices/system/cpu"
# Parameters on the kernel's command line that move a number; the rest (root=, console=) differs
# from host to host without a difference in speed.
_RELEVANT = re.compile(
    r"(isolcpus|nohz|rcu_nocb|mitigations|spec|nospec|retbleed|pti|nopti|l1tf|mds|tsx|srbds|mmio|"
    r"transparent_hugepage|thp|hugepages|default_hugepagesz|numa|cgroup_disable|swiotlb|"
    r"maxcpus|nr_cpus|nosmt|threadirqs|irqaffinity|preempt|clocksource|tsc|haltpoll|cpuidle|"
    r"intel_pstate|amd_pstate|amd_prefcore|cpufreq|processor\.|intel_idle|idle|"
    r"iommu|intel_iommu|amd_iommu|pcie|pci=|nvme|scsi_mod|memmap|mem=|efi=|memory_hotplug|"
    r"page_reporting|init_on_)"
)


def host_facts(tree: HwlocTree, source: Source) -> HostFacts:
    """All facts of a host; from an XML alone only what hwloc wrote into it."""
    infos, sysfs = tree.machine.infos, source.sysfs
    cpuinfo = sysfs.cpuinfo() if sysfs else {}
    facts: HostFacts = {
        "name": infos.get("HostName"),
        "firmware": _firmware(infos),
        "cpu_model": _cpu_model(tree, cpuinfo),
        "cpu_vendor": _package_info(tree, "CPUVendor") or cpuinfo.get("vendor_id"),
        "cpu_family": _package_info(tree, "CPUFamilyNumber") or cpuinfo.get("cpu family"),
        "cpu_model_number": _package_info(tree, "CPUModelNumber") or cpuinfo.get("model"),
        "cpu_stepping": _package_info(tree, "CPUStepping") or cpuinfo.get("stepping"),
        "architecture": infos.get("Architecture") or source.architecture,
        "operating_system": infos.get("OSName"),
        "cpu_flags": sorted((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split()),
        "kernel_release": infos.get("OSRelease"),
        "kernel_version": infos.get("OSVersion"),
        "memory_modules": _memory_modules(tree, source),
    }
    return {**facts, **_kernel_facts(sysfs, cpuinfo)} if sysfs else facts


def _memory_modules(tree: HwlocTree, source: Source) -> list[MemoryModule] | None:
    """The slots; None where nothing tells."""
    if source.kind == LIVE:
        return parse_dmidecode(source.memory_modules or "") or None
    return modules_of_tree(tree)


def _firmware(infos: dict[str, str]) -> dict[str, str | None]:
    """Firmware and board by DMI, as hwloc read it from /sys/class/dmi; blanks are None."""
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


def _package_info(tree: HwlocTree, name: str) -> str | None:
    values = (item.infos.get(name) for item in (*tree.machine.all("Package"), tree.machine))
    return next((" ".join(value.split()) for value in values if value), None)


def _cpu_model(tree: HwlocTree, cpuinfo: dict[str, str]) -> str | None:
    text = _package_info(tree, "CPUModel") or cpuinfo.get("model name") or ""
    return " ".join(text.split()) or None


def _kernel_facts(sysfs: SysTree, cpuinfo: dict[str, str]) -> HostFacts:
    return {
        "microcode": cpuinfo.get("microcode"),
        "hypervisor": "hypervisor" in cpuinfo.get("flags", "").split(),
        "kernel_parameters": relevant_parameters(sysfs.text("proc/cmdline") or ""),
        "smt": sysfs.text(f"{_CPU}/smt/control"),
        "frequency": _frequency(sysfs),
        "idle": _idle(sysfs),
        "memory_settings": _memory_settings(sysfs),
        "mitigations": {
            name: sysfs.text(f"{_CPU}/vulnerabilities/{name}")
            for name in sysfs.entries(f"{_CPU}/vulnerabilities")
        },
    }


def relevant_parameters(command_line: str) -> list[str]:
    """Kernel parameters that can change a measured number, in their order.

    What follows `--` is for the init program.
    """
    kernel = re.split(r"\s--(?:\s|$)", command_line, maxsplit=1)[0]
    return [word for word in kernel.split() if _RELEVANT.match(word.replace("-", "_"))]


def _frequency(sysfs: SysTree) -> FrequencySettings:
    """How frequencies are chosen: distinct values over all policies, as they may differ."""
    base = f"{_CPU}/cpufreq"
    policies = [name for name in sysfs.entries(base) if name.startswith("policy")]

    def distinct(attribute: str) -> list[str]:
        values = {sysfs.text(f"{base}/{policy}/{attribute}") for policy in policies}
        return sorted(value for value in values if value)

    return {
        "drivers": distinct("scaling_driver"),
        "governors": distinct("scaling_governor"),
        "energy_preferences": distinct("energy_performance_preference"),
        "lower_limits_hertz": [1000 * int(khz) for khz in distinct("scaling_min_freq")],
        "upper_limits_hertz": [1000 * int(khz) for khz in distinct("scaling_max_freq")],
        "turbo": _turbo(sysfs),
    }


def _turbo(sysfs: SysTree) -> bool | None:
    """Whether cores may exceed their base frequency; intel_pstate states the opposite."""
    no_turbo = sysfs.number(f"{_CPU}/intel_pstate/no_turbo")
    if no_turbo is not None:
        return no_turbo == 0
    boost = sysfs.number(f"{_CPU}/cpufreq/boost")
    return None if boost is None else boost == 1


def _idle(sysfs: SysTree) -> IdleSettings:
    """The idle driver and governor, and the sleep states that are switched off on CPU 0."""
    base = f"{_CPU}/cpu0/cpuidle"
    return {
        "driver": sysfs.text(f"{_CPU}/cpuidle/current_driver"),
        "governor": sysfs.text(f"{_CPU}/cpuidle/current_governor"),
        "disabled_states": [
            sysfs.text(f"{base}/{state}/name") or state
            for state in sysfs.entries(base)
            if sysfs.number(f"{base}/{state}/disable") == 1
        ],
    }


def _memory_settings(sysfs: SysTree) -> dict[str, str | None]:
    """Page placement settings; of a choice like `always [madvise] never` the chosen word."""
    thp = "sys/kernel/mm/transparent_hugepage"
    return {
        "transparent_huge_pages": chosen(sysfs.text(f"{thp}/enabled")),
        "transparent_huge_page_defrag": chosen(sysfs.text(f"{thp}/defrag")),
        "numa_balancing": sysfs.text("proc/sys/kernel/numa_balancing"),
        "zone_reclaim_mode": sysfs.text("proc/sys/vm/zone_reclaim_mode"),
        "numa_demotion": sysfs.text("sys/kernel/mm/numa/demotion_enabled"),
        "kernel_samepage_merging": sysfs.text("sys/kernel/mm/ksm/run"),
    }


def chosen(text: str | None) -> str | None:
    """The word in brackets of a kernel choice, or the whole text when there are none."""
    match = re.search(r"\[(.+?)\]", text or "")
    return match[1] if match else text
