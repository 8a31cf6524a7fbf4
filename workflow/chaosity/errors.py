"""Errors that a person reads: one sentence that says what, where, and what would be right."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend: bad input, a missing tool, a refused drive.

    Args:
        what: what is wrong, as a clause without a full stop.
        where: the file, key, host or point it is about.
        remedy: what would be right, or the next step.
    """

    def __init__(self, what: str, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        sentence = f"{self.where}: {self.what}" if self.where else self.what
        return f"{sentence}; {self.remedy}." if self.remedy else f"{sentence}."
