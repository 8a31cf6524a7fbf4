"""Sets of nodes: all of them on a small machine, else some of every size, evenly spread."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice
from math import comb
from typing import TypeVar

from chaosity.place.page_shares import apportion_whole

T = TypeVar("T")
# All sets of 8 nodes are 255; beyond, the number doubles with each node and sets are left out.
AT_MOST_SETS = 255


def evenly_spread(things: Sequence[T], at_most: int) -> list[T]:
    """Of too many things some that are evenly spread over them, the first and the last among them.

    Args:
        things: in any order.
        at_most: how many to take; none below 1.
    """
    if len(things) <= max(at_most, 0):
        return list(things)
    step = (len(things) - 1) / max(at_most - 1, 1)
    return [things[round(index * step)] for index in range(max(at_most, 0))]


def sets_of_every_size(things: Sequence[T], at_most: int = AT_MOST_SETS) -> list[tuple[T, ...]]:
    """Sets of things, small ones first, and of every size at least one as far as that goes.

    Of too many, each size has one and the rest by how many sets there are of it; within a size they
    are evenly spread. Sizes are spread evenly themselves where there are more than `at_most`.

    Args:
        things: without repetition, in the order in which sets list them.
        at_most: how many sets to take, 1 at least.
    """
    count = len(things)
    sizes = evenly_spread(range(1, count + 1), at_most)
    left = {size: comb(count, size) - 1 for size in sizes}
    more = apportion_whole(min(at_most - len(sizes), sum(left.values())), left)
    return [one for size in sizes for one in _sets_of_size(things, size, 1 + more[size])]


def _sets_of_size(things: Sequence[T], size: int, wanted: int) -> list[tuple[T, ...]]:
    """Some of all sets of a size, evenly spread over them in the order of the alphabet."""
    places = evenly_spread(range(comb(len(things), size)), wanted)
    every = combinations(things, size)
    gaps = [here - before for before, here in zip([-1, *places], places, strict=False)]
    return [next(islice(every, gap - 1, None)) for gap in gaps]
