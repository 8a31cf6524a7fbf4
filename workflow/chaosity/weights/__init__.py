"""Interleave weights from measured bandwidth, and the expected bandwidth of a placement."""

from chaosity.place.page_share_arithmetic import shift_shares_to_workers, uniform_shares
from chaosity.weights.canonical_weights import (
    PATH_BANDWIDTH,
    WeightsComparison,
    bandwidth_under_contention,
    canonical_weights,
    compare_weights,
)
from chaosity.weights.placement_advice import (
    KernelWeights,
    PlacementAdvice,
    advise_interleave_weights,
    kernel_weights,
)
from chaosity.weights.placement_bandwidth_model import (
    RankCorrelation,
    expected_and_measured,
    expected_bandwidth,
    rank_correlation,
    rank_placements,
)

__all__ = [
    "PATH_BANDWIDTH",
    "KernelWeights",
    "PlacementAdvice",
    "RankCorrelation",
    "WeightsComparison",
    "advise_interleave_weights",
    "bandwidth_under_contention",
    "canonical_weights",
    "compare_weights",
    "expected_and_measured",
    "expected_bandwidth",
    "kernel_weights",
    "rank_correlation",
    "rank_placements",
    "shift_shares_to_workers",
    "uniform_shares",
]
