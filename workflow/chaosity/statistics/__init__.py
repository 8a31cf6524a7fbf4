"""Estimates with intervals, ratios of cells, and the analysis of what explains differences."""
