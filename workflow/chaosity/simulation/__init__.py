"""Make records of points on a simulated machine, which a YAML file describes."""
