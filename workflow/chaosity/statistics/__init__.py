"""From replicates to estimates with intervals, and from pairs to ratios."""

from chaosity.statistics.company import cost_of_company
from chaosity.statistics.noise import cells_differ
from chaosity.statistics.ratios import block_ratio, paired_ratios
from chaosity.statistics.runs import RunRatio, before_and_after, run_ratio
from chaosity.statistics.siblings import DriveAmongSiblings, drives_among_siblings
from chaosity.statistics.summary import CELL, Estimate, estimate, mark_outliers, plain, summarise

__all__ = [
    "CELL",
    "DriveAmongSiblings",
    "Estimate",
    "RunRatio",
    "before_and_after",
    "block_ratio",
    "cells_differ",
    "cost_of_company",
    "drives_among_siblings",
    "estimate",
    "mark_outliers",
    "paired_ratios",
    "plain",
    "run_ratio",
    "summarise",
]
