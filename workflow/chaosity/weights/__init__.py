"""Interleave weights from measured bandwidth, and what a placement of pages is to be expected."""

from chaosity.place.shares import towards_workers, uniform
from chaosity.weights.advice import Advice, advise
from chaosity.weights.canonical import canonical_weights
from chaosity.weights.kernel import KernelWeights, kernel_weights
from chaosity.weights.placement import placement_bandwidth

__all__ = [
    "Advice",
    "KernelWeights",
    "advise",
    "canonical_weights",
    "kernel_weights",
    "placement_bandwidth",
    "towards_workers",
    "uniform",
]
