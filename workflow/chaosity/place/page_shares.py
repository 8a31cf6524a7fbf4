"""The policies that place pages, and the share of the pages that each puts on each node.

docs/how-to/place-a-program.md explains each policy. The functions read and write shares as text,
shift them to other nodes, and convert them to whole numbers or weights. Hosts get a copy of this
module.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.runner.observed_placement import page_share_deviations


@dataclass(frozen=True)
class PlacementPolicy:
    """A policy: on which nodes the pages may lie, by which shares, and whether they move later."""

    uses_all_nodes: (
        bool  # whether pages may lie on every memory node, not only on the workers' nodes
    )
    shares: str | None  # "uniform", the name of measured weights, or None if the kernel decides
    # Whether pages move while the program runs, to nodes that are not known in advance.
    settles: bool = False
    searched: bool = False  # whether a search moves the pages


UNIFORM = "uniform"
# Measured weights; each is the name of a policy too. CANONICAL uses the bandwidth that the slowest
# worker gets from each node alone; CONTENDED uses the bandwidth while all workers run.
CANONICAL, CONTENDED = "canonical", "canonical_contended"
FIRST_TOUCH, AUTONUMA, UNIFORM_WORKERS = "first_touch", "autonuma", "uniform_workers"
POLICIES = {
    FIRST_TOUCH: PlacementPolicy(uses_all_nodes=False, shares=None),
    UNIFORM_WORKERS: PlacementPolicy(uses_all_nodes=False, shares=UNIFORM),
    "uniform_all": PlacementPolicy(uses_all_nodes=True, shares=UNIFORM),
    # First touch; then the kernel moves pages to the nodes whose threads use them.
    AUTONUMA: PlacementPolicy(uses_all_nodes=False, shares=None, settles=True),
    CANONICAL: PlacementPolicy(uses_all_nodes=True, shares=CANONICAL),
    CONTENDED: PlacementPolicy(uses_all_nodes=True, shares=CONTENDED),
    # BWAP: begins with the canonical (or uniform) weights and searches for the best placement while
    # the program runs, before it is measured.
    "bwap": PlacementPolicy(uses_all_nodes=True, shares=CANONICAL, settles=True, searched=True),
    "bwap_uniform": PlacementPolicy(
        uses_all_nodes=True, shares=UNIFORM, settles=True, searched=True
    ),
}


# Range of the kernel's weights for interleaving: a byte, without 0.
SMALLEST, LARGEST = 1, 255
# A node gets as many consecutive pages as its weight says. With a weight of 255, a megabyte lies on
# one node, and less memory is not spread at all. So small weights are preferred. Small weights may
# change a share by 2 %; the measurements behind the weights scatter as much.
_ACCEPTED_ERROR = 0.02
# Shares are written with a few digits, so their sum may deviate from 1 by 0.01. The limit is a bit
# larger because of binary rounding: three times 0.33 is slightly below 0.99.
SUM_TOLERANCE = 0.01 + 1e-9


def uniform_shares(nodes: Iterable[int]) -> dict[int, float]:
    """Return the same share for each node, as interleaving without weights does."""
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
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise UserError(f"the shares add up to {total:g}", where, "the shares must add up to 1")
    return {node: share / total for node, share in sorted(shares.items())}


def format_shares(shares: Mapping[int, float]) -> str:
    """Return shares in the form that `parse_shares` reads."""
    return ",".join(f"{node}:{share:.6f}" for node, share in sorted(shares.items()))


def apportion_whole_numbers(count: int, amounts: Mapping[int, float]) -> dict[int, int]:
    """Return whole numbers that add up to `count`, close to the proportions of the amounts.

    The method is that of largest remainders. No amount may be below 0 (see `attainable_amounts`).
    """
    total = sum(amounts.values()) or 1.0
    exact = {node: count * value / total for node, value in amounts.items()}
    whole = {node: int(value) for node, value in exact.items()}
    by_remainder = sorted(exact, key=lambda node: whole[node] - exact[node])
    for node in by_remainder[: count - sum(whole.values())]:
        whole[node] += 1
    return whole


def attainable_amounts(count: int, wanted: Mapping[int, float]) -> dict[int, float]:
    """Return node -> amount that it can get, when other nodes have more than they should.

    The same number is subtracted from each node's wanted amount, but no result is below 0. So the
    largest missing amount is as small as possible (projection onto a simplex; Duchi et al. 2008).

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
    canonical weights to all pages on the workers. Each step keeps the ratios between the workers'
    shares, and the ratios between the other nodes' shares (github.com/gureya/bwap,
    `place_pages_weighted_s`). Here `dwp` is the share of the other nodes' pages that is shifted.

    `weights` are shares that add up to 1. With `dwp` 1, no pages are left on the other nodes.

    Raises:
        UserError: `dwp` is outside 0 to 1, or no worker has memory and `dwp` is above 0.
    """
    if not 0.0 <= dwp <= 1.0:  # also true for NaN
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
    """Return the smallest weights from 1 to 255 whose shares are within 2 % of the best possible.

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
    accepted = min(errors) + _ACCEPTED_ERROR
    return next(
        (w, error) for w, error in zip(candidates, errors, strict=True) if error <= accepted
    )


def _largest_error(wanted: Mapping[int, float], weights: Mapping[int, int]) -> float:
    """Return the largest relative error of a node's share."""
    all_wanted, all_weights = sum(wanted.values()), sum(weights.values())
    return max(
        abs(weights[node] / all_weights * all_wanted / share - 1.0)
        for node, share in wanted.items()
    )


def largest_share_deviation(wanted: Mapping[int, float], seen: Mapping[int, float]) -> float:
    """Return the largest deviation of a node's share of all pages from the wanted share."""
    return max(page_share_deviations(wanted, seen).values(), default=0.0)
