"""The policies of placing pages, by name; docs/explanation/placing-pages.md explains each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlacementPolicy:
    """A way of placing pages."""

    over_all: bool  # whether pages may lie on every memory node, not only on the workers' nodes
    shares: str | None  # "uniform", the name of measured weights, or None if the kernel decides
    # Whether pages move while the program runs, to nodes that are not known in advance.
    settles: bool = False
    searched: bool = False  # whether a search moves the pages


UNIFORM = "uniform"
# Measured weights; each is the name of a policy too. CANONICAL uses the bandwidth that the slowest
# worker gets from each node alone; CONTENDED uses the bandwidth while all workers run.
CANONICAL, CONTENDED = "canonical", "canonical_contended"
FIRST_TOUCH, AUTONUMA = "first_touch", "autonuma"
POLICIES = {
    FIRST_TOUCH: PlacementPolicy(over_all=False, shares=None),
    "uniform_workers": PlacementPolicy(over_all=False, shares=UNIFORM),
    "uniform_all": PlacementPolicy(over_all=True, shares=UNIFORM),
    # First touch; then the kernel moves pages to the nodes whose threads use them.
    AUTONUMA: PlacementPolicy(over_all=False, shares=None, settles=True),
    CANONICAL: PlacementPolicy(over_all=True, shares=CANONICAL),
    CONTENDED: PlacementPolicy(over_all=True, shares=CONTENDED),
    # BWAP: begins with the canonical (or uniform) weights and searches for the best placement while
    # the program runs, before it is measured.
    "bwap": PlacementPolicy(over_all=True, shares=CANONICAL, settles=True, searched=True),
    "bwap_uniform": PlacementPolicy(over_all=True, shares=UNIFORM, settles=True, searched=True),
}
