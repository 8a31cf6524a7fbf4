"""From experiments in YAML and a topology to points: what to measure, and in which order."""
