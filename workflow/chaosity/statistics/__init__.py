"""Compute estimates with intervals, ratios of cells, and what explains differences."""
