"""Helpers of bench/mutants.py."""
