"""Two selections of the tidy table against each other; which of many equal hosts is not equal."""

from chaosity.compare.comparison import Comparison, GroupVerdict, compare
from chaosity.compare.selections import Selection, read_selections, where
from chaosity.compare.twins import HostVerdict, OddOneOut, odd_one_out

__all__ = [
    "Comparison",
    "GroupVerdict",
    "HostVerdict",
    "OddOneOut",
    "Selection",
    "compare",
    "odd_one_out",
    "read_selections",
    "where",
]
