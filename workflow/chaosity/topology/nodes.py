"""The model's NUMA nodes: what each can serve as, and what of the machine cannot be used."""

from __future__ import annotations

from chaosity.cpusets import CpuSet, cpu_set
from chaosity.topology.host_model import Node, Restrictions
from chaosity.topology.hwloc_xml import HwlocObject, HwlocTree
from chaosity.topology.known import KnownNode, in_cgroup
from chaosity.topology.tiers import memory_kinds, memory_tiers


def build_nodes(
    known: list[KnownNode],
    tree: HwlocTree,
    present: dict[int, int],
    kernel_tiers: dict[int, int],
) -> tuple[Node, ...]:
    """The model's nodes: flags from what is usable, kinds and tiers from all that hints at them."""
    usable = set(usable_cpus(tree))
    targets = [node for node in known if _is_target(node, tree)]
    kinds = memory_kinds(known)
    tiers = memory_tiers(targets, kinds, tree, kernel_tiers)
    return tuple(
        Node(
            os_index=node.os_index,
            cpus=cpu_set(usable & set(node.own)),
            memory_bytes=node.memory_bytes,
            present_bytes=present.get(node.os_index),
            initiator=bool(usable & set(node.own)),
            target=node in targets,
            tier=tiers.get(node.os_index),
            kind=kinds[node.os_index],
            package=node.package,
            shown_cpus=node.own,
            has_cpus=node.has_cpus,
            memory_side_cache_bytes=_memory_side_cache(node.item),
        )
        for node in known
    )


def usable_cpus(tree: HwlocTree) -> CpuSet:
    """Processing units that are online and allowed."""
    return cpu_set(set(tree.machine.cpus) & set(tree.allowed_cpus))


def _is_target(node: KnownNode, tree: HwlocTree) -> bool:
    """Whether its memory can be used: unknown size counts as memory, a hidden node as none."""
    allowed = node.item is not None and node.os_index in tree.allowed_nodes
    return allowed and node.memory_bytes != 0


def _memory_side_cache(item: HwlocObject | None) -> int | None:
    cache = item.ancestor("MemCache") if item else None
    return cache.number("cache_size") if cache else None


def restrictions(tree: HwlocTree, nodes: tuple[Node, ...], online: CpuSet | None) -> Restrictions:
    """What the machine has and this process may not use.

    hwloc's complete_cpuset remembers both offline and forbidden processing units; `online`, from
    /sys, tells them apart.
    """
    missing = set(tree.machine.complete_cpus) - set(usable_cpus(tree))
    offline: set[int] = set()
    disallowed = set(tree.machine.cpus) - set(tree.allowed_cpus)
    if online is not None:
        offline = missing - set(online)
        disallowed = missing - offline
    elif disallowed:  # exported with --disallowed: what is not even shown is offline
        offline = missing - disallowed
    return Restrictions(
        missing_cpus=cpu_set(missing),
        offline_cpus=cpu_set(offline),
        disallowed_cpus=cpu_set(disallowed),
        disallowed_nodes=tuple(
            node.os_index for node in nodes if not node.target and node.memory_bytes != 0
        ),
        cgroup=tree.machine.infos.get("LinuxCgroup") if in_cgroup(tree) else None,
    )
