"""Check a host in less than a minute against the map that was measured of it."""
