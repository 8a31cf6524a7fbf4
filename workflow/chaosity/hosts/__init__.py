"""Reads the hosts of the inventory, discovers them, and writes the results."""
