"""Shares of pages by node: checked, moved towards the workers, as the kernel's whole numbers.

The arithmetic of placements stands here, since it is needed on hosts too; the room `weights` finds
out from measurements which shares are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from chaosity.errors import UserError
from chaosity.runner.observed_placement import share_deviations

# The kernel's weights: it keeps one in a byte, and 0 is its own choice or refused.
SMALLEST, LARGEST = 1, 255
# A node gets as many pages in a row as its weight says: with 255 a megabyte lies on one node, and
# what is smaller is not spread at all. So 2 % of a share are given away for small numbers; weights
# come from measurements that scatter as much.
_GIVEN_AWAY = 0.02
# Shares are written with a few digits; what sums to less than 0.99 or more than 1.01 is a slip. A
# little more, since 0.33 three times is not quite 0.99 in binary.
SUM_TOLERANCE = 0.01 + 1e-9


def uniform_shares(nodes: Iterable[int]) -> dict[int, float]:
    """The same share for each node, as plain interleaving gives."""
    listed = sorted(set(nodes))
    return dict.fromkeys(listed, 1.0 / len(listed))


def parse_shares(text: str) -> dict[int, float]:
    """Shares such as ``0:0.25,1:0.75``, made to add up to 1 exactly.

    Raises:
        UserError: the text is not of that form, names a node twice, or the shares do not add up.
    """
    found: dict[int, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+):([0-9.]+(?:e-?\d+)?)\s*", part)
        try:
            node, share = int(match[1]), float(match[2])  # type: ignore[index]
        except (TypeError, ValueError):
            raise UserError(
                f"{part.strip()!r} is no share", "--shares", "it is a list such as 0:0.25,1:0.75"
            ) from None
        if node in found:
            raise UserError(f"node {node} is named twice", "--shares")
        found[node] = share
    total = sum(found.values())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise UserError(f"the shares add up to {total:g}", "--shares", "they have to add up to 1")
    return {node: share / total for node, share in sorted(found.items())}


def format_shares(shares: Mapping[int, float]) -> str:
    """Shares as `parse_shares` reads them."""
    return ",".join(f"{node}:{share:.6f}" for node, share in sorted(shares.items()))


def apportion_whole(count: int, owed: Mapping[int, float]) -> dict[int, int]:
    """Whole numbers that add up to `count`, in the proportions of what is owed as near as can be.

    By largest remainders; nothing that is owed may be below 0, see `attainable`.
    """
    total = sum(owed.values()) or 1.0
    exact = {node: count * value / total for node, value in owed.items()}
    found = {node: int(value) for node, value in exact.items()}
    first = sorted(exact, key=lambda node: found[node] - exact[node])
    for node in first[: count - sum(found.values())]:
        found[node] += 1
    return found


def reduce_to_attainable(count: int, owed: Mapping[int, float]) -> dict[int, float]:
    """What is owed where some nodes have more than they should, so that it cannot all be given.

    Each node gets the same less than it is owed, and none below 0: so the largest that any node is
    left short of is as small as it can be (the projection onto a simplex; Duchi et al. 2008).

    Args:
        count: what there is to give; what is owed adds up to it, amounts below 0 included.
        owed: by node; below 0 where there is too much already.
    """
    total = less = 0.0
    for number, value in enumerate(sorted(owed.values(), reverse=True), 1):
        total += value
        if (total - count) / number >= value:
            break
        less = (total - count) / number
    return {node: max(0.0, value - less) for node, value in owed.items()}


def shift_to_workers(
    weights: Mapping[int, float], workers: Collection[int], dwp: float
) -> dict[int, float]:
    """Move pages from the other nodes to the workers, for programs that wait rather than stream.

    Data-to-worker proximity (DWP) is BWAP's single knob. Its tuner goes from the canonical weights
    in steps until all pages lie on the workers; at each step the shares within the workers keep
    their ratios, and so do those within the others (github.com/gureya/bwap,
    `place_pages_weighted_s`). Here `dwp` is how much of that way has been gone: the share of the
    others' pages that are moved.

    Args:
        weights: share by node; they add up to 1.
        workers: nodes whose cores run the program.
        dwp: 0 leaves the weights as they are, 1 leaves nothing on other nodes.

    Raises:
        UserError: `dwp` is outside 0 to 1, or pages are to be moved and no worker has memory.
    """
    if not 0.0 <= dwp <= 1.0:  # also what is no number at all
        raise UserError(
            f"a data-to-worker proximity of {dwp:g} does not exist",
            remedy="it is 0 for the canonical weights to 1 for all pages on the workers",
        )
    if dwp == 0.0:
        return dict(weights)
    near = sum(share for node, share in weights.items() if node in workers)
    if near == 0.0:
        raise UserError(
            "pages cannot be moved to workers that have no memory", remedy="leave dwp at 0"
        )
    wanted = near + dwp * (1.0 - near)
    return {
        node: share * wanted / near if node in workers else share * (1.0 - dwp)
        for node, share in weights.items()
    }


def integer_weights(shares: Mapping[int, float]) -> tuple[dict[int, int], float]:
    """The smallest whole numbers whose shares are within 2 % of the best that 1 to 255 can give.

    Args:
        shares: by node; only their ratios count, and a share of 0 leaves the node out.

    Returns:
        The numbers, and the largest departure of a node's share relative to that share.

    Raises:
        UserError: a share is below 0, or none is above.
    """
    used = {node: share for node, share in sorted(shares.items()) if share != 0.0}
    if not used or not all(share > 0.0 for share in used.values()):
        raise UserError("shares have to be 0 or more, and one above 0", "the weights")
    highest = max(used.values())
    tried = []
    for largest in range(SMALLEST, LARGEST + 1):
        numbers = {
            node: max(SMALLEST, round(share / highest * largest)) for node, share in used.items()
        }
        tried.append((_error(used, numbers), numbers))
    good = min(error for error, _ in tried) + _GIVEN_AWAY
    error, numbers = next(one for one in tried if one[0] <= good)
    return numbers, error


def _error(wanted: Mapping[int, float], numbers: Mapping[int, int]) -> float:
    """The largest relative departure of a share."""
    all_wanted, all_given = sum(wanted.values()), sum(numbers.values())
    return max(
        abs(numbers[node] / all_given * all_wanted / share - 1.0) for node, share in wanted.items()
    )


def largest_share_deviation(wanted: Mapping[int, float], seen: Mapping[int, float]) -> float:
    """How far the share of any node is from what was wanted, as a part of all pages."""
    return max(share_deviations(wanted, seen).values(), default=0.0)
