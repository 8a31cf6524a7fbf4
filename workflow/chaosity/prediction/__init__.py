"""Predictions of drive sets that were not measured, with bounds and intervals."""
