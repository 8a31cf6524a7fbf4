"""From replicates to estimates with intervals, and from pairs to ratios."""

from chaosity.statistics.company import cost_of_company
from chaosity.statistics.noise import cells_differ
from chaosity.statistics.ratios import block_ratio, paired_ratios
from chaosity.statistics.summary import CELL, Estimate, estimate, mark_outliers, plain, summarise

__all__ = [
    "CELL",
    "Estimate",
    "block_ratio",
    "cells_differ",
    "cost_of_company",
    "estimate",
    "mark_outliers",
    "paired_ratios",
    "plain",
    "summarise",
]
