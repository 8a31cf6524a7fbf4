"""Where a program's pages are put: policies of placement, as document 002 compares them.

A policy says over which memory nodes pages lie and in which shares, or that the kernel decides.
What is weighted needs measurements, which this room does not know: it is told them from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from chaosity.design.endpoints import Initiator, Target
from chaosity.design.host_resources import HostResources
from chaosity.place.page_shares import apportion_whole
from chaosity.place.policies import POLICIES, UNIFORM

# The shares that were measured for a set of workers, by the name of the weights (CANONICAL or
# CONTENDED); None where they are not known.
WeightsLookup = Callable[[str, tuple[int, ...]], Mapping[int, float] | None]
# Shares are told in parts of this number, so that texts are short and add up to exactly 1. A part
# is a two-hundredth of what the check of placement allows.
PARTS = 10_000


def worker_memory(host: HostResources, workers: Initiator) -> tuple[int, ...]:
    """The memory nodes of each worker: its own, or the nearest of a worker that has none."""
    nodes = {one.nodes[0]: one for one in host.initiators("node", True) if one.nodes}
    found = {near for node in workers.nodes for near in host.local_memory(nodes[node])}
    return tuple(sorted(found))


def policy_target(
    name: str, workers: Initiator, host: HostResources, weights: WeightsLookup | None
) -> Target | None:
    """A policy as a load's target; None where its weights are not known for these workers.

    Args:
        name: one of POLICIES.
        workers: the nodes whose units run the program.
        host: its memory nodes.
        weights: what was measured; None for nothing.
    """
    policy = POLICIES[name]
    nodes = tuple(node.os_index for node in host.topology.targets)
    if not policy.over_all:
        nodes = worker_memory(host, workers)
    shares: Mapping[int, float] | None = None
    if policy.shares == UNIFORM:
        shares = dict.fromkeys(nodes, 1.0)
    elif policy.shares is not None:
        shares = weights(policy.shares, workers.nodes) if weights else None
        if shares is None or set(shares) != set(nodes):
            return None
    return Target(name, "policy", nodes, shares=in_parts(shares), settles=policy.settles)


def lacking_weights(
    names: Iterable[str], sources: Mapping[str, str], measured: Container[str]
) -> Iterator[str]:
    """Why policies are left out, and what to run for them, a sentence for each experiment.

    Args:
        names: of the policies that are left out.
        sources: name of weights -> the experiment that measures them.
        measured: experiments of this run.
    """
    lacking: dict[str, list[str]] = {}
    for name in names:
        lacking.setdefault(sources.get(POLICIES[name].shares or "", ""), []).append(name)
    for source, policies in lacking.items():
        left_out = f"{' and '.join(policies)} left out for workers whose weights are not known yet"
        if source in measured:
            yield f"{left_out}; {source} of this run measures them, the next run adds these points"
        else:
            yield f"{left_out}; run {source or 'what measures them'} first, then this again"


def in_parts(shares: Mapping[int, float] | None) -> tuple[tuple[int, float], ...] | None:
    """Node and share, in whole parts that add up to 1 (largest remainders); ascending by node.

    Args:
        shares: by node; only their ratios count.
    """
    if shares is None:
        return None
    whole = apportion_whole(PARTS, dict(sorted(shares.items())))
    return tuple((node, part / PARTS) for node, part in whole.items() if part)
