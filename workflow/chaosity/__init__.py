"""Chaosity: what a server's memory and storage really do."""

__version__ = "0.1.0"
