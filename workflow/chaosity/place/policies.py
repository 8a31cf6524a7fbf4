"""The policies of placement by name, as document 002 compares them; plans and hosts know these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlacementPolicy:
    """One way of placing pages.

    Attributes:
        over_all: whether pages may lie on every memory node; else on the workers' own alone.
        shares: "uniform", the name of measured weights, or None where the kernel decides.
        settles: whether pages are moved while the program runs, so that where they end is not known
            beforehand.
        searched: whether it is a search that moves them.
    """

    over_all: bool
    shares: str | None
    settles: bool = False
    searched: bool = False


UNIFORM = "uniform"
# Weights that were measured, each a policy too: by what the slowest worker gets from each node
# alone, and with all workers at once.
CANONICAL, CONTENDED = "canonical", "canonical_contended"
FIRST_TOUCH, AUTONUMA = "first_touch", "autonuma"
POLICIES = {
    FIRST_TOUCH: PlacementPolicy(over_all=False, shares=None),
    "uniform_workers": PlacementPolicy(over_all=False, shares=UNIFORM),
    "uniform_all": PlacementPolicy(over_all=True, shares=UNIFORM),
    # First touch, and then the kernel moves pages to whom it sees using them.
    AUTONUMA: PlacementPolicy(over_all=False, shares=None, settles=True),
    CANONICAL: PlacementPolicy(over_all=True, shares=CANONICAL),
    CONTENDED: PlacementPolicy(over_all=True, shares=CONTENDED),
    # BWAP: from the canonical weights on, the best place is searched while the program runs, before
    # it is measured; and the same without them.
    "bwap": PlacementPolicy(over_all=True, shares=CANONICAL, settles=True, searched=True),
    "bwap_uniform": PlacementPolicy(over_all=True, shares=UNIFORM, settles=True, searched=True),
}
