"""Interleave weights from measured bandwidth, and the expected bandwidth of a placement."""
