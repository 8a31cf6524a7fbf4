"""Draw the figures that an experiment's YAML describes, from the measurements."""
