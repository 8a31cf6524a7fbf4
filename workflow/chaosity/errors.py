"""Errors for users, in one sentence: the problem, its place, and what would be right."""

from __future__ import annotations


class MeasurementError(Exception):
    """A point cannot be measured; the text gives the reason for its record."""


class UserError(Exception):
    """A problem that the user can fix: wrong input, a missing tool, a refused drive.

    Args:
        what: the problem, as a clause without a full stop.
        where: the file, key, host or point with the problem.
        remedy: what would be right, or the next step, as a clause.
    """

    def __init__(self, what: str, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        return f"{sentence}; {self.remedy}." if self.remedy else f"{sentence}."
