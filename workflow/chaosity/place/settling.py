"""Waiting until the kernel has come to rest that moves pages towards the threads that use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chaosity.place.shares import largest_departure

# The kernel looks at a program's memory once a second at most, and for the first time after a
# second (numa_balancing_scan_delay_ms, scan_period_min_ms), so a second lies between looks.
LOOK_SECONDS = 1.0
# At rest: over so many looks no node's share has changed by more than this part of all pages.
LOOKS, CHANGE = 4, 0.01
# A scan takes 256 MiB, so what is larger than some GiB may go on for minutes. Others wait
# meanwhile, so what has not come to rest by then is measured as it is.
LONGEST_SECONDS = 20.0


@dataclass
class Settling:
    """How a program's pages came to rest, as the report says it.

    Attributes:
        seconds: how long was waited.
        settled: whether they came to rest in that time.
    """

    seconds: float = 0.0
    settled: bool = False

    def wait(self, pump: Callable[[float], bool], look: Callable[[], Mapping[int, float]]) -> None:
        """Look at the pages of a running program until they are at rest.

        Args:
            pump: lets the program go on for some seconds; False when it has ended.
            look: the share of each node now.
        """
        began = time.monotonic()
        seen = [look()]
        while not self.settled and self.seconds < LONGEST_SECONDS and pump(LOOK_SECONDS):
            seen = [*seen, look()][-LOOKS:]
            self.settled = len(seen) == LOOKS and _at_rest(seen)
            self.seconds = time.monotonic() - began


def _at_rest(seen: list[Mapping[int, float]]) -> bool:
    return all(largest_departure(one, seen[-1]) <= CHANGE for one in seen)
