"""Make the points of a host, and their order, from experiments in YAML and a topology."""
