"""Discover the topology of a host, from a live machine, an hwloc XML file or a captured /sys."""
