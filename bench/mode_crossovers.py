"""How often the 95 % interval of the crossover of two firmware modes holds the planted crossover.

The machine is the simulated server of document 001, in NPS1 and NPS0. Each seed and each mix of
reads and writes is one interval. The interval of the share is that of Clopper and Pearson.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from simulated_modes import MIXES, SimulatedModes

REPLICATES = (3, 5)


def compare(seeds: int) -> Iterator[str]:
    """Yield a table in Markdown."""
    yield "| n | mix | planted | seeds | one crossover found | hold it | half width | mean error |"
    yield "|---|---|---|---|---|---|---|---|"
    for n in REPLICATES:
        modes = SimulatedModes("epyc_9575f", ("nps1", "nps0"), n)
        found = [modes.found(seed) for seed in range(1, seeds + 1)]
        for mix in MIXES:
            planted = modes.planted[mix]
            single = [f[mix].crossovers[0] for f in found if len(f[mix].crossovers) == 1]
            hits = sum(each.low <= planted <= each.high for each in single)
            share = stats.binomtest(hits, len(single)).proportion_ci()
            half = np.median([(each.high - each.low) / 2 / planted for each in single])
            error = np.mean([each.bandwidth / planted - 1 for each in single])
            columns = [
                n,
                mix,
                f"{planted / 1e9:.0f} GB/s",
                seeds,
                len(single),
                f"{hits / len(single):.0%} ({share.low:.0%} to {share.high:.0%})",
                f"{half:.1%}",
                f"{error:+.2%}",
            ]
            yield f"| {' | '.join(map(str, columns))} |"


PARTS = {"mode_crossovers": compare}
