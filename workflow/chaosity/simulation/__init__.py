"""Answers a point with the record of a machine that is described in YAML and does not exist."""
