"""Settings of a running kernel: the files that hold them, and the values to write.

This module runs on the hosts, so it needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.kernel_files import NODES, SERVICE, Host, StateError
from ansible.module_utils.parsing.convert_bool import boolean

CPUFREQ = "sys/devices/system/cpu/cpufreq"
NO_TURBO = "sys/devices/system/cpu/intel_pstate/no_turbo"
WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"
THP = "sys/kernel/mm/transparent_hugepage"
NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
CPUS = "sys/devices/system/cpu"
SMT = f"{CPUS}/smt/control"
UNCORE = f"{CPUS}/intel_uncore_frequency"

HUGE_PAGE_POOL_FILE = re.compile(rf"{NODES}/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages")
# The file says whether the kernel chooses weights; Linux 6.18 has it under a wrong name.
AUTOMATIC_WEIGHTS_FILE = re.compile(rf"{WEIGHTS}/(auto|__auto_type)")
# Files that change when another file is written, so these are restored after the other file.
CHANGED_ALONG_FILE = re.compile(
    rf"{AUTOMATIC_WEIGHTS_FILE.pattern}|.*/(energy_performance_preference|policy\d+/boost)"
)
# The lower or upper limit of a clock.
CLOCK_LIMIT_FILE = re.compile(r".*/(?:scaling_)?(min|max)_freq(?:_khz)?")
# Vendor and family -> register of a core's prefetchers, and the bits that switch them off.
# Intel: L2 streamer, adjacent line, L1 streamer, L1 stride (SDM volume 4, MSR_PREFETCH_CONTROL).
# AMD family 19h: L1 stream, stride, region, L2 stream, up-down (APM volume 2, Prefetch Control).
PREFETCHERS = {
    ("GenuineIntel", "6"): (0x1A4, 0b1111),
    ("AuthenticAMD", "25"): (0xC0000108, 0b101111),
}
# Bounds of exit latencies of idle states, in microseconds; no idle state takes a second.
LATENCY_BOUNDS = (0, 10**6)
KHZ_PER_MHZ = 1000
KIB = {"K": 1, "M": 1024, "G": 1024**2}
# More pages than any machine has. The kernel reserves as many as fit, and their number is read
# back.
MOST_PAGES = 2**40
# The kernel stores a weight in one byte; 0 lets the kernel choose the weight.
WEIGHT_BOUNDS = (1, 255)
# 0 off, 1 on, 2 between tiers of memory, 3 both (Documentation/admin-guide/sysctl/kernel.rst).
NUMA_BALANCING_BOUNDS = (0, 3)

# File -> content to write; and these values with the list of files that are restored after them.
Values = dict[str, str]
Expanded = tuple[Values, list[str]]


def _node_and_page_kib_of_pool(name: str) -> tuple[str, int]:
    """Return node and page size in KiB of a pool of huge pages, from its file name."""
    match = HUGE_PAGE_POOL_FILE.fullmatch(name)
    if match is None:
        raise StateError(f"{name} is not a pool of huge pages")
    return match.group(1), int(match.group(2))


def format_size(kib: int) -> str:
    """Return a size with a binary unit, such as 2 MiB."""
    unit = max(
        (unit for unit, factor in KIB.items() if kib >= factor), key=KIB.__getitem__, default="K"
    )
    return f"{kib / KIB[unit]:.4g} {unit}iB"


def _whole_number_text(value: Any, bounds: tuple[int, int]) -> str:
    """Return a whole number within bounds, both included, as text for a file."""
    low, high = bounds
    if not re.fullmatch(r"\d+", str(value)) or not low <= int(value) <= high:
        raise StateError(f"{value} is not a whole number from {low} to {high}")
    return str(int(value))


def _value_of_each_node_file(
    files: Values, wanted: Mapping[str, Any], bounds: tuple[int, int]
) -> Values:
    """Return the value to write to each node's file.

    Args:
        files: node to the name of its file.
        wanted: node to value; `all` means every node with a file; a node's own value wins.
        bounds: the smallest and the largest allowed value.
    """
    if not files:
        raise StateError("this kernel has no such files for any node")
    strangers = sorted(wanted.keys() - files.keys() - {"all"})
    if strangers:
        raise StateError(
            f"node {', '.join(strangers)} has no such file; node {', '.join(files)} has"
        )
    values = {node: wanted.get(node, wanted.get("all")) for node in files}
    return {
        files[node]: _whole_number_text(v, bounds) for node, v in values.items() if v is not None
    }


def _huge_pages(host: Host, wanted: Mapping[Any, Any]) -> Expanded:
    """Return the pools' files and values for {node: {page size: count}}."""
    nodes = {str(node): sizes for node, sizes in wanted.items()}
    for node, sizes in nodes.items():
        if not isinstance(sizes, Mapping):
            raise StateError(f"node {node} needs a count for each size, as in {{2M: 512}}")
    found: Values = {}
    for page in sorted({page for sizes in nodes.values() for page in sizes}):
        match = re.fullmatch(r"(\d+)([KMG])", page)
        if not match:
            raise StateError(f"{page} is not a page size such as 2M or 1G")
        kib = int(match.group(1)) * KIB[match.group(2)]
        pools = host.find_files(f"{NODES}/node[0-9]*/hugepages/hugepages-{kib}kB/nr_hugepages")
        files = {_node_and_page_kib_of_pool(name)[0]: name for name in pools}
        counts = {node: sizes[page] for node, sizes in nodes.items() if page in sizes}
        try:
            found.update(_value_of_each_node_file(files, counts, (0, MOST_PAGES)))
        except StateError as error:
            raise StateError(f"pages of {page}: {error}") from None
    for node in sorted({_node_and_page_kib_of_pool(name)[0] for name in found}):
        _refuse_more_than_memory(host, node, found)
    return found, []


def _refuse_more_than_memory(host: Host, node: str, counts: Values) -> None:
    """Refuse more huge pages than fit into a node; the kernel would try until memory is full."""
    pools = host.find_files(f"{NODES}/node{node}/hugepages/hugepages-*kB/nr_hugepages")
    asked = sum(
        int(counts.get(name) or host.read(name)) * _node_and_page_kib_of_pool(name)[1]
        for name in pools
    )
    there = host.node_memory_kib(node, "MemTotal")
    if asked > there:
        raise StateError(
            f"node {node} has {format_size(there)} of memory;"
            f" {format_size(asked)} of huge pages are requested"
        )


def _online_policies(host: Host) -> list[str]:
    """Return the folders of all policies (groups of CPUs with one clock) with a CPU online.

    Files of other policies cannot be read: on current kernels not even the list of their CPUs.
    """
    found = []
    for name in host.find_files(f"{CPUFREQ}/policy[0-9]*/affected_cpus"):
        with contextlib.suppress(OSError):
            found += [name.rsplit("/", 1)[0]] if host.read_words(name) else []
    return found


def _policies_with(host: Host, what: str) -> list[str]:
    """Return the folders of `_online_policies`; refuse a host without any, which lacks `what`."""
    policies = _online_policies(host)
    if not policies:
        raise StateError(f"no CPU has {what}: /{CPUFREQ}/policy* is missing")
    return policies


def _check_known(place: str, known: Sequence[str], wanted: Any, unit: str = "") -> None:
    """Refuse a value that a place (a policy or the kernel) does not know; the error lists `known`.

    `unit` follows the list, such as " MHz".
    """
    if str(wanted) not in known:
        raise StateError(f"{place} knows {', '.join(known)}{unit}, not {wanted}")


def _governor_files(host: Host, wanted: str) -> Expanded:
    """Return the files that set the governor of all policies."""
    policies = _policies_with(host, "a governor here")
    for policy in policies:
        known = host.read_words(f"{policy}/scaling_available_governors")
        _check_known(policy.rsplit("/", 1)[1], known, wanted)
    # With the governor, drivers of current CPUs change the energy preference, but do not restore
    # it.
    beside = [n for p in policies for n in host.find_files(f"{p}/energy_performance_preference")]
    return {f"{policy}/scaling_governor": wanted for policy in policies}, beside


def _both_limits(host: Host, lower: list[str], lowest: str, wanted: Any) -> Values:
    """Return both limits of clocks, equal to the wanted clock in MHz.

    Args:
        host: the files of the host.
        lower: the file with the lower limit of each clock, in kHz; with max instead of min, its
            name is that of the file with the upper limit.
        lowest: name of the file, in the same folder, with the hardware's lowest clock.
        wanted: the clock.
    """
    values: Values = {}
    for name in lower:
        folder, file = name.rsplit("/", 1)
        ends = (host.read(f"{folder}/{each}") for each in (lowest, lowest.replace("min", "max")))
        low, high = (int(end) // KHZ_PER_MHZ for end in ends)
        try:
            clock = str(int(_whole_number_text(wanted, (low, high))) * KHZ_PER_MHZ)
        except StateError as error:
            raise StateError(f"{folder.rsplit('/', 1)[1]}: {error} MHz") from None
        values[name] = values[f"{folder}/{file.replace('min', 'max')}"] = clock
    return values


def _clock_mhz(host: Host, wanted: Any) -> Expanded:
    """Return the files that fix the clock of all CPUs."""
    policies = _policies_with(host, "a clock that can be set")
    for policy in policies:
        # A driver with a table of clocks would take the next clock in its table instead.
        for name in host.find_files(f"{policy}/scaling_available_frequencies"):
            known = sorted(int(word) // KHZ_PER_MHZ for word in host.read_words(name))
            _check_known(policy.rsplit("/", 1)[1], [str(clock) for clock in known], wanted, " MHz")
    lower = [f"{policy}/scaling_min_freq" for policy in policies]
    return _both_limits(host, lower, "cpuinfo_min_freq", wanted), []


def _uncore_mhz(host: Host, wanted: Any) -> Expanded:
    """Return the files that fix the clock of Intel's mesh, last-level cache and controllers."""
    lower = host.find_files(f"{UNCORE}/*/min_freq_khz")
    if not lower:
        raise StateError(f"there is no /{UNCORE}; it needs an Intel Xeon and its kernel module")
    return _both_limits(host, lower, "initial_min_freq_khz", wanted), []


def _idle_latency_us(host: Host, wanted: Any) -> Expanded:
    """Return the files that switch off idle states with longer exit latencies, others on."""
    latency = int(_whole_number_text(wanted, LATENCY_BOUNDS))
    names = host.find_files(f"{CPUS}/cpu[0-9]*/cpuidle/state[0-9]*/latency")
    if not names:
        raise StateError(f"no CPU has idle states: /{CPUS}/cpu*/cpuidle/state* is missing")
    deeper = {name.rsplit("/", 1)[0]: int(host.read(name)) > latency for name in names}
    return {f"{folder}/disable": str(int(off)) for folder, off in deeper.items()}, []


def _prefetcher_registers(host: Host, wanted: Any) -> Expanded:
    """Return the registers that switch the hardware prefetchers of all cores."""
    text = (host.root / "proc/cpuinfo").read_text().partition("\n\n")[0]
    pairs = (line.partition(":") for line in text.splitlines())
    processor = {key.strip(): value.strip() for key, _, value in pairs}
    family = processor.get("vendor_id", "unknown"), processor.get("cpu family", "unknown")
    if family not in PREFETCHERS:
        raise StateError(
            f"no register is known for {family[0]} family {family[1]}; use the firmware's setting"
        )
    register, bits = PREFETCHERS[family]
    files = host.find_files("dev/cpu/[0-9]*/msr")
    if not files:
        raise StateError("there is no /dev/cpu/*/msr; load it with: modprobe msr")
    values: Values = {}
    for file in files:
        name = f"{file}@{register:#x}"
        try:
            others = int(host.read(name), 16) & ~bits
        except PermissionError:
            raise StateError(f"reading /{file} needs root; add --become") from None
        except OSError:
            raise StateError(f"this processor has no register {register:#x}") from None
        values[name] = hex(others | (0 if boolean(wanted) else bits))
    return values, []


def _smt_file(host: Host, wanted: Any) -> Expanded:
    """Return the file that switches the SMT siblings of all cores."""
    if not host.find_files(SMT):
        raise StateError(f"there is no /{SMT}")
    if host.read(SMT) not in ("on", "off"):
        raise StateError(f"SMT cannot be switched, since /{SMT} is {host.read(SMT)}")
    # While SMT siblings are off, their files cannot be read; when they are on again, boost resets
    # these files.
    return {SMT: "on" if boolean(wanted) else "off"}, _files_that_boost_resets(host)


def _files_that_boost_resets(host: Host) -> list[str]:
    """Return the switch and the upper limit of each policy, which the common switch overrides."""
    return [
        name
        for policy in _online_policies(host)
        for file in ("boost", "scaling_max_freq")
        for name in host.find_files(f"{policy}/{file}")
    ]


def _turbo_file(host: Host, wanted: Any) -> Expanded:
    """Return the file that allows clocks above nominal; Intel's driver has the inverse switch."""
    if host.find_files(NO_TURBO):
        return {NO_TURBO: str(int(not boolean(wanted)))}, []
    if not host.find_files(f"{CPUFREQ}/boost"):
        raise StateError(f"there is neither /{NO_TURBO} nor /{CPUFREQ}/boost")
    return {f"{CPUFREQ}/boost": str(int(boolean(wanted)))}, _files_that_boost_resets(host)


def _weighted_interleave(host: Host, wanted: Mapping[Any, Any]) -> Expanded:
    """Return the files for {node: weight}, the weights of weighted interleaving."""
    files = {name.rsplit("node", 1)[1]: name for name in host.find_files(f"{WEIGHTS}/node[0-9]*")}
    # Writing a weight ends the kernel's own choice of weights.
    beside = [
        name
        for name in host.find_files(f"{WEIGHTS}/*auto*")
        if AUTOMATIC_WEIGHTS_FILE.fullmatch(name)
    ]
    nodes = {str(node): weight for node, weight in wanted.items()}
    return _value_of_each_node_file(files, nodes, WEIGHT_BOUNDS), beside


def _setting_with_choices(name: str) -> Callable[[Host, str], Expanded]:
    """Return the function for a setting whose file lists its possible values."""

    def choose(host: Host, wanted: str) -> Expanded:
        if not host.find_files(name):
            raise StateError(f"there is no /{name}")
        _check_known("this kernel", host.read_words(name), wanted)
        return {name: wanted}, []

    return choose


def _numa_balancing(host: Host, wanted: Any) -> Expanded:
    """Return the file that lets the kernel move pages to the node that uses them."""
    if not host.find_files(NUMA_BALANCING):
        raise StateError(f"there is no /{NUMA_BALANCING}")
    number = int(wanted) if isinstance(wanted, bool) else wanted
    return {NUMA_BALANCING: _whole_number_text(number, NUMA_BALANCING_BOUNDS)}, []


def _irq_balance(host: Host, wanted: Any) -> Expanded:
    """Return the state of irqbalance, which spreads interrupts over CPUs."""
    known = host.service_state()["LoadState"]
    if known != "loaded":
        raise StateError(f"{SERVICE} is {known}")
    return {SERVICE: "active" if boolean(wanted) else "inactive"}, []


SETTINGS: dict[str, Callable[[Host, Any], Expanded]] = {
    "huge_pages": _huge_pages,
    "governor": _governor_files,
    "turbo": _turbo_file,
    "clock_mhz": _clock_mhz,
    "uncore_mhz": _uncore_mhz,
    "idle_latency_us": _idle_latency_us,
    "prefetchers": _prefetcher_registers,
    "smt": _smt_file,
    "transparent_huge_pages": _setting_with_choices(f"{THP}/enabled"),
    "transparent_huge_pages_defrag": _setting_with_choices(f"{THP}/defrag"),
    "numa_balancing": _numa_balancing,
    "weighted_interleave": _weighted_interleave,
    "irq_balance": _irq_balance,
}


def file_values_of_settings(host: Host, wanted: Mapping[str, Any]) -> Expanded:
    """Return each file's value for the requested settings, and the files that change with them.

    Args:
        host: the files of the host.
        wanted: setting to value; None leaves the setting unchanged.

    Raises:
        StateError: the host cannot do some settings; the message names all of them.
    """
    values: Values = {}
    beside: list[str] = []
    refused = []
    for setting, value in wanted.items():
        if value is None:
            continue
        try:
            more, along = SETTINGS[setting](host, value)
        except (StateError, OSError) as error:
            refused.append(f"host_state_{setting}: {error}")
        else:
            values.update(more)
            # Only a file that is about to change can change other files.
            if any(host.read(name) != target for name, target in more.items()):
                beside += along
    others = [f"host_state_{name}" for name in wanted if name != "smt" and wanted[name] is not None]
    if values.get(SMT) == "on" != host.read(SMT) and others:
        refused.append(f"host_state_smt: run it first without {others[0]}, which needs these CPUs")
    if refused:
        raise StateError("; ".join(refused))
    return values, beside
