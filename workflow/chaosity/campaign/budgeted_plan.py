"""The plan of a run with a budget, its rounds, and whether the budget is enough for all points.

The folder ``rounds`` of a host's configuration has the rounds so far. The plan is the union of
these rounds, so records are kept and repeated as in a run without a budget. Every start of the
workflow imports this module, so this module imports no library of the analysis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chaosity.design.host_plan import HostPlan
from chaosity.documents.config import AUTO_BUDGET, Config
from chaosity.errors import UserError
from chaosity.records.record_files import current_record_path
from chaosity.rounds.point_priority import least_budget_seconds
from chaosity.rounds.round_types import (
    ROUND_SECONDS,
    Budget,
    Round,
    RoundStep,
    point_key,
    read_round_step,
    round_file,
    rounds_of_steps,
)
from chaosity.units import format_count, format_duration, parse_duration, parse_share

# The budget "auto" is 30 minutes, which finds most of what there is to find on a server with eight
# nodes (docs/explanation/budget.md). A machine whose shortest budget times 1.25 is longer gets that
# time, so that some time is left for drives and replicates.
_AUTO_SECONDS, _AUTO_FACTOR = 30 * 60.0, 1.25


def has_budget_or_precision(config: Config) -> bool:
    """Return whether a run has a limit, of time or precision, so that it measures in rounds."""
    return bool(config["budget"] or config["precision"])


def budget_of_config(config: Config, plan: HostPlan) -> Budget:
    """Return the budget of a host; `plan` is the complete plan of the host."""
    seconds = precision = None
    if config["budget"] == AUTO_BUDGET:
        least = least_budget_seconds(plan.points, plan.host.topology)
        seconds = max(_AUTO_SECONDS, _AUTO_FACTOR * least)
    elif config["budget"]:
        seconds = parse_duration(config["budget"])
    if config["precision"]:
        precision = parse_share(str(config["precision"]))
    return Budget(seconds, precision)


def plan_of_rounds(plan: HostPlan, folder: Path, rounds: Sequence[Round]) -> HostPlan:
    """Return the part of a host's complete plan that these rounds measure."""
    own = plan.only_measurements([key for each in rounds for key in each.measurements])
    # The rounds contain all records that count, so records of left-out points do not count.
    older = sum(
        (folder / current_record_path(*point_key(point), 1)).exists() for point in own.left_out
    )
    if not older:
        return own
    note = (
        f"budget: {format_count(older, 'combination')} left out whose records failed or are from"
        " before a change of a component or of the definition: the records stay, and no table or"
        " figure has them"
    )
    return replace(own, notes=(*own.notes, note))


class PlannedRounds:
    """The rounds of a host with a budget: those of earlier runs, and those that this run chooses.

    `complete` is the complete plan of the host, `steps` are the choices of earlier runs that this
    run keeps, and `are_written` says whether the files in ``rounds/`` have exactly these choices.
    """

    def __init__(
        self, complete: HostPlan, folder: Path, steps: Sequence[RoundStep], are_written: bool
    ) -> None:
        self.complete, self.folder, self.are_written = complete, folder, are_written
        self.first_choice = 1 + len(steps)  # the number of the first choice of this run
        self._steps = list(steps)

    @property
    def rounds_before_first_choice(self) -> list[Round]:
        """Return the rounds before the first choice of this run."""
        return rounds_of_steps(self._steps[: self.first_choice - 1])

    def plan_before_choice(self, number: int) -> HostPlan:
        """Return the plan of all rounds that were chosen before choice `number`."""
        rounds = rounds_of_steps(self._steps[: number - 1])
        return plan_of_rounds(self.complete, self.folder, rounds)

    def read_choice(self, number: int) -> tuple[bool, bool]:
        """Read choice `number` from its file; return whether it is the last, and whether new."""
        step = read_round_step(round_file(self.folder, number))
        is_new = number > len(self._steps)
        if is_new:
            self._steps.append(step)
        return step.is_last, is_new


def needs_rounds(
    plan: HostPlan, budget: Budget, *, used_seconds: float, missing_seconds: float, is_new: bool
) -> bool:
    """Return whether a run within the budget cannot measure the complete `plan`.

    `used_seconds` is the planned time of those measurements of the rounds so far that count, and
    `missing_seconds` the planned time of all measurements without a record that counts. `is_new`
    says whether no record counts.

    Raises:
        UserError: the budget is too short to measure the node matrices once.
    """
    if budget.seconds is None:
        return True
    if used_seconds + missing_seconds <= budget.seconds:
        return False
    least = ROUND_SECONDS + least_budget_seconds(plan.points, plan.host.topology)
    if budget.seconds < least and is_new:
        what = (
            f"a budget of {format_duration(budget.seconds)} is too short: measuring each cell of"
            f" the node matrices once takes about {format_duration(least)}, and would leave out"
            " drive sets, loads at the same time and replicates"
        )
        raise UserError(what, f"host {plan.host.name}", "give a longer budget")
    return True
