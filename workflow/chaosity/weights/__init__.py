"""Compute interleave weights from measured bandwidth, and a placement's expected bandwidth."""
