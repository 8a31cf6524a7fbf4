"""Interleave weights from measured bandwidth, and what a placement of pages is to be expected."""

from chaosity.place.shares import towards_workers, uniform
from chaosity.weights.advice import Advice, advise
from chaosity.weights.canonical import canonical_weights
from chaosity.weights.compared import Comparison, compare_weights
from chaosity.weights.contended import contended_matrix
from chaosity.weights.kernel import KernelWeights, kernel_weights
from chaosity.weights.placement import placement_bandwidth
from chaosity.weights.ranking import RankCorrelation, expected_and_measured, rank_placements

__all__ = [
    "Advice",
    "Comparison",
    "KernelWeights",
    "RankCorrelation",
    "advise",
    "canonical_weights",
    "compare_weights",
    "contended_matrix",
    "expected_and_measured",
    "kernel_weights",
    "placement_bandwidth",
    "rank_placements",
    "towards_workers",
    "uniform",
]
