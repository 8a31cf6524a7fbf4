"""Check a host in less than a minute against its map, which is the results of a complete run."""
