"""Settings of the running kernel: files below /sys and /proc, and one service.

This module runs on the hosts, so it needs only the standard library of Python 3.9 or later.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

CPUFREQ = "sys/devices/system/cpu/cpufreq"
NO_TURBO = "sys/devices/system/cpu/intel_pstate/no_turbo"
NODES = "sys/devices/system/node"
WEIGHTS = "sys/kernel/mm/mempolicy/weighted_interleave"
THP = "sys/kernel/mm/transparent_hugepage"
NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
SERVICE = "irqbalance.service"

POOL = re.compile(rf"{NODES}/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages")
# The file says whether the kernel chooses weights; Linux 6.18 has it under a wrong name.
AUTO = re.compile(rf"{WEIGHTS}/(auto|__auto_type)")
# Files that change when another file is written, so they are restored after it.
ALONG = re.compile(rf"{AUTO.pattern}|.*/(energy_performance_preference|policy\d+/boost)")
KIB = {"K": 1, "M": 1024, "G": 1024**2}
# More than any machine has. The kernel reserves what fits, and the result is read back.
MOST_PAGES = 2**40
# The kernel stores a weight in one byte; 0 lets it choose.
WEIGHT_BOUNDS = (1, 255)
# 0 off, 1 on, 2 between tiers of memory, 3 both (Documentation/admin-guide/sysctl/kernel.rst).
NUMA_BALANCING_BOUNDS = (0, 3)

# Requested contents by file; and these together with files that are restored after them.
Values = dict[str, str]
Expanded = tuple[Values, list[str]]


class StateError(Exception):
    """Something cannot be done; the message is one sentence with the reason."""


class Host:
    """The files below a folder with `sys` and `proc`, named relative to it, and the service."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def find(self, pattern: str) -> list[str]:
        """Names of matching files, in the order of the numbers in them."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])

    def words(self, name: str) -> list[str]:
        """All words of a file without brackets: the possible values."""
        return re.sub(r"[\[\]]", "", (self.root / name).read_text()).split()

    def read(self, name: str) -> str:
        """The value; of a choice, the word in brackets."""
        if name == SERVICE:
            # One that failed or is on its way down is given back as stopped.
            return "active" if self.service()["ActiveState"] == "active" else "inactive"
        text = (self.root / name).read_text().strip()
        chosen = re.search(r"\[(\S+)\]", text)
        return chosen.group(1) if chosen else text

    def write(self, name: str, value: str) -> None:
        """Write a value in one go; a file that is not there is an error and is not made."""
        if name == SERVICE:
            self._systemctl("start" if value == "active" else "stop", SERVICE)
            return
        handle = os.open(self.root / name, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, value.encode())
        finally:
            os.close(handle)

    def memory_kib(self, node: str, what: str) -> int:
        """`MemTotal` or `MemFree` of a node."""
        text = (self.root / f"{NODES}/node{node}/meminfo").read_text()
        found = re.search(rf"{what}: *(\d+) kB", text)
        if found is None:
            raise StateError(f"node {node} does not report {what}")
        return int(found.group(1))

    def service(self) -> dict[str, str]:
        """LoadState and ActiveState of the service, from systemd."""
        lines = self._systemctl("show", "--property=LoadState,ActiveState", SERVICE)
        return dict(line.split("=", 1) for line in lines)

    @staticmethod
    def _systemctl(*arguments: str) -> list[str]:
        if not shutil.which("systemctl"):
            raise StateError("systemd is missing, which starts and stops the service")
        answer = subprocess.run(
            ["systemctl", *arguments], capture_output=True, text=True, check=False
        )
        if answer.returncode:
            raise StateError(answer.stderr.splitlines()[0])
        return answer.stdout.splitlines()


def pool_of(name: str) -> tuple[str, int]:
    """Node and page size in KiB of a pool of huge pages, from the name of its file."""
    match = POOL.fullmatch(name)
    if match is None:
        raise StateError(f"{name} is not a pool of huge pages")
    return match.group(1), int(match.group(2))


def size(kib: int) -> str:
    """A size with a binary unit, such as 2 MiB."""
    unit = max(
        (unit for unit, factor in KIB.items() if kib >= factor), key=KIB.__getitem__, default="K"
    )
    return f"{kib / KIB[unit]:.4g} {unit}iB"


def whole(value: Any, bounds: tuple[int, int]) -> str:
    """A whole number within bounds, both included, as the text that a file holds."""
    low, high = bounds
    if not re.fullmatch(r"\d+", str(value)) or not low <= int(value) <= high:
        raise StateError(f"{value} is no whole number from {low} to {high}")
    return str(int(value))


def spread(files: Values, wanted: Mapping[str, Any], bounds: tuple[int, int]) -> Values:
    """What each node's file is to hold.

    Args:
        files: node to the name of its file.
        wanted: node to value; `all` is every node with a file, and a node's own value outranks it.
        bounds: of the values.
    """
    if not files:
        raise StateError("this kernel has them on no node")
    strangers = sorted(wanted.keys() - files.keys() - {"all"})
    if strangers:
        raise StateError(f"node {', '.join(strangers)} has none, node {', '.join(files)} has")
    values = {node: wanted.get(node, wanted.get("all")) for node in files}
    return {files[node]: whole(v, bounds) for node, v in values.items() if v is not None}


def huge_pages(host: Host, wanted: Mapping[Any, Any]) -> Expanded:
    """{node: {size: count}} to the files of the nodes' pools."""
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
        pools = host.find(f"{NODES}/node[0-9]*/hugepages/hugepages-{kib}kB/nr_hugepages")
        files = {pool_of(name)[0]: name for name in pools}
        counts = {node: sizes[page] for node, sizes in nodes.items() if page in sizes}
        try:
            found.update(spread(files, counts, (0, MOST_PAGES)))
        except StateError as error:
            raise StateError(f"pages of {page}: {error}") from None
    for node in sorted({pool_of(name)[0] for name in found}):
        fits(host, node, found)
    return found, []


def fits(host: Host, node: str, counts: Values) -> None:
    """Refuse more huge pages than a node has memory; the kernel would use all memory in trying."""
    pools = host.find(f"{NODES}/node{node}/hugepages/hugepages-*kB/nr_hugepages")
    asked = sum(int(counts.get(name) or host.read(name)) * pool_of(name)[1] for name in pools)
    there = host.memory_kib(node, "MemTotal")
    if asked > there:
        raise StateError(
            f"node {node} has {size(there)} of memory, and {size(asked)} are asked of it"
        )


def governor(host: Host, wanted: str) -> Expanded:
    """The governor of every policy; a policy is a group of CPUs with one clock."""
    folders = [
        name.rsplit("/", 1)[0] for name in host.find(f"{CPUFREQ}/policy[0-9]*/scaling_governor")
    ]
    # A policy whose CPUs are all offline answers no question.
    policies = [folder for folder in folders if host.words(f"{folder}/affected_cpus")]
    if not policies:
        raise StateError(f"no CPU has one here: there is no /{CPUFREQ}/policy*")
    for policy in policies:
        known = host.words(f"{policy}/scaling_available_governors")
        if wanted not in known:
            raise StateError(f"{policy.rsplit('/', 1)[1]} knows {', '.join(known)}, not {wanted}")
    # Drivers of current CPUs change this with the governor, and not back with it.
    beside = [n for p in policies for n in host.find(f"{p}/energy_performance_preference")]
    return {f"{policy}/scaling_governor": wanted for policy in policies}, beside


def turbo(host: Host, wanted: Any) -> Expanded:
    """Clocks above the nominal one; Intel's own driver asks the other way round."""
    if host.find(NO_TURBO):
        return {NO_TURBO: str(int(not boolean(wanted)))}, []
    if not host.find(f"{CPUFREQ}/boost"):
        raise StateError(f"there is neither /{NO_TURBO} nor /{CPUFREQ}/boost")
    # The switch of all overrides that of each policy.
    beside = host.find(f"{CPUFREQ}/policy[0-9]*/boost")
    return {f"{CPUFREQ}/boost": str(int(boolean(wanted)))}, beside


def weighted_interleave(host: Host, wanted: Mapping[Any, Any]) -> Expanded:
    """{node: weight}: pages in a row on each node by weighted interleaving."""
    files = {name.rsplit("node", 1)[1]: name for name in host.find(f"{WEIGHTS}/node[0-9]*")}
    # A weight that is written ends the kernel's own choice.
    beside = [name for name in host.find(f"{WEIGHTS}/*auto*") if AUTO.fullmatch(name)]
    nodes = {str(node): weight for node, weight in wanted.items()}
    return spread(files, nodes, WEIGHT_BOUNDS), beside


def choice(name: str) -> Callable[[Host, str], Expanded]:
    """A setting whose file lists what it may hold."""

    def choose(host: Host, wanted: str) -> Expanded:
        if not host.find(name):
            raise StateError(f"there is no /{name}")
        if wanted not in host.words(name):
            raise StateError(f"this kernel knows {', '.join(host.words(name))}, not {wanted}")
        return {name: wanted}, []

    return choose


def numa_balancing(host: Host, wanted: Any) -> Expanded:
    """Whether the kernel moves pages to the node that uses them."""
    if not host.find(NUMA_BALANCING):
        raise StateError(f"there is no /{NUMA_BALANCING}")
    number = int(wanted) if isinstance(wanted, bool) else wanted
    return {NUMA_BALANCING: whole(number, NUMA_BALANCING_BOUNDS)}, []


def irq_balance(host: Host, wanted: Any) -> Expanded:
    """Whether the service that spreads interrupts over CPUs runs."""
    known = host.service()["LoadState"]
    if known != "loaded":
        raise StateError(f"{SERVICE} is {known}")
    return {SERVICE: "active" if boolean(wanted) else "inactive"}, []


SETTINGS: dict[str, Callable[[Host, Any], Expanded]] = {
    "huge_pages": huge_pages,
    "governor": governor,
    "turbo": turbo,
    "transparent_huge_pages": choice(f"{THP}/enabled"),
    "transparent_huge_pages_defrag": choice(f"{THP}/defrag"),
    "numa_balancing": numa_balancing,
    "weighted_interleave": weighted_interleave,
    "irq_balance": irq_balance,
}


def expand(host: Host, wanted: Mapping[str, Any]) -> Expanded:
    """All that is wanted, as values of files, and the files that change along.

    Args:
        host: whose files.
        wanted: setting to value; None leaves it alone.

    Raises:
        StateError: this host lacks some of it; every such setting is named.
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
            # Only what is about to change can change something else.
            if any(host.read(name) != target for name, target in more.items()):
                beside += along
    if refused:
        raise StateError("; ".join(refused))
    return values, beside
