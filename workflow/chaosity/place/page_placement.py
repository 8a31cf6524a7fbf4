"""Plan a placement of pages: its policy, the share of each node, and the method of the kernel.

docs/how-to/place-a-program.md explains each policy. The functions of this module read and write
shares as text, shift shares to other nodes, and convert shares to whole numbers or weights. Hosts
get a copy of this module.

A memory policy (`set_mempolicy(2)`) says on which nodes newly touched pages are placed. If a memory
policy cannot express the wanted shares, pages are moved after they were touched (`move_pages(2)`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaosity.cpusets import parse_cpu_list
from chaosity.errors import UserError
from chaosity.place import numa_system_calls
from chaosity.runner.linux_settings import NUMA_BALANCING, WEIGHTS
from chaosity.runner.lock_files import ROOT
from chaosity.runner.observed_state import (
    page_share_deviations,
    read_cpus_by_node,
    read_file_if_present,
)


@dataclass(frozen=True)
class PlacementPolicy:
    """A policy says on which nodes pages may lie, by which shares, and whether pages move later."""

    uses_all_nodes: (
        bool  # says whether pages may lie on every memory node, not only on the workers' nodes
    )
    shares: str | None  # "uniform", the name of measured weights, or None if the kernel decides
    # Says whether pages move while the program runs, to nodes that are not known in advance.
    settles: bool = False
    searched: bool = False  # says whether a search moves the pages


POLICY_UNIFORM = "uniform"
# Names of weights from measurements, and of the policies with these weights. CANONICAL uses the
# bandwidth that the slowest worker gets from each node while no other worker runs; CONTENDED uses
# this bandwidth while all workers run.
CANONICAL, CONTENDED = "canonical", "canonical_contended"
FIRST_TOUCH, _AUTONUMA, UNIFORM_WORKERS = "first_touch", "autonuma", "uniform_workers"
POLICIES = {
    FIRST_TOUCH: PlacementPolicy(uses_all_nodes=False, shares=None),
    UNIFORM_WORKERS: PlacementPolicy(uses_all_nodes=False, shares=POLICY_UNIFORM),
    "uniform_all": PlacementPolicy(uses_all_nodes=True, shares=POLICY_UNIFORM),
    # The policy autonuma begins with first touch; then the kernel moves each page to the node whose
    # threads use the page.
    _AUTONUMA: PlacementPolicy(uses_all_nodes=False, shares=None, settles=True),
    CANONICAL: PlacementPolicy(uses_all_nodes=True, shares=CANONICAL),
    CONTENDED: PlacementPolicy(uses_all_nodes=True, shares=CONTENDED),
    # The two policies of BWAP begin with the canonical or uniform weights, and search for the best
    # placement while the program runs, before it is measured.
    "bwap": PlacementPolicy(uses_all_nodes=True, shares=CANONICAL, settles=True, searched=True),
    "bwap_uniform": PlacementPolicy(
        uses_all_nodes=True, shares=POLICY_UNIFORM, settles=True, searched=True
    ),
}


# Smallest and largest weight of the kernel for interleaving: a byte, but not 0.
SMALLEST, LARGEST = 1, 255
# Largest error of a share that is accepted for small weights. The weight of a node is the number of
# consecutive pages that the node gets in its turn. With a weight of 255, a megabyte lies on one
# node, and less memory is not spread at all, so small weights are better. The measurements from
# which the weights are computed scatter by 2 %, too.
_MOST_ERROR_OF_SMALL_WEIGHTS = 0.02
# Shares are written with a few digits, so their sum may deviate from 1 by 0.01. The tolerance is
# slightly above 0.01 because of binary rounding: three times 0.33 is slightly below 0.99.
_TOLERANCE_OF_SHARE_SUM = 0.01 + 1e-9


def uniform_shares(nodes: Iterable[int]) -> dict[int, float]:
    """Return the same share for each node, as interleaving without weights gives it."""
    listed = sorted(set(nodes))
    return dict.fromkeys(listed, 1.0 / len(listed))


def parse_shares(text: str) -> dict[int, float]:
    """Return shares such as ``0:0.25,1:0.75``, scaled so that they add up to 1 exactly.

    Raises:
        UserError: the form is wrong, a node occurs twice, or the shares do not add up to 1.
    """
    where = "--shares"
    shares: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+):(\d+\.?\d*(?:e-?\d+)?|\.\d+(?:e-?\d+)?)\s*", part)
        if match is None:
            remedy = "write shares as 0:0.25,1:0.75"
            raise UserError(f"{part.strip()!r} is not a share", where, remedy)
        node, share = int(match[1]), float(match[2])
        if node in shares:
            raise UserError(f"node {node} occurs twice", where)
        shares[node] = share
    total = sum(shares.values())
    if abs(total - 1.0) > _TOLERANCE_OF_SHARE_SUM:
        raise UserError(f"the shares add up to {total:g}", where, "the shares must add up to 1")
    return {node: share / total for node, share in sorted(shares.items())}


def format_shares(shares: Mapping[int, float]) -> str:
    """Return shares in the form that `parse_shares` reads."""
    return ",".join(f"{node}:{share:.6f}" for node, share in sorted(shares.items()))


def apportion_whole_numbers(count: int, amounts: Mapping[int, float]) -> dict[int, int]:
    """Return whole numbers that add up to `count`, close to the proportions of the amounts.

    The function uses the method of largest remainders. No amount may be below 0;
    `attainable_amounts` returns amounts that are not below 0.
    """
    total = sum(amounts.values()) or 1.0
    exact = {node: count * value / total for node, value in amounts.items()}
    whole = {node: int(value) for node, value in exact.items()}
    by_remainder = sorted(exact, key=lambda node: whole[node] - exact[node])
    for node in by_remainder[: count - sum(whole.values())]:
        whole[node] += 1
    return whole


def attainable_amounts(count: int, wanted: Mapping[int, float]) -> dict[int, float]:
    """Return node -> amount that the node gets, when no node can give back what it already has.

    The same number is subtracted from each node's wanted amount, but no result is below 0.
    Subtracting the same number keeps the largest missing amount as small as possible (projection
    onto a simplex; Duchi et al. 2008).

    `count` is the sum of all wanted amounts; an amount is below 0 if the node already has too much.
    """
    total = reduction = 0.0
    for number, value in enumerate(sorted(wanted.values(), reverse=True), 1):
        total += value
        if (total - count) / number >= value:
            break
        reduction = (total - count) / number
    return {node: max(0.0, value - reduction) for node, value in wanted.items()}


def shift_shares_to_workers(
    weights: Mapping[int, float], workers: Collection[int], dwp: float
) -> dict[int, float]:
    """Shift shares from the other nodes to the workers, for programs that depend on latency.

    Data-to-worker proximity (DWP) is BWAP's only parameter. BWAP's tuner goes in steps from the
    canonical weights to all pages on the workers. Each step keeps the ratios of the shares among
    the workers, and the ratios of the shares among the other nodes (github.com/gureya/bwap,
    `place_pages_weighted_s`). In this function, `dwp` is the part of the other nodes' shares that
    is shifted.

    `weights` are shares that add up to 1. With `dwp` 1, no pages are left on the other nodes.

    Raises:
        UserError: `dwp` is outside 0 to 1, or no worker has memory and `dwp` is above 0.
    """
    if not 0.0 <= dwp <= 1.0:  # the condition is also true for NaN
        remedy = "use a number from 0 (canonical weights) to 1 (all pages on the workers)"
        raise UserError(f"{dwp:g} is not a data-to-worker proximity", remedy=remedy)
    if dwp == 0.0:
        return dict(weights)
    near = sum(share for node, share in weights.items() if node in workers)
    if near == 0.0:
        what = "pages cannot be moved to workers that have no memory"
        raise UserError(what, remedy="leave dwp at 0")
    shifted = near + dwp * (1.0 - near)
    return {
        node: share * shifted / near if node in workers else share * (1.0 - dwp)
        for node, share in weights.items()
    }


def integer_weights(shares: Mapping[int, float]) -> tuple[dict[int, int], float]:
    """Return the smallest weights (1 to 255) whose shares are within 2 % of the best possible ones.

    Only ratios of the shares count; a node with a share of 0 gets no weight. The second result is
    the largest error of a node's share, relative to that share.

    Raises:
        UserError: a share is below 0, or all shares are 0.
    """
    used = {node: share for node, share in sorted(shares.items()) if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        raise UserError("no share may be below 0, and at least one must be above 0", "the weights")
    highest = max(used.values())
    candidates = [
        {node: max(SMALLEST, round(share / highest * largest)) for node, share in used.items()}
        for largest in range(SMALLEST, LARGEST + 1)
    ]
    errors = [_largest_error(used, weights) for weights in candidates]
    accepted = min(errors) + _MOST_ERROR_OF_SMALL_WEIGHTS
    return next(
        (w, error) for w, error in zip(candidates, errors, strict=True) if error <= accepted
    )


def _largest_error(wanted: Mapping[int, float], weights: Mapping[int, int]) -> float:
    """Return the largest relative error of the share of a node that weights give."""
    all_wanted, all_weights = sum(wanted.values()), sum(weights.values())
    return max(
        abs(weights[node] / all_weights * all_wanted / share - 1.0)
        for node, share in wanted.items()
    )


def largest_share_deviation(wanted: Mapping[int, float], seen: Mapping[int, float]) -> float:
    """Return the largest deviation of a node's share of all pages from the wanted share."""
    return max(page_share_deviations(wanted, seen).values(), default=0.0)


# Methods that put a share of the pages on each node. KERNEL_DECIDES is the method if no shares are
# wanted.
KERNEL_DECIDES, INTERLEAVE = "kernel", "interleave"
WEIGHTED_INTERLEAVE, MOVE_PAGES, AUTO = "weighted_interleave", "move_pages", "auto"
METHODS = (AUTO, WEIGHTED_INTERLEAVE, MOVE_PAGES)
# Shares that differ by less than this number count as equal, so that interleaving without weights
# enforces them.
_LARGEST_DIFFERENCE_OF_EQUAL_SHARES = 1e-3


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
    # Says whether to search for the best data-to-worker proximity while the program runs.
    search: bool = False
    # Says whether to print a line when the search has ended, or when the kernel moves no more
    # pages. The runner waits for this line after the program's ready line, and uses only samples
    # after this line.
    settle: bool = False
    rate: str = (
        "samples"  # how the program's rate is read, see `placement_search.rate_source_from_option`
    )
    report: Path | None = None  # path of the file for the result
    root: Path = ROOT  # folder that contains `proc` and `sys`


@dataclass(frozen=True)
class PlacementPlan:
    """The shares, memory policy and settings with which this host meets a request."""

    wanted: dict[int, float] | None  # node -> share of the pages; None if the kernel decides
    method: str  # `KERNEL_DECIDES`, `INTERLEAVE`, `WEIGHTED_INTERLEAVE` or `MOVE_PAGES`
    mode: int  # the kernel's memory policy for the program
    nodes: tuple[int, ...]  # the nodes of the memory policy
    cpus: frozenset[int]
    settings: dict[str, str]  # kernel settings to change, see `runner.linux_settings`
    search: bool
    settle: bool
    moves: bool  # says whether pages on a wrong node are moved


def plan_placement(request: PlacementRequest) -> PlacementPlan:
    """Return the plan for a request.

    Raises:
        UserError: this host cannot meet the request.
    """
    # On a kernel without NUMA, all memory and all units count as node 0.
    listed = read_file_if_present(request.root / "sys/devices/system/node/has_memory") or "0"
    memory = set(parse_cpu_list(listed))
    cpus = _find_worker_cpus(request)
    wanted = _find_wanted_shares(request, memory)
    search = request.search or POLICIES[request.policy].searched
    mode, method = numa_system_calls.DEFAULT, KERNEL_DECIDES
    nodes: tuple[int, ...] = ()
    if wanted is None and search:
        name = request.policy
        what = f"policy {name} lets the kernel choose the nodes, so there is nothing to search"
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
        settle=request.settle and (search or request.policy == _AUTONUMA),
        moves=wanted is not None and (search or request.method != WEIGHTED_INTERLEAVE),
    )


def _find_worker_cpus(request: PlacementRequest) -> frozenset[int]:
    """Return the units on which the program runs; raise an error for a unit that is not allowed."""
    allowed = os.sched_getaffinity(0)
    by_node = read_cpus_by_node(request.root / "sys/devices/system/node") or {0: allowed}
    for worker in request.workers:
        if worker not in by_node:
            present = f"nodes: {', '.join(map(str, sorted(by_node)))}"
            raise UserError(f"node {worker} does not exist", "--workers", present)
        if not by_node[worker] & allowed:
            forbidden = "this process may use none of its processing units"
            reason = forbidden if by_node[worker] else "the node has no processing unit"
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
            what = f"policy {name} lets the kernel choose the nodes, so shares have no effect"
            raise UserError(what, where, "remove --shares")
        return None
    uniform = policy.shares == POLICY_UNIFORM
    if request.shares is not None:
        wanted = dict(request.shares)
        if (
            uniform
            and largest_share_deviation(uniform_shares(wanted), wanted) > _TOLERANCE_OF_SHARE_SUM
        ):
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
    if request.method == AUTO and max(used) - min(used) < _LARGEST_DIFFERENCE_OF_EQUAL_SHARES:
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
    # Moving pages changes no kernel setting, so the method MOVE_PAGES works without root.
    return WEIGHTED_INTERLEAVE if are_set or writable else MOVE_PAGES


def _weighted_interleave_obstacle(root: Path, nodes: tuple[int, ...]) -> str | None:
    """Return the reason why the kernel cannot interleave by weights; None if it can."""
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
    if request.policy == _AUTONUMA and not has_autonuma:
        raise UserError(
            f"this kernel has no /{NUMA_BALANCING}, so it does not move pages",
            "policy autonuma",
            "use a kernel with CONFIG_NUMA_BALANCING",
        )
    if has_autonuma:
        settings[NUMA_BALANCING] = "1" if request.policy == _AUTONUMA else "0"
    return settings
