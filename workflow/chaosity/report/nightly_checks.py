"""What the nightly checks of a host tell on the page of all hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chaosity.errors import UserError
from chaosity.health.check_history import LastingLoss, lasting_losses
from chaosity.health.check_series import read_series


@dataclass(frozen=True)
class NightlyChecks:
    """The nightly checks of a host."""

    # number, last: how many there are, and the time of the last one in UTC.
    number: int
    last: str
    # Points with a clear loss in the last check, each with its loss.
    clear: tuple[tuple[str, float], ...] = ()
    steps: tuple[LastingLoss, ...] = ()  # losses since a date, the largest first
    error: str | None = None  # why the series cannot be read, or None

    @property
    def tells(self) -> bool:
        """Return whether the checks tell a loss."""
        return bool(self.clear or self.steps or self.error)


def checks_of_folder(folder: Path) -> NightlyChecks | None:
    """Return the checks of ``results/HOST/CONFIGURATION``, or None."""
    try:
        rows = read_series(folder)
        steps = tuple(lasting_losses(rows))
    except UserError as error:
        return NightlyChecks(0, "", error=str(error))
    if not rows:
        return None
    last = rows[-1]["time"]
    clear = [
        (row["point"], float(row["loss"]))
        for row in rows
        if row["time"] == last and row["clear"] == "yes"
    ]
    clear.sort(key=lambda one: -one[1])
    number = len({row["time"] for row in rows})
    return NightlyChecks(number, last, tuple(clear), steps)
