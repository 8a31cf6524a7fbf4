"""A round and a budget, and the files of rounds; without the libraries of the analysis.

Every start of the workflow imports this module, so it must be quick.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from chaosity.errors import malformed_as_user_error
from chaosity.records.atomic_writes_and_record_files import read_regular_file, write_atomically
from chaosity.records.point_types import Point

ROUNDS_FILE = "rounds.json"
PointKey = tuple[str, str]  # experiment and name of a point

# Time of a measurement beyond its record: the start of a process and Snakemake's part. 0.07 s in
# the median of 165 records on two cores.
OVERHEAD_SECONDS = 0.1
# Time of a round beyond its measurements, on two cores: start of the workflow, table, choice.
ROUND_SECONDS = 5.0


def point_key(point: Point) -> PointKey:
    """Return experiment and name of a point."""
    return point["experiment"], point["point"]


@dataclass(frozen=True)
class Round:
    """Measurements that are planned together."""

    reason: str  # why these measurements, as a sentence
    # (experiment, point) in the order of measurement; the n-th occurrence of a point in all rounds
    # is its replicate n.
    measurements: tuple[PointKey, ...]
    audit: tuple[PointKey, ...] = ()  # drive sets among them that were chosen at random
    # Whether the records were there before the first round, so that they cost no time.
    earlier: bool = False


@dataclass(frozen=True)
class Budget:
    """When a run ends: after so many seconds, or when all intervals are narrow enough."""

    seconds: float | None = None  # time of the measurements; None without a limit
    # Half width of the intervals as a share of the median; None without a target.
    precision: float | None = None


def read_rounds(folder: Path) -> list[Round]:
    """Return the rounds so far of a host's configuration, which has this folder of results.

    Raises:
        UserError: the file has no rounds.
    """
    path = folder / ROUNDS_FILE
    if not path.exists():
        return []

    def keys(pairs: object) -> tuple[PointKey, ...]:
        return tuple((str(experiment), str(point)) for experiment, point in cast(Any, pairs))

    remedy = "delete it: the next run counts the records that are there, and continues in rounds"
    with malformed_as_user_error("the file has no rounds", str(path), remedy):
        return [
            Round(
                str(each["reason"]),
                keys(each["measurements"]),
                keys(each["audit"]),
                bool(each["earlier"]),
            )
            for each in json.loads(read_regular_file(path))
        ]


def write_rounds(folder: Path, rounds: Sequence[Round]) -> None:
    """Write the rounds so far; each is only appended, so earlier rounds stay as they are."""
    write_atomically(folder / ROUNDS_FILE, json.dumps([asdict(each) for each in rounds]) + "\n")
