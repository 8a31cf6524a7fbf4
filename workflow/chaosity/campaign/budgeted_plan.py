"""The plan of a run with a budget, and whether the budget is enough for the complete plan.

``rounds.json`` of a host's configuration lists the rounds so far and only grows. The plan of a
round's run is the union of all rounds, so its records are cached and repeated as in any other run.
Every start of the workflow imports this module, so it imports no library of the analysis.
"""

from __future__ import annotations

from pathlib import Path

from chaosity.checked_yaml_files import AUTO_BUDGET
from chaosity.design.host_plan import HostPlan
from chaosity.errors import UserError
from chaosity.records.atomic_writes_and_record_files import record_file, replicate_numbers
from chaosity.rounds.point_priority import least_budget_seconds
from chaosity.rounds.round_types import ROUNDS_FILE, Budget, point_key, read_rounds
from chaosity.units import format_duration, parse_duration, parse_share
from chaosity.yaml_document_types import Config

# The budget "auto" is this time: most of what there is to find on a server with eight nodes
# (docs/budget.md). A machine with more nodes gets its shortest budget times this factor, so that
# some time is left for drives and replicates.
_AUTO_SECONDS, _AUTO_FACTOR = 30 * 60.0, 1.25


def has_budget(config: Config) -> bool:
    """Return whether a run measures in rounds, and not every combination."""
    return bool(config["budget"] or config["precision"])


def budget_of_config(config: Config, plan: HostPlan) -> Budget:
    """Return the budget of a host; `plan` is its complete plan."""
    seconds = precision = None
    if config["budget"] == AUTO_BUDGET:
        least = least_budget_seconds(plan.points, plan.host.topology)
        seconds = max(_AUTO_SECONDS, _AUTO_FACTOR * least)
    elif config["budget"]:
        seconds = parse_duration(config["budget"])
    if config["precision"]:
        precision = parse_share(str(config["precision"]))
    return Budget(seconds, precision)


def plan_of_rounds(plan: HostPlan, folder: Path) -> HostPlan:
    """Return the plan of all rounds so far, from the complete plan of a host."""
    rounds = read_rounds(folder)
    return plan.only_measurements([key for each in rounds for key in each.measurements])


def missing_seconds(plan: HostPlan, folder: Path) -> float:
    """Return the planned time of all measurements of a plan that have no record, in seconds."""
    return sum(
        point["estimated_seconds"]
        for point in plan.points
        for replicate in replicate_numbers(point)
        if not (folder / record_file(*point_key(point), replicate)).exists()
    )


def needs_rounds(plan: HostPlan, folder: Path, budget: Budget) -> bool:
    """Return whether a run within the budget cannot measure the complete plan.

    Raises:
        UserError: the budget is too short to measure the node matrices once.
    """
    if budget.seconds is None:
        return True
    planned = {point_key(point): point["estimated_seconds"] for point in plan.points}
    earlier = (each for each in read_rounds(folder) if not each.earlier)
    used = sum(planned.get(key, 0.0) for each in earlier for key in each.measurements)
    if used + missing_seconds(plan, folder) <= budget.seconds:
        return False
    least = least_budget_seconds(plan.points, plan.host.topology)
    if budget.seconds < least and not (folder / ROUNDS_FILE).exists():
        what = (
            f"a budget of {format_duration(budget.seconds)} is too short: measuring each cell of"
            f" the node matrices once takes about {format_duration(least)}, and would leave out"
            " drive sets, loads at the same time and replicates"
        )
        raise UserError(what, f"host {plan.host.name}", "give a longer budget")
    return True
