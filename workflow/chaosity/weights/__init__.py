"""Interleave weights from measured bandwidth, and what a placement of pages is to be expected."""

from chaosity.place.page_shares import shift_to_workers, uniform_shares
from chaosity.weights.bandwidth_weights import canonical_weights
from chaosity.weights.contended_paths import contended_matrix
from chaosity.weights.interleave_weights import KernelWeights, kernel_weights
from chaosity.weights.placement_advice import PlacementAdvice, advise_placement
from chaosity.weights.placement_model import expected_bandwidth
from chaosity.weights.placement_ranking import (
    RankCorrelation,
    expected_and_measured,
    rank_placements,
)
from chaosity.weights.weights_comparison import WeightsComparison, compare_weights

__all__ = [
    "KernelWeights",
    "PlacementAdvice",
    "RankCorrelation",
    "WeightsComparison",
    "advise_placement",
    "canonical_weights",
    "compare_weights",
    "contended_matrix",
    "expected_and_measured",
    "expected_bandwidth",
    "kernel_weights",
    "rank_placements",
    "shift_to_workers",
    "uniform_shares",
]
