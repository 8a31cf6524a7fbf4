"""Make points from experiments in YAML and a topology: what to measure, and in which order."""
