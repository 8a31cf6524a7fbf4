"""The ratio of two cells, and which ratios matter."""

from __future__ import annotations

import numpy as np

from chaosity.compare.matched_cells import Cell
from chaosity.statistics import Ratio

# A difference counts when it is at least this large and not by chance. Equal servers differ by 1 or
# 2 % in the bandwidth of their memory; a wrong setting or a slow module takes at least 5 %.
MATTERS = 1.05
LEVEL = 0.05


def ratio_of(cell: Cell, reference: Cell) -> Ratio:
    """Ratio of two cells of different runs: Welch's interval and test on logarithms."""
    return Ratio.of_runs(cell.values, reference.values)


def paired_ratio_of(cell: Cell, reference: Cell) -> Ratio:
    """Ratio of two cells of one run in the replicate blocks that both cells have.

    Without a common block (each side failed where the other did not) the cells are not paired.
    """
    blocks = [block for block in cell.logs if block in reference.logs]
    if not blocks:
        return ratio_of(cell, reference)
    own, other = (np.exp([side.logs[block] for block in blocks]) for side in (cell, reference))
    return Ratio.paired(own, other)


def matters(ratio: float) -> bool:
    """Whether a difference is large enough, in either direction."""
    return bool(abs(np.log(ratio)) >= np.log(MATTERS))
