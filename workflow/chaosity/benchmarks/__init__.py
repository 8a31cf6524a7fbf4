"""Benchmark files: from a template and a choice of initiator, target and kernel to a load."""

from chaosity.benchmarks.benchmark_file import Benchmark, open_benchmarks
from chaosity.benchmarks.counter_events import counter_events_of

__all__ = ["Benchmark", "counter_events_of", "open_benchmarks"]
