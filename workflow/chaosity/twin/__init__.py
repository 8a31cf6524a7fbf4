"""The description of a machine that was fitted to a host, and predictions from this description."""
