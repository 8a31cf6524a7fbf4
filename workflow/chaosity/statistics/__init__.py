"""Estimates with intervals, ratios of cells, and the analysis of what explains differences."""

from chaosity.statistics.anova import Analysis, analyse
from chaosity.statistics.anova_studies import Study, find_studies
from chaosity.statistics.before_and_after_change import compare_neighbouring_periods
from chaosity.statistics.block_ratios import (
    cell_ratios_in_replicate_blocks,
    group_ratio_in_replicate_blocks,
)
from chaosity.statistics.cell_summary import UNMEASURED, mark_outliers, summarise
from chaosity.statistics.corun_interference import (
    DIVERGING_RATIO,
    SLOW_INITIATOR_RATIO,
    LatencyDivergence,
    corun_slowdown,
    find_latency_divergence,
)
from chaosity.statistics.estimates_and_ratios import Estimate, Ratio, change_text
from chaosity.statistics.loaded_latency_curves import (
    QUANTITIES,
    latency_curve_quantities,
    repeat_unloaded_points_on_each_line,
)
from chaosity.statistics.significance_tests import (
    adjust_false_discovery_rate,
    adjust_family_wise_error,
    cells_differ_significantly,
    silence_warnings_on_equal_values,
)
from chaosity.store.measurements import (
    CELL,
    LOAD,
    POINT,
    is_performance_metric,
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
    "adjust_false_discovery_rate",
    "adjust_family_wise_error",
    "analyse",
    "cell_ratios_in_replicate_blocks",
    "cells_differ_significantly",
    "change_text",
    "compare_neighbouring_periods",
    "corun_slowdown",
    "find_latency_divergence",
    "find_studies",
    "group_ratio_in_replicate_blocks",
    "is_performance_metric",
    "latency_curve_quantities",
    "less_is_better",
    "mark_outliers",
    "repeat_unloaded_points_on_each_line",
    "silence_warnings_on_equal_values",
    "summarise",
]
