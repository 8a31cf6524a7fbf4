"""The description of a machine, fitted to a host, and what it predicts."""
