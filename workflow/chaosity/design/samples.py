"""Sample levels, sets or points evenly, take items in turns, and note what a plan leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, islice, zip_longest
from math import comb
from typing import TypeVar

from chaosity.place.page_placement import apportion_whole_numbers
from chaosity.place_names import nodes_name

T = TypeVar("T")
# The largest number of sets of nodes that are measured. 8 nodes have 255 sets. Each further node
# doubles the number of sets, so on hosts with more nodes only some sets are measured.
MOST_SAMPLED_SETS = 255


class PlanNotes:
    """Notes on what a plan leaves out, and why; equal notes are kept once."""

    def __init__(self) -> None:
        self._nodes: dict[str, set[int]] = {}

    def add_note(self, text: str, nodes: Iterable[int] = ()) -> None:
        """Add a note, which ends with the nodes of all calls that have the same text."""
        self._nodes.setdefault(text, set()).update(nodes)

    @property
    def note_texts(self) -> list[str]:
        """Return the notes in the order in which they were added."""
        return [note_with_nodes(text, nodes) for text, nodes in self._nodes.items()]


def note_with_nodes(text: str, nodes: Iterable[int]) -> str:
    """Return the text of a note with the nodes to which it applies."""
    listed = sorted(nodes)
    return f"{text} on {nodes_name(listed)}" if listed else text


def pick_evenly_spread(items: Sequence[T], at_most: int | None) -> list[T]:
    """Return at most `at_most` items (all if None), evenly spread from the first to the last."""
    if at_most is None or len(items) <= max(at_most, 0):
        return list(items)
    step = (len(items) - 1) / max(at_most - 1, 1)
    return [items[round(index * step)] for index in range(max(at_most, 0))]


def take_in_turns(groups: Iterable[Iterable[T]]) -> list[T]:
    """Return the first item of each group, then the second item of each group, and so on.

    No item may be None.
    """
    return [item for turn in zip_longest(*groups) for item in turn if item is not None]


def sample_sets_of_every_size(
    items: Sequence[T], at_most: int = MOST_SAMPLED_SETS
) -> list[tuple[T, ...]]:
    """Return at most `at_most` sets of the items, small sets first, with every size if possible.

    If there are more than `at_most` sets, each size gets one set, and the other sets are chosen in
    proportion to the number of sets of each size. The chosen sets of one size are evenly spread. If
    there are more sizes than `at_most` (at least 1), the chosen sizes are evenly spread too.
    """
    count = len(items)
    sizes = pick_evenly_spread(range(1, count + 1), at_most)
    left = {size: comb(count, size) - 1 for size in sizes}
    more = apportion_whole_numbers(min(at_most - len(sizes), sum(left.values())), left)
    return [chosen for size in sizes for chosen in _sets_of_size(items, size, 1 + more[size])]


def _sets_of_size(items: Sequence[T], size: int, wanted: int) -> list[tuple[T, ...]]:
    """Return a number `wanted` of sets of `size` items, evenly spread over all sets of this size.

    The sets are sorted by the positions of their items.
    """
    positions = pick_evenly_spread(range(comb(len(items), size)), wanted)
    every = combinations(items, size)
    gaps = [here - before for before, here in zip([-1, *positions], positions, strict=False)]
    return [next(islice(every, gap - 1, None)) for gap in gaps]
