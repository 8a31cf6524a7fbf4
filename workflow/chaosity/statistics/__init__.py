"""From replicates to estimates with intervals, and from pairs to ratios."""

from chaosity.statistics.anova import Analysis, analyse
from chaosity.statistics.divergence import DIVERGES, SLOWER, Divergence, divergence
from chaosity.statistics.factor_studies import Study, studies
from chaosity.statistics.interference import corun_slowdown
from chaosity.statistics.latency_curves import QUANTITIES, curve_numbers, with_unloaded
from chaosity.statistics.loads import LOAD, POINT, load_counts, load_parameters
from chaosity.statistics.noise import cells_differ
from chaosity.statistics.ratios import block_ratio, paired_ratios
from chaosity.statistics.runs import RunRatio, before_and_after, run_ratio
from chaosity.statistics.summary import (
    CELL,
    UNMEASURED,
    Estimate,
    estimate,
    is_performance,
    less_is_better,
    mark_outliers,
    plain,
    summarise,
)
from chaosity.store.tidy_table import valid

__all__ = [
    "CELL",
    "DIVERGES",
    "LOAD",
    "POINT",
    "QUANTITIES",
    "SLOWER",
    "UNMEASURED",
    "Analysis",
    "Divergence",
    "Estimate",
    "RunRatio",
    "Study",
    "analyse",
    "before_and_after",
    "block_ratio",
    "cells_differ",
    "corun_slowdown",
    "curve_numbers",
    "divergence",
    "estimate",
    "is_performance",
    "less_is_better",
    "load_counts",
    "load_parameters",
    "mark_outliers",
    "paired_ratios",
    "plain",
    "run_ratio",
    "studies",
    "summarise",
    "valid",
    "with_unloaded",
]
