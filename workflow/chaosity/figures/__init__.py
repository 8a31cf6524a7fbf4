"""Figures that an experiment's YAML describes, drawn from the measurements."""
