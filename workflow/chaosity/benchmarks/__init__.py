"""Benchmark files: make a load from templates and a choice of initiator, target and kernel."""
