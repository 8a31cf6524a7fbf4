"""Anomalies of a machine: what is wrong, how sure it is, which component is suspected."""
