"""Compute estimates with intervals and ratios of cells, and find the factors behind differences."""
