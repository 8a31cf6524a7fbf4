"""Which NUMA nodes exist, and whose processing units are whose.

hwloc hides nodes without memory, lends CPU-less nodes a neighbour's processing units and drops
what a cgroup forbids. Where /sys is at hand it says the truth; from an XML alone the truth is
inferred, and the comments say from what.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from chaosity.cpusets import CpuSet, cpu_set
from chaosity.topology.hwloc_xml import HwlocObject, HwlocTree
from chaosity.topology.sysfs import SysfsNode, SysTree

# hwloc's subtypes of memory that processors do not sit next to; such a node owns no CPUs.
SPECIAL_MEMORY = frozenset({"MCDRAM", "HBM", "NVM", "SPM", "GPUMemory", "CXL-DRAM", "CXL-NVM"})


@dataclass
class KnownNode:
    """What is known of one node before its flags are drawn from it.

    `item` is hwloc's object, None when hwloc hides the node. `borrowed` is the cpuset that hwloc
    gives: its own processing units, or for a CPU-less node those it is closest to.
    """

    os_index: int
    item: HwlocObject | None
    borrowed: CpuSet
    own: CpuSet = ()
    memory_bytes: int | None = None
    package: int | None = None
    has_cpus: bool = False

    @property
    def special(self) -> bool:
        """Whether hwloc marks it as another kind of memory than the processors' own."""
        infos = self.item.infos if self.item else {}
        return (self.item is not None and self.item.subtype in SPECIAL_MEMORY) or "DAXType" in infos


def known_nodes(tree: HwlocTree, sysfs: SysTree | None) -> list[KnownNode]:
    """All nodes that the XML or /sys tells of, with their own processing units and memory."""
    visible = {item.os_index: item for item in tree.machine.all("NUMANode")}
    kernel = {node.os_index: node for node in sysfs.nodes()} if sysfs else {}
    known = []
    for index in sorted({*visible, *kernel, *tree.machine.complete_nodes}):
        item = visible.get(index)
        borrowed = item.cpus if item else _cpus_near(tree, index)
        known.append(KnownNode(index, item, borrowed))
    _assign_owners(known, kernel, tree.machine.cpus)
    packages = tree.machine.all("Package")
    for node in known:
        in_kernel = kernel.get(node.os_index)
        listed = (in_kernel.cpus if in_kernel else None) or ()
        node.memory_bytes = _memory(node, in_kernel, tree)
        node.has_cpus = bool(node.own or listed or _lost_all_cpus(node))
        node.package = _package_of(node.os_index, packages)
        if node.package is None and sysfs:  # hwloc hides a package that is wholly forbidden
            node.package = sysfs.package_of(listed)
    return known


def _lost_all_cpus(node: KnownNode) -> bool:
    """Whether all of a node's processing units are offline or forbidden, as an XML tells it.

    A CPU-less node borrows some that are usable, so it has a cpuset.
    """
    return node.item is not None and not node.item.cpus and bool(node.item.complete_cpus)


def _cpus_near(tree: HwlocTree, index: int) -> CpuSet:
    """Processing units that hwloc places near a node which it hides.

    The node is gone from their nodeset but stays in their complete_nodeset.
    """
    pus = tree.machine.all("PU")
    return cpu_set(
        pu.os_index for pu in pus if index in pu.complete_nodes and pu.os_index is not None
    )


def _assign_owners(known: list[KnownNode], kernel: dict[int, SysfsNode], shown: CpuSet) -> None:
    """Gives every processing unit to the one node it belongs to.

    From an XML alone several nodes may claim one: a CPU-less node borrows the cpuset of one
    neighbour or of several. So the owner is the claimant with the fewest processing units; among
    equals an ordinary memory, and then the lowest OS index, for Linux numbers the nodes of
    processors before those that have only memory (acpi_numa_init reads CPU affinities first).
    """
    if kernel and all(node.cpus is not None for node in kernel.values()):
        for node in known:
            listed = kernel[node.os_index].cpus if node.os_index in kernel else ()
            # /sys lists offline ones too, hwloc does not show them.
            node.own = cpu_set(set(listed or ()) & set(shown))
        return
    owned: dict[int, list[int]] = {}
    for cpu in shown:
        claimants = [node for node in known if cpu in node.borrowed]
        if claimants:
            owner = min(claimants, key=lambda n: (len(n.borrowed), n.special, n.os_index))
            owned.setdefault(owner.os_index, []).append(cpu)
    for node in known:
        node.own = cpu_set(owned.get(node.os_index, ()))


def _memory(node: KnownNode, kernel: SysfsNode | None, tree: HwlocTree) -> int | None:
    """Bytes of memory, 0 for a memory-less node, None when the source does not tell."""
    if node.item is not None and node.item.number("local_memory"):
        return node.item.number("local_memory")
    if kernel is not None:
        return kernel.memory_bytes
    if node.item is not None:
        # hwloc leaves a size of 0 out; where no node has one (cpuid dumps), it knew none.
        sizes = (item.number("local_memory") for item in tree.machine.all("NUMANode"))
        return 0 if any(sizes) else None
    # Hidden, and no /sys to ask: in a cgroup it is forbidden, else hwloc hides it as memory-less.
    return None if in_cgroup(tree) else 0


def _package_of(index: int, packages: Iterable[HwlocObject]) -> int | None:
    holders = [item.os_index for item in packages if index in {*item.nodes, *item.complete_nodes}]
    return holders[0] if len(holders) == 1 else None


def in_cgroup(tree: HwlocTree) -> bool:
    """Whether hwloc looked from within a cgroup other than the root."""
    return tree.machine.infos.get("LinuxCgroup", "/") != "/"
