"""Errors for users, in one sentence: the problem, its place, and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


class DesignLeftOutError(UserError):
    """This host, or a benchmark of the config, cannot measure a design; the plan leaves it out."""


def suggest_allowed(name: str, allowed: Iterable[str]) -> str:
    """Return a remedy for an unknown name: a similar allowed name, if any, and all of them."""
    known = sorted(map(str, allowed))
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"allowed: {', '.join(known) or 'nothing'}"
    return f"did you mean {near[0]}? {listed}" if near else listed


def check_allowed(name: str, allowed: Iterable[str], problem: str, where: str | None) -> None:
    """Check that a name is one of the allowed names.

    Raises:
        UserError: the name is not allowed; the error has the allowed names.
    """
    known = list(allowed)
    if name not in known:
        raise UserError(problem, where, suggest_allowed(name, known))
