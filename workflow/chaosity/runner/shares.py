"""Shares of pages by node: how far they are from what was wanted, and how far they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

# A node's share may be off by this much of all pages. The bandwidths that shares follow from
# scatter as much, and fifty huge pages cannot be spread more finely.
SHARE_TOLERANCE = 0.02
Node = TypeVar("Node", int, str)  # its number, or that as a key of JSON


def departures(wanted: Mapping[Node, float], seen: Mapping[Node, float]) -> dict[Node, float]:
    """How far the share of each node is from what was wanted, as a part of all pages.

    Args:
        wanted: by node; one that is not named has no share.
        seen: the same, as it is.

    Returns:
        By node, in the order of their numbers.
    """
    nodes = sorted({*wanted, *seen}, key=int)
    return {node: abs(seen.get(node, 0.0) - wanted.get(node, 0.0)) for node in nodes}
