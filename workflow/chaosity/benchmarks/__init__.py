"""Benchmark files: from a template and a choice of initiator, target and kernel to a load."""
