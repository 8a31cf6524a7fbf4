"""Chaosity: what a server's memory and storage really do."""

__version__ = "1.0.0"
