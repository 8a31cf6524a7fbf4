"""Policies: where pages are to be, and by which means of the kernel.

A policy of the kernel (`set_mempolicy(2)`) says where pages go that are touched from then on. Where
it cannot say the shares, pages are moved after they were touched (`move_pages(2)`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaosity.errors import UserError
from chaosity.place import kernel_calls
from chaosity.place.page_shares import (
    SUM_TOLERANCE,
    integer_weights,
    largest_share_deviation,
    uniform_shares,
)
from chaosity.place.policies import AUTONUMA, POLICIES, UNIFORM
from chaosity.runner import kernel_settings, observed_placement

# How shares are enforced.
KERNEL_DECIDES, INTERLEAVE = "kernel", "interleave"
WEIGHTED_INTERLEAVE, MOVE_PAGES, AUTO = "weighted_interleave", "move_pages", "auto"
METHODS = (AUTO, WEIGHTED_INTERLEAVE, MOVE_PAGES)
# Shares that differ by less than this are the same to the kernel's interleaving, page by page.
_SAME = 1e-3


@dataclass(frozen=True)
class PlacementRequest:
    """What somebody asks for.

    Attributes:
        policy: one of `POLICIES`.
        workers: nodes whose cores run the program.
        command: the program and its arguments.
        shares: of the pages by node; None where they follow from the policy.
        cpus: processing units; None: all of the workers.
        method: one of `METHODS`.
        search: whether to look for the best data-to-worker proximity while it runs.
        settle: whether to do that, or wait for the kernel's moves, before others hear that the
            program is ready, which waits at a barrier.
        rate: where its rate is read, see `rates.source`.
        report: file for what was done and seen.
        root: folder that holds `proc` and `sys`.
    """

    policy: str
    workers: tuple[int, ...]
    command: tuple[str, ...]
    shares: Mapping[int, float] | None = None
    cpus: frozenset[int] | None = None
    method: str = AUTO
    search: bool = False
    settle: bool = False
    rate: str = "samples"
    report: Path | None = None
    root: Path = kernel_settings.ROOT


@dataclass(frozen=True)
class PlacementPlan:
    """How a request is met on this host.

    Attributes:
        wanted: share by node; None where the kernel decides.
        method: `KERNEL`, `PLAIN`, `WEIGHTED` or `MOVE`.
        mode: the kernel's policy for the program.
        nodes: of that policy.
        cpus: on which the program runs.
        settings: of the kernel, see `runner.settings`.
        search: whether to look for the best data-to-worker proximity while it runs.
        settle: whether the program's placement settles before others hear that it is ready.
        moves: whether pages that lie elsewhere are moved.
    """

    wanted: dict[int, float] | None
    method: str
    mode: int
    nodes: tuple[int, ...]
    cpus: frozenset[int]
    settings: dict[str, str]
    search: bool
    settle: bool
    moves: bool


def plan_placement(request: PlacementRequest) -> PlacementPlan:
    """How to meet a request; all that can be refused is refused here, before anything runs.

    Raises:
        UserError: this host lacks what is asked for.
    """
    memory = read_memory_nodes(request.root)
    cpus = find_worker_cpus(request)
    wanted = find_wanted_shares(request, memory)
    search = request.search or POLICIES[request.policy].searched
    if wanted is None:
        if search:
            raise UserError(
                f"{request.policy} leaves pages to the kernel, so there is nothing to search",
                "--search",
                "take a policy with shares, such as uniform_all",
            )
        mode, nodes, method = kernel_calls.DEFAULT, (), KERNEL_DECIDES
    else:
        nodes = tuple(sorted(node for node, share in wanted.items() if share > 0.0))
        method = choose_method(request, wanted, nodes)
        mode = (
            kernel_calls.WEIGHTED_INTERLEAVE
            if method == WEIGHTED_INTERLEAVE
            else kernel_calls.INTERLEAVE
        )
        if search and not {*request.workers} & {*wanted}:
            raise UserError(
                "no worker has memory to move pages to", "--search", "name one that has"
            )
    return PlacementPlan(
        wanted, method, mode, nodes, cpus, needed_settings(request, wanted, method), search,
        settle=request.settle and (search or request.policy == AUTONUMA),
        moves=wanted is not None and (search or request.method != WEIGHTED_INTERLEAVE),
    )  # fmt: skip


def read_memory_nodes(root: Path) -> set[int]:
    """Nodes with memory; node 0 alone where the kernel knows of no nodes."""
    text = kernel_settings.read_setting(root, "sys/devices/system/node/has_memory")
    return observed_placement.parse_cpus(text) if text else {0}


def find_worker_cpus(request: PlacementRequest) -> frozenset[int]:
    """The processing units that the program is put on.

    Raises:
        UserError: a worker is no node, or none of its units may be used.
    """
    allowed = os.sched_getaffinity(0)
    by_node = observed_placement.read_cpus_by_node(request.root / "sys/devices/system/node") or {
        0: allowed
    }
    for worker in request.workers:
        known = ", ".join(map(str, sorted(by_node)))
        if worker not in by_node:
            raise UserError(f"node {worker} does not exist", "--workers", f"these do: {known}")
        if not by_node[worker] & allowed:
            has = "none of its processing units may be used here" if by_node[worker] else (
                "it has no processing unit")  # fmt: skip
            raise UserError(
                f"node {worker} cannot work, since {has}", "--workers", "name nodes with cores"
            )
    if request.cpus is None:
        return frozenset(set().union(*(by_node[worker] for worker in request.workers)) & allowed)
    if missing := sorted(request.cpus - allowed):
        raise UserError(
            f"processing unit {missing[0]} does not exist or may not be used here", "--cpus"
        )
    return request.cpus


def find_wanted_shares(request: PlacementRequest, memory: set[int]) -> dict[int, float] | None:
    """The share of each node, None where the policy leaves pages to the kernel.

    Raises:
        UserError: a node with a share has no memory, or shares are missing or out of place.
    """
    policy = POLICIES[request.policy]
    if policy.shares is None:
        if request.shares is not None:
            raise UserError(f"{request.policy} leaves pages to the kernel", "--shares",
                            "leave them out")  # fmt: skip
        return None
    if request.shares is not None:
        wanted = dict(request.shares)
        if (
            policy.shares == UNIFORM
            and largest_share_deviation(uniform_shares(wanted), wanted) > SUM_TOLERANCE
        ):
            raise UserError(f"{request.policy} means equal shares", "--shares",
                            "leave them out, or take policy canonical or bwap")  # fmt: skip
    elif policy.shares == UNIFORM:
        wanted = uniform_shares(memory if policy.over_all else request.workers)
    else:
        raise UserError(
            f"{request.policy} needs the share of each node", "--shares",
            "give them, or take `chaosity place --matrix`, which computes them",
        )  # fmt: skip
    for node, share in wanted.items():
        if share > 0.0 and node not in memory:
            known = ", ".join(map(str, sorted(memory)))
            raise UserError(f"node {node} has no memory for {100 * share:.1f} % of the pages",
                            f"policy {request.policy}", f"these have: {known}")  # fmt: skip
    return wanted


def choose_method(
    request: PlacementRequest, wanted: Mapping[int, float], nodes: tuple[int, ...]
) -> str:
    """By which means the shares are enforced: the kernel's own where it has them.

    Raises:
        UserError: the kernel lacks the one that is asked for.
    """
    if not kernel_calls.supports_policy(kernel_calls.INTERLEAVE, nodes):
        raise UserError(
            "this kernel takes no memory policies (CONFIG_NUMA)", f"policy {request.policy}"
        )
    if request.method == MOVE_PAGES:
        return MOVE_PAGES
    used = [wanted[node] for node in nodes]
    if request.method == AUTO and max(used) - min(used) < _SAME:
        return INTERLEAVE
    lacks = weighted_interleave_obstacle(request.root, nodes)
    if request.method == WEIGHTED_INTERLEAVE:
        if lacks:
            raise UserError(lacks, "--method weighted_interleave", "take --method move_pages")
        return WEIGHTED_INTERLEAVE
    different = not lacks and any(
        kernel_settings.read_setting(request.root, name) != value
        for name, value in weight_settings(wanted).items()
    )
    writable = all(os.access(request.root / name, os.W_OK) for name in weight_settings(wanted))
    # Without root, moving pages needs no setting.
    return MOVE_PAGES if lacks or (different and not writable) else WEIGHTED_INTERLEAVE


def weighted_interleave_obstacle(root: Path, nodes: tuple[int, ...]) -> str | None:
    """What keeps the kernel from interleaving by weight; None: nothing."""
    files = (f"{kernel_settings.WEIGHTS}/node{node}" for node in nodes)
    lacking = next(
        (name for name in files if kernel_settings.read_setting(root, name) is None), None
    )
    if lacking:
        return f"this kernel has no /{lacking}, which came with Linux 6.9"
    if not kernel_calls.supports_policy(kernel_calls.WEIGHTED_INTERLEAVE, nodes):
        return "this kernel takes no MPOL_WEIGHTED_INTERLEAVE, which came with Linux 6.9"
    return None


def weight_settings(wanted: Mapping[int, float]) -> dict[str, str]:
    """The kernel's weights for shares, as settings."""
    numbers, _ = integer_weights(wanted)
    return {
        f"{kernel_settings.WEIGHTS}/node{node}": str(number) for node, number in numbers.items()
    }


def needed_settings(
    request: PlacementRequest, wanted: Mapping[int, float] | None, method: str
) -> dict[str, str]:
    """The settings that a plan relies on.

    Raises:
        UserError: AutoNUMA is asked for and this kernel has none.
    """
    found = weight_settings(wanted) if wanted is not None and method == WEIGHTED_INTERLEAVE else {}
    there = kernel_settings.read_setting(request.root, kernel_settings.NUMA_BALANCING) is not None
    if request.policy == AUTONUMA and not there:
        raise UserError(
            f"this kernel has no /{kernel_settings.NUMA_BALANCING}, so it moves no pages by itself",
            "policy autonuma",
            "take a kernel with CONFIG_NUMA_BALANCING",
        )
    if there:
        found[kernel_settings.NUMA_BALANCING] = "1" if request.policy == AUTONUMA else "0"
    return found
