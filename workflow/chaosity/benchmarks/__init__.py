"""Benchmark files: from a template and a choice of initiator, target and kernel to a load."""

from chaosity.benchmarks.template import Benchmark, open_benchmarks

__all__ = ["Benchmark", "open_benchmarks"]
