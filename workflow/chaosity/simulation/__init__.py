"""Make records of points on a machine that does not exist but is described in YAML."""
