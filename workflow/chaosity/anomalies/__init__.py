"""Find anomalies of a machine: what is wrong, how certain it is, which component is suspected."""
