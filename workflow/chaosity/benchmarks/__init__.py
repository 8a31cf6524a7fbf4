"""Benchmark files: from a template and a choice of initiator, target and kernel to a load."""

from chaosity.benchmarks.counters import counters_of
from chaosity.benchmarks.template import Benchmark, open_benchmarks

__all__ = ["Benchmark", "counters_of", "open_benchmarks"]
