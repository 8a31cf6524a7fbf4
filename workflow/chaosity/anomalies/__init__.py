"""Find anomalies of a machine: what is wrong, how certain, and which component is suspected."""
