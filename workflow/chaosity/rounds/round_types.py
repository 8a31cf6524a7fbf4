"""The types of a round and of a budget, and the files of rounds.

Every start of the workflow imports this module, so this module imports no library of the analysis.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from chaosity.errors import malformed_as_user_error
from chaosity.records.record_files import read_regular_file, write_atomically
from chaosity.records.record_format import Point

# Folder with a file for each choice of rounds (1.json, 2.json, ...), and the name of the one file
# of all rounds that versions before 2026-11-27 wrote.
ROUNDS_FOLDER, _FORMER_FILE = "rounds", "rounds.json"
PointKey = tuple[str, str]  # experiment and name of a point

# Seconds that a measurement needs beyond the time in its record: start of a process, and
# Snakemake's work. The median of 165 records on two cores was 0.07 s.
OVERHEAD_SECONDS = 0.1
# Seconds that a round needs beyond its measurements, on two cores: start of the workflow, making
# the table, choice of the next round.
ROUND_SECONDS = 5.0


def point_key(point: Point) -> PointKey:
    """Return the experiment and the name of a point."""
    return point["experiment"], point["point"]


@dataclass(frozen=True)
class Round:
    """Measurements that are planned together."""

    reason: str  # why these measurements, as a sentence
    # (experiment, point) in the order of measurement; the n-th occurrence of a point in all rounds
    # is its replicate n.
    measurements: tuple[PointKey, ...]
    audit: tuple[PointKey, ...] = ()  # random drive sets that audit predictions
    # Whether the records are older than the first round, so that they use no time of the budget.
    earlier: bool = False


@dataclass(frozen=True)
class Budget:
    """When a run ends: after a time, or when all intervals are narrow enough."""

    seconds: float | None = None  # time of the measurements; None without a limit
    # Half width of the intervals as a share of the median; None without a target.
    precision: float | None = None


class RoundStep(NamedTuple):
    """The result of a choice of the next round, which is the content of ``rounds/NUMBER.json``."""

    rounds: tuple[Round, ...]  # new rounds; one can be of records of runs without a budget
    is_last: bool  # whether no round was chosen


def rounds_of_steps(steps: Iterable[RoundStep]) -> list[Round]:
    """Return the rounds of several choices, in the order of the choices."""
    return [each for step in steps for each in step.rounds]


def round_file(folder: Path, number: int) -> Path:
    """Return the path of choice `number` in the results of a host's configuration."""
    return folder / ROUNDS_FOLDER / f"{number}.json"


def read_round_step(path: Path) -> RoundStep:
    """Read a file ``rounds/NUMBER.json``, which a choice of the next round wrote.

    Raises:
        UserError: the file has no rounds.
    """
    remedy = "delete the folder of this file: the next run uses the existing records and goes on"
    with malformed_as_user_error("the file has no rounds", str(path), remedy):
        document = json.loads(read_regular_file(path))
        return RoundStep(tuple(map(_round, document["rounds"])), bool(document["is_last"]))


def read_round_steps(folder: Path) -> list[RoundStep]:
    """Return all choices of rounds so far for a host in a configuration, in their order.

    Raises:
        UserError: a file has no rounds.
    """
    steps: list[RoundStep] = []
    while (path := round_file(folder, 1 + len(steps))).exists():
        steps.append(read_round_step(path))
    if not steps and (old := folder / _FORMER_FILE).exists():
        with malformed_as_user_error("the file has no rounds", str(old), "delete it"):
            rounds = tuple(map(_round, json.loads(read_regular_file(old))))
        return [RoundStep(rounds, is_last=False)]
    return steps


def _round(each: Any) -> Round:
    def keys(pairs: Any) -> tuple[PointKey, ...]:
        return tuple((str(experiment), str(point)) for experiment, point in pairs)

    measurements, audit = keys(each["measurements"]), keys(each["audit"])
    return Round(str(each["reason"]), measurements, audit, bool(each["earlier"]))


def write_round_step(path: Path, step: RoundStep) -> None:
    """Write a choice of the next round into its file."""
    content = {"rounds": [asdict(each) for each in step.rounds], "is_last": step.is_last}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(content) + "\n")


def rewrite_rounds(folder: Path, rounds: Sequence[Round]) -> None:
    """Replace all files of rounds of a host's configuration by one file with these rounds."""
    shutil.rmtree(folder / ROUNDS_FOLDER, ignore_errors=True)
    (folder / _FORMER_FILE).unlink(missing_ok=True)
    if rounds:
        write_round_step(round_file(folder, 1), RoundStep(tuple(rounds), is_last=False))
