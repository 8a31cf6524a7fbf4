"""Two selections of the tidy table against each other; which of many equal hosts is not equal."""

from chaosity.compare.comparison import GroupVerdict, SelectionComparison, compare_selections
from chaosity.compare.outlier_host import HostVerdict, OutlierHosts, find_outlier_hosts
from chaosity.compare.table_selections import Selection, filter_rows, read_selections

__all__ = [
    "GroupVerdict",
    "HostVerdict",
    "OutlierHosts",
    "Selection",
    "SelectionComparison",
    "compare_selections",
    "filter_rows",
    "find_outlier_hosts",
    "read_selections",
]
