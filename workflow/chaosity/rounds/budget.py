"""The plan of a run with a budget: its rounds and their files, and the points to measure first.

The folder ``rounds`` in the results of a host's configuration contains the rounds so far. The plan
is the union of these rounds, so records are kept and repeated as in a run without a budget.

A run with a budget always measures the points of priority 0, and measures them first. The points of
priority 1 follow, and so on. The priority of a point depends only on its loads, so the same rules
apply to every experiment.

n nodes with drives have 2^n - 1 drive sets. More drives never give less bandwidth, and a set never
has more bandwidth than the sum of its parts. So the bandwidth of most drive sets can be predicted
from their parts, and from the drives of two nodes together, which show whether these nodes share a
path.

Every start of the workflow imports this module, so this module imports no library of the analysis.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from chaosity.cpusets import parse_cpu_list
from chaosity.design.host_plan import HostPlan
from chaosity.documents.config import AUTO_BUDGET, Config
from chaosity.errors import UserError, malformed_as_user_error
from chaosity.records.record_files import current_record_path, read_regular_file, write_atomically
from chaosity.records.record_format import Load, Point, PointKey, point_key
from chaosity.topology.topology_model import Topology
from chaosity.units import format_count, format_duration, parse_duration, parse_share

# Folder with a file for each choice of rounds (1.json, 2.json, ...). Versions before 2026-11-27
# wrote all rounds into the single file `_FORMER_FILE`.
ROUNDS_FOLDER, _FORMER_FILE = "rounds", "rounds.json"

# Seconds that a measurement needs in addition to the time in its record, for the start of a process
# and for Snakemake's work. The median of 165 records on two cores was 0.07 s.
OVERHEAD_SECONDS_OF_MEASUREMENT = 0.1
# Seconds that a round needs on two cores in addition to its measurements: the workflow starts,
# makes the tidy table, and chooses the next round.
OVERHEAD_SECONDS_OF_ROUND = 5.0


@dataclass(frozen=True)
class Round:
    """A round: measurements that are planned together from the results so far."""

    reason: str  # why the run needs these measurements, in words
    # (experiment, point) of each measurement, in the order of measurement. The n-th occurrence of a
    # point in all rounds is replicate n of this point.
    measurements: tuple[PointKey, ...]
    audit: tuple[PointKey, ...] = ()  # random drive sets that are measured to audit predictions
    # Whether the round only has records from before the first round. The budget had no time for
    # them to use.
    earlier: bool = False


@dataclass(frozen=True)
class Budget:
    """When a run ends: after a time, or when all intervals are narrow enough."""

    seconds: float | None = None  # longest time of the measurements; None without a limit
    # Half width of the intervals as a share of the median; None without a target.
    precision: float | None = None


class RoundChoice(NamedTuple):
    """A choice of the next round, which is the content of ``rounds/NUMBER.json``."""

    # The new rounds; one of them can contain records of runs without a budget.
    rounds: tuple[Round, ...]
    is_last: bool  # says whether the run ends, because no round was chosen


def rounds_of_choices(choices: Iterable[RoundChoice]) -> list[Round]:
    """Return the rounds of several choices, in the order of the choices."""
    return [each for choice in choices for each in choice.rounds]


def replicate_counts(rounds: Iterable[Round]) -> Counter[PointKey]:
    """Return point -> number of replicates that some rounds measure."""
    return Counter(key for each in rounds for key in each.measurements)


def round_file(folder: Path, number: int) -> Path:
    """Return the path of choice `number` in the results of a host's configuration."""
    return folder / ROUNDS_FOLDER / f"{number}.json"


def read_round_choice(path: Path) -> RoundChoice:
    """Read a file ``rounds/NUMBER.json``, which a choice of the next round wrote.

    Raises:
        UserError: the file has no rounds.
    """
    remedy = "delete the folder of this file: the next run uses the existing records and goes on"
    with malformed_as_user_error("the file has no rounds", str(path), remedy):
        document = json.loads(read_regular_file(path))
        return RoundChoice(
            tuple(map(_round_from_json, document["rounds"])), bool(document["is_last"])
        )


def read_round_choices(folder: Path) -> list[RoundChoice]:
    """Return all choices of rounds so far for a host in a configuration, the first choice first.

    Raises:
        UserError: a file has no rounds.
    """
    choices: list[RoundChoice] = []
    while (path := round_file(folder, 1 + len(choices))).exists():
        choices.append(read_round_choice(path))
    if not choices and (old := folder / _FORMER_FILE).exists():
        with malformed_as_user_error("the file has no rounds", str(old), "delete it"):
            rounds = tuple(map(_round_from_json, json.loads(read_regular_file(old))))
        return [RoundChoice(rounds, is_last=False)]
    return choices


def _round_from_json(each: Any) -> Round:
    def point_keys(pairs: Any) -> tuple[PointKey, ...]:
        return tuple((str(experiment), str(point)) for experiment, point in pairs)

    measurements, audit = point_keys(each["measurements"]), point_keys(each["audit"])
    return Round(str(each["reason"]), measurements, audit, bool(each["earlier"]))


def write_round_choice(path: Path, choice: RoundChoice) -> None:
    """Write a choice of the next round into its file."""
    content = {"rounds": [asdict(each) for each in choice.rounds], "is_last": choice.is_last}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content) + "\n")


def rewrite_rounds(folder: Path, rounds: Sequence[Round]) -> None:
    """Replace all files of rounds of a host's configuration by one file with the given rounds."""
    shutil.rmtree(folder / ROUNDS_FOLDER, ignore_errors=True)
    (folder / _FORMER_FILE).unlink(missing_ok=True)
    if rounds:
        write_round_choice(round_file(folder, 1), RoundChoice(tuple(rounds), is_last=False))


# Name of the level with the size of a working set. The module `store.measurements` also has this
# constant, but imports pandas, which takes long.
_WORKING_SET_LEVEL = "bytes"
# Name of the level with the second core of a core-to-core transfer.
_RESPONDER_LEVEL = "responder"
# Largest number of nodes whose drives together are measured early, since the drives of two nodes
# show whether these nodes share a path.
_MOST_NODES_OF_EARLY_DRIVE_SETS = 2


class Priority(IntEnum):
    """The order in which a run with a budget chooses points: the smallest number comes first.

    The chosen points of a round are then measured in random order.
    """

    # Node matrices (initiators to memory, to all drives of each node, and to all drives), and
    # accesses of complete packages to memory.
    MATRIX = 0
    # Drives of two nodes of a package together, read by one node of each of the other packages.
    SHARED_LINKS = 1
    DRIVES = 2  # each drive from its own node, and all drives of a package
    # Drives of any other two nodes together, read by one node of each package; also transfers
    # between the first cores of two nodes.
    SHARED_PATHS = 3
    # Other loads that run alone: caches, cores, other pairs of cores, some drives of a node, and
    # drives that a core reads.
    ALONE = 4
    TOGETHER = 5  # several loads at the same time; points that equal an earlier point of the plan
    OTHER_INITIATORS = 6  # drives of one node read by another node, and other readers of two nodes
    PREDICTED = 7  # drives of three or more nodes, which can be predicted from smaller drive sets


def point_priorities(points: Iterable[Point], topology: Topology) -> dict[PointKey, Priority]:
    """Return the priority of each point of a plan.

    A point that runs the same commands as an earlier point of the plan shows nothing new, so it
    gets at best the priority `TOGETHER`. An example is a load that an experiment on interference
    measures alone.
    """
    found: dict[PointKey, Priority] = {}
    seen: set[object] = set()
    for point in points:
        commands = tuple(
            (*load["command"], *load["files"].items(), *load["environment"].items())
            for load in point["loads"]
        )
        priority = point_priority(point, topology)
        if commands in seen:
            priority = max(priority, Priority.TOGETHER)
        found[point_key(point)] = priority
        seen.add(commands)
    return found


def point_priority(point: Point, topology: Topology) -> Priority:
    """Return the priority of a point on a machine, without regard to other points of the plan."""
    loads = point["loads"]
    of_memory = not loads[0]["target"]["drives"]
    if of_memory and (is_node_matrix_cell(loads) or _is_of_packages(loads)):
        return Priority.MATRIX
    if len(loads) > 1:
        return Priority.TOGETHER
    [load] = loads
    if not load["target"]["drives"]:
        cores = _RESPONDER_LEVEL in load.get("levels", {}) and _is_pair_of_first_cores(
            load, topology
        )
        return Priority.SHARED_PATHS if cores else Priority.ALONE
    if load["initiator"]["kind"] == "pu":
        return Priority.ALONE
    nodes, initiators = set(load["target"]["nodes"]), set(load["initiator"]["nodes"])
    if len(nodes) <= 1:
        own = not nodes or nodes <= initiators
        if load["target"]["kind"] == "all_of_node" or _is_only_drive_of_its_node(load, topology):
            return Priority.MATRIX
        if not own:
            return Priority.OTHER_INITIATORS
        return Priority.DRIVES if load["target"]["kind"] == "drive" else Priority.ALONE
    packages = _nodes_of_packages(topology)
    if nodes == {drive.node for drive in topology.drives if drive.name}:
        return Priority.MATRIX
    if nodes in packages.values():
        return Priority.DRIVES
    if len(nodes) > _MOST_NODES_OF_EARLY_DRIVE_SETS:
        return Priority.PREDICTED
    first = {min(members) for members in packages.values() if members}
    if not initiators & first:
        return Priority.OTHER_INITIATORS
    crosses = any(nodes <= members and not initiators & members for members in packages.values())
    return Priority.SHARED_LINKS if crosses else Priority.SHARED_PATHS


def kind_of_contention(point: Point, topology: Topology) -> frozenset[object] | None:
    """Return the kinds of shared resources that a point loads; None for most loads of one node.

    Two points are of one kind if they load resources of the same kinds: drives or memory, the
    controllers of the initiator's node, links within a package, and links to other packages. A load
    of one core also has a kind, since it shows whether cores or a shared resource limit loads of
    several cores.
    """
    loads = point["loads"]
    if len(loads) == 1 and len(loads[0]["initiator"]["nodes"]) <= 1:
        [load] = loads
        memory = not load["target"]["drives"] and "latency_ns" not in load["metrics"]
        one_core = memory and len(parse_cpu_list(load["placement"]["cpus"])) == 1
        return frozenset({"one core"}) if one_core else None
    packages = {node: own for own, nodes in _nodes_of_packages(topology).items() for node in nodes}
    return frozenset(
        (
            bool(load["target"]["drives"]),
            "latency_ns" in load["metrics"],
            _WORKING_SET_LEVEL in load.get("levels", {}),
            0 if target == node else 1 if packages.get(target) == packages.get(node) else 2,
        )
        for load in loads
        for node in load["initiator"]["nodes"]
        for target in load["target"]["nodes"]
    )


def is_node_matrix_cell(loads: list[Load]) -> bool:
    """Return whether a point measures one node's memory, with a node's cores or as a latency.

    Points of a sweep over sizes of working sets, and points of a pair of cores, are not cells of a
    node matrix.
    """
    [load, *others] = loads
    levels = load.get("levels", {})
    return (
        not others
        and load["target"]["kind"] == "node"
        and len(load["target"]["nodes"]) == 1
        and (load["initiator"]["kind"] == "node" or "latency_ns" in load["metrics"])
        and levels.keys().isdisjoint({_WORKING_SET_LEVEL, _RESPONDER_LEVEL})
    )


def _is_pair_of_first_cores(load: Load, topology: Topology) -> bool:
    """Return whether each core of a load is the first core of a node."""
    first = {node.cpus[0] for node in topology.initiator_nodes}
    return first.issuperset(parse_cpu_list(load["placement"]["cpus"]))


def _is_of_packages(loads: list[Load]) -> bool:
    """Return whether all cores of a package or machine access the memory of several nodes.

    Few points measure complete packages, and no other points use the full bandwidth between
    packages.
    """
    [load, *others] = loads
    return (
        not others
        and load["target"]["kind"] == "nodes"
        and load["initiator"]["kind"] in ("package", "machine")
    )


def _is_only_drive_of_its_node(load: Load, topology: Topology) -> bool:
    """Return whether a load reads one drive that is the only drive of its node."""
    [drive, *others] = load["target"]["drives"]
    beside = [each for each in topology.drives if each.node == drive["node"]]
    return not others and len(beside) <= 1


def _nodes_of_packages(topology: Topology) -> Mapping[int, set[int]]:
    """Return package -> the nodes of this package."""
    return {package.os_index: set(package.nodes) for package in topology.packages}


def least_budget_seconds(points: Sequence[Point], topology: Topology) -> float:
    """Return the seconds that are enough to measure every cell of the node matrices once."""
    priorities = point_priorities(points, topology)
    matrix = [each for each in points if priorities[point_key(each)] == Priority.MATRIX]
    return sum(point["estimated_seconds"] + OVERHEAD_SECONDS_OF_MEASUREMENT for point in matrix)


# The budget "auto" is 30 minutes, which suffices for most findings on a server with eight nodes
# (docs/explanation/budget.md). If 1.25 times the shortest budget of the machine is longer than 30
# minutes, "auto" is 1.25 times the shortest budget, so that time for drives and replicates remains.
_AUTO_SECONDS, _AUTO_FACTOR = 30 * 60.0, 1.25


def has_budget_or_precision(config: Config) -> bool:
    """Return whether a run measures in rounds, because a time or a precision ends it."""
    return bool(config["budget"] or config["precision"])


def budget_of_config(config: Config, plan: HostPlan) -> Budget:
    """Return the budget that the config gives a host; `plan` is the complete plan of the host."""
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
    """Return the part of a host's complete plan that some rounds measure."""
    own = plan.only_measurements([key for each in rounds for key in each.measurements])
    # The rounds contain all records that are valid and not outdated. So each record of a left-out
    # point is failed or outdated.
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
    """The rounds of a host that is measured within a budget.

    The rounds are rounds of earlier runs, which are kept, and new rounds of this run. `complete` is
    the complete plan of the host. `choices` are the choices of earlier runs that this run keeps.
    `are_written` says whether the files in ``rounds/`` contain exactly these choices.
    """

    def __init__(
        self, complete: HostPlan, folder: Path, choices: Sequence[RoundChoice], are_written: bool
    ) -> None:
        self.complete, self.folder, self.are_written = complete, folder, are_written
        self.first_choice = 1 + len(choices)  # the number of the first choice of this run
        self._choices = list(choices)

    @property
    def rounds_before_first_choice(self) -> list[Round]:
        """Return the rounds before the first choice of this run."""
        return rounds_of_choices(self._choices[: self.first_choice - 1])

    @property
    def plan(self) -> HostPlan:
        """Return the plan of all rounds that were chosen so far."""
        return self.plan_before_choice(1 + len(self._choices))

    def plan_before_choice(self, number: int) -> HostPlan:
        """Return the plan of all rounds that were chosen before choice `number`."""
        rounds = rounds_of_choices(self._choices[: number - 1])
        return plan_of_rounds(self.complete, self.folder, rounds)

    def read_choice(self, number: int) -> tuple[bool, bool]:
        """Read choice `number` from its file; return (is it the last one, is it new)."""
        choice = read_round_choice(round_file(self.folder, number))
        is_new = number > len(self._choices)
        if is_new:
            self._choices.append(choice)
        return choice.is_last, is_new


def must_choose_rounds(
    plan: HostPlan, budget: Budget, *, used_seconds: float, missing_seconds: float, is_new: bool
) -> bool:
    """Return whether rounds must be chosen for a host, instead of measuring the complete `plan`.

    Rounds must be chosen if the budget is too short for the plan, or if the run has no limit of
    time, so that a wanted precision ends the run.

    `used_seconds` is the planned time of the measurements of the rounds so far that have a usable
    record. `missing_seconds` is the planned time of all measurements without a usable record.
    `is_new` says whether there is no usable record.

    Raises:
        UserError: the budget is too short to measure the node matrices once.
    """
    if budget.seconds is None:
        return True
    if used_seconds + missing_seconds <= budget.seconds:
        return False
    least = OVERHEAD_SECONDS_OF_ROUND + least_budget_seconds(plan.points, plan.host.topology)
    if budget.seconds < least and is_new:
        what = (
            f"a budget of {format_duration(budget.seconds)} is too short: measuring each cell of"
            f" the node matrices once takes about {format_duration(least)}, and would leave out"
            " drive sets, loads at the same time and replicates"
        )
        raise UserError(what, f"host {plan.host.name}", "give a longer budget")
    return True
