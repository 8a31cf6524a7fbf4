"""Chaosity measures the memory and the storage of servers, and finds parts that are slow."""

__version__ = "1.0.0"
