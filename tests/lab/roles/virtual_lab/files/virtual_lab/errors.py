"""The one kind of error that a person is told."""

from __future__ import annotations


class LabError(Exception):
    """What is wrong, where (the machine by name), and what would be right, in one sentence."""
