"""Comparison of two selections of the tidy table, and outlier hosts among equal hosts."""

from chaosity.compare.comparison_text import GroupVerdict
from chaosity.compare.outlier_host_search import HostVerdict, OutlierHosts, find_outlier_hosts
from chaosity.compare.selection_comparison import SelectionComparison, compare_selections
from chaosity.compare.selections_to_compare import Selection, read_selections

__all__ = [
    "GroupVerdict",
    "HostVerdict",
    "OutlierHosts",
    "Selection",
    "SelectionComparison",
    "compare_selections",
    "find_outlier_hosts",
    "read_selections",
]
