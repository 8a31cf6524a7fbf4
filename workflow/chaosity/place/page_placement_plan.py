"""Plan a placement of pages: the share of each node, and the kernel's method to enforce it.

A memory policy (`set_mempolicy(2)`) says on which nodes newly touched pages are placed. If a policy
cannot express the shares, pages are moved after they were touched (`move_pages(2)`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.place import numa_system_calls
from chaosity.place.page_shares import (
    AUTONUMA,
    POLICIES,
    SUM_TOLERANCE,
    UNIFORM,
    integer_weights,
    largest_share_deviation,
    uniform_shares,
)
from chaosity.runner.host_state import read_file_if_present
from chaosity.runner.kernel_settings import NUMA_BALANCING, WEIGHTS
from chaosity.runner.lock_files import ROOT
from chaosity.runner.observed_placement import read_cpus_by_node

# Methods that put a share of the pages on each node. If no shares are wanted, the method is
# KERNEL_DECIDES.
KERNEL_DECIDES, INTERLEAVE = "kernel", "interleave"
WEIGHTED_INTERLEAVE, MOVE_PAGES, AUTO = "weighted_interleave", "move_pages", "auto"
METHODS = (AUTO, WEIGHTED_INTERLEAVE, MOVE_PAGES)
# If the largest share exceeds the smallest by less than this, plain interleaving enforces them.
_EQUAL = 1e-3


@dataclass(frozen=True)
class PlacementRequest:
    """A request to run a program with its pages placed."""

    policy: str  # one of `POLICIES`
    workers: tuple[int, ...]  # nodes whose cores run the program
    command: tuple[str, ...]  # the program and its arguments
    # Node -> share of the pages; None if the shares follow from the policy.
    shares: Mapping[int, float] | None = None
    cpus: frozenset[int] | None = None  # processing units; None for all units of the workers
    method: str = AUTO  # one of `METHODS`
    # Whether to search for the best data-to-worker proximity while the program runs.
    search: bool = False
    # Whether to print a line when the search, or the kernel's moves, have ended. The runner waits
    # for this line after the program's ready line, and uses only samples after it.
    settle: bool = False
    rate: str = (
        "samples"  # how the program's rate is read, see `placement_search.rate_source_from_option`
    )
    report: Path | None = None  # path of the file for the result
    root: Path = ROOT  # folder that holds `proc` and `sys`


@dataclass(frozen=True)
class PlacementPlan:
    """The shares, memory policy and settings with which this host meets a request."""

    wanted: dict[int, float] | None  # node -> share of the pages; None if the kernel decides
    method: str  # `KERNEL_DECIDES`, `INTERLEAVE`, `WEIGHTED_INTERLEAVE` or `MOVE_PAGES`
    mode: int  # the kernel's memory policy for the program
    nodes: tuple[int, ...]  # the nodes of the memory policy
    cpus: frozenset[int]
    settings: dict[str, str]  # kernel settings to change, see `runner.kernel_settings`
    search: bool
    settle: bool
    moves: bool  # whether pages on a wrong node are moved


def plan_placement(request: PlacementRequest) -> PlacementPlan:
    """Return the plan for a request.

    Raises:
        UserError: this host cannot meet the request.
    """
    # On a kernel without NUMA, all memory is on node 0.
    listed = read_file_if_present(request.root / "sys/devices/system/node/has_memory") or "0"
    memory = set(parse_cpu_list(listed))
    cpus = _find_worker_cpus(request)
    wanted = _find_wanted_shares(request, memory)
    search = request.search or POLICIES[request.policy].searched
    mode, method = numa_system_calls.DEFAULT, KERNEL_DECIDES
    nodes: tuple[int, ...] = ()
    if wanted is None and search:
        what = f"policy {request.policy} leaves pages to the kernel, so there is nothing to search"
        raise UserError(what, "--search", "choose a policy with shares, such as uniform_all")
    if wanted is not None:
        nodes = tuple(sorted(node for node, share in wanted.items() if share > 0.0))
        method = _choose_method(request, wanted, nodes)
        weighted = method == WEIGHTED_INTERLEAVE
        mode = numa_system_calls.WEIGHTED_INTERLEAVE if weighted else numa_system_calls.INTERLEAVE
        if search and not {*request.workers} & {*wanted}:
            remedy = "name a worker with memory"
            raise UserError("no worker has memory to move pages to", "--search", remedy)
    return PlacementPlan(
        wanted,
        method,
        mode,
        nodes,
        cpus,
        _needed_settings(request, wanted, method),
        search,
        settle=request.settle and (search or request.policy == AUTONUMA),
        moves=wanted is not None and (search or request.method != WEIGHTED_INTERLEAVE),
    )


def _find_worker_cpus(request: PlacementRequest) -> frozenset[int]:
    """Return the units on which the program runs; a unit that must not be used is an error."""
    allowed = os.sched_getaffinity(0)
    by_node = read_cpus_by_node(request.root / "sys/devices/system/node") or {0: allowed}
    for worker in request.workers:
        if worker not in by_node:
            present = f"nodes: {', '.join(map(str, sorted(by_node)))}"
            raise UserError(f"node {worker} does not exist", "--workers", present)
        if not by_node[worker] & allowed:
            forbidden = "none of its processing units may be used by this process"
            reason = forbidden if by_node[worker] else "it has no processing unit"
            what = f"node {worker} cannot be a worker: {reason}"
            raise UserError(what, "--workers", "name nodes with cores")
    if request.cpus is None:
        return frozenset().union(*(by_node[worker] for worker in request.workers)) & allowed
    if missing := sorted(request.cpus - allowed):
        what = f"processing unit {missing[0]} does not exist, or this process may not use it"
        raise UserError(what, "--cpus")
    return request.cpus


def _find_wanted_shares(request: PlacementRequest, memory: set[int]) -> dict[int, float] | None:
    """Return node -> share of the pages; None if the policy lets the kernel decide."""
    name, policy, where = request.policy, POLICIES[request.policy], "--shares"
    if policy.shares is None:
        if request.shares is not None:
            raise UserError(f"policy {name} leaves pages to the kernel", where, "remove --shares")
        return None
    uniform = policy.shares == UNIFORM
    if request.shares is not None:
        wanted = dict(request.shares)
        if uniform and largest_share_deviation(uniform_shares(wanted), wanted) > SUM_TOLERANCE:
            remedy = "leave out the shares, or choose policy canonical or bwap"
            raise UserError(f"the policy {name} means equal shares", where, remedy)
    elif uniform:
        wanted = uniform_shares(memory if policy.uses_all_nodes else request.workers)
    else:
        remedy = "give the shares, or use `chaosity place --matrix`, which computes them"
        raise UserError(f"the policy {name} needs the share of each node", where, remedy)
    for node, share in wanted.items():
        if share > 0.0 and node not in memory:
            what = f"node {node} has no memory for {100 * share:.1f} % of the pages"
            remedy = f"nodes with memory: {', '.join(map(str, sorted(memory)))}"
            raise UserError(what, f"policy {name}", remedy)
    return wanted


def _choose_method(
    request: PlacementRequest, wanted: Mapping[int, float], nodes: tuple[int, ...]
) -> str:
    """Return the method that enforces the shares: a method of the kernel, if possible."""
    if not numa_system_calls.supports_policy(numa_system_calls.INTERLEAVE, nodes):
        what = "this kernel has no memory policies (CONFIG_NUMA)"
        raise UserError(what, f"policy {request.policy}")
    used = [wanted[node] for node in nodes]
    if request.method == AUTO and max(used) - min(used) < _EQUAL:
        return INTERLEAVE
    obstacle = _weighted_interleave_obstacle(request.root, nodes)
    if request.method == WEIGHTED_INTERLEAVE and obstacle:
        where = f"--method {WEIGHTED_INTERLEAVE}"
        raise UserError(obstacle, where, f"use --method {MOVE_PAGES}")
    if request.method != AUTO or obstacle:
        return MOVE_PAGES if obstacle else request.method
    settings = kernel_weight_settings(wanted)
    are_set = all(
        read_file_if_present(request.root / name) == value for name, value in settings.items()
    )
    writable = all(os.access(request.root / name, os.W_OK) for name in settings)
    # Moving pages changes no kernel setting, so it works without root.
    return WEIGHTED_INTERLEAVE if are_set or writable else MOVE_PAGES


def _weighted_interleave_obstacle(root: Path, nodes: tuple[int, ...]) -> str | None:
    """Return why the kernel cannot interleave by weights; None if it can."""
    files = (f"{WEIGHTS}/node{node}" for node in nodes)
    missing = next((name for name in files if read_file_if_present(root / name) is None), None)
    if missing:
        return f"this kernel has no /{missing}, which came with Linux 6.9"
    if not numa_system_calls.supports_policy(numa_system_calls.WEIGHTED_INTERLEAVE, nodes):
        return "this kernel has no MPOL_WEIGHTED_INTERLEAVE, which came with Linux 6.9"
    return None


def kernel_weight_settings(wanted: Mapping[int, float]) -> dict[str, str]:
    """Return the kernel settings, path -> text, with the weights that enforce these shares."""
    numbers, _ = integer_weights(wanted)
    return {f"{WEIGHTS}/node{node}": str(number) for node, number in numbers.items()}


def _needed_settings(
    request: PlacementRequest, wanted: Mapping[int, float] | None, method: str
) -> dict[str, str]:
    """Return the kernel settings, path -> text, that a plan needs and that this kernel has."""
    settings = kernel_weight_settings(wanted) if wanted and method == WEIGHTED_INTERLEAVE else {}
    has_autonuma = read_file_if_present(request.root / NUMA_BALANCING) is not None
    if request.policy == AUTONUMA and not has_autonuma:
        raise UserError(
            f"this kernel has no /{NUMA_BALANCING}, so it does not move pages",
            "policy autonuma",
            "use a kernel with CONFIG_NUMA_BALANCING",
        )
    if has_autonuma:
        settings[NUMA_BALANCING] = "1" if request.policy == AUTONUMA else "0"
    return settings
