"""Estimates with intervals, ratios of cells, and the analysis of what explains differences."""

from chaosity.statistics.anova import Analysis, analyse
from chaosity.statistics.anova_studies import Study, studies
from chaosity.statistics.before_and_after_change import before_and_after
from chaosity.statistics.block_ratios import block_ratio, paired_ratios
from chaosity.statistics.cell_summary import UNMEASURED, mark_outliers, summarise
from chaosity.statistics.corun_interference import (
    DIVERGING_RATIO,
    SLOW_INITIATOR_RATIO,
    LatencyDivergence,
    corun_slowdown,
    latency_divergence,
)
from chaosity.statistics.estimates_and_ratios import Estimate, Ratio, change_text
from chaosity.statistics.loaded_latency_curves import QUANTITIES, curve_quantities, with_unloaded
from chaosity.statistics.significance_tests import (
    cells_differ,
    equal_values_allowed,
    false_discovery_adjusted,
    holm_adjusted,
)
from chaosity.store.measurements import (
    CELL,
    LOAD,
    POINT,
    is_performance,
    less_is_better,
)

__all__ = [
    "CELL",
    "DIVERGING_RATIO",
    "LOAD",
    "POINT",
    "QUANTITIES",
    "SLOW_INITIATOR_RATIO",
    "UNMEASURED",
    "Analysis",
    "Estimate",
    "LatencyDivergence",
    "Ratio",
    "Study",
    "analyse",
    "before_and_after",
    "block_ratio",
    "cells_differ",
    "change_text",
    "corun_slowdown",
    "curve_quantities",
    "equal_values_allowed",
    "false_discovery_adjusted",
    "holm_adjusted",
    "is_performance",
    "latency_divergence",
    "less_is_better",
    "mark_outliers",
    "paired_ratios",
    "studies",
    "summarise",
    "with_unloaded",
]
