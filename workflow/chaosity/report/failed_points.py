"""List the points that failed, with the commands that measure them again."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from chaosity.place_names import place_words
from chaosity.records.atomic_writes_and_record_files import record_file
from chaosity.report.run import Run
from chaosity.store.measurements import POINT

# Failed points on the page; measurements.parquet has all.
_MOST_FAILED = 200


@dataclass(frozen=True)
class FailedPoint:
    """A failed point: its reason, and its load -> the command line of the first failed replicate.

    `repeat` is the command that measures it again.
    """

    experiment: str
    loads: tuple[str, ...]  # each load with its places in words
    replicates: str
    reason: str
    commands: Mapping[str, str]
    repeat: str


def load_words(row: Mapping[Hashable, Any]) -> str:
    """Return a load with its places: "memory (triad), from node 0 to node 1"."""
    kernel = f" ({row['kernel']})" if isinstance(row.get("kernel"), str) else ""
    return (
        f"{row['load']}{kernel}, from {place_words(row['initiator'])} to "
        f"{place_words(row['target'])}"
    )


@dataclass(frozen=True)
class FailedPointsSection:
    """The first failed points, and the number of further ones."""

    points: tuple[FailedPoint, ...]
    omitted: int


def failed_points_section(run: Run) -> FailedPointsSection | None:
    """Return the failed points; None if no point failed."""
    rows = run.measurements.rows
    by_replicate = {(each.experiment, each.point, each.replicate): each for each in run.summaries}
    results = str(run.config.get("results", "results"))
    titles = {each["experiment"]: each.get("title", "") for each in run.experiments}
    points = []
    for key, group in rows[rows["status"] == "failed"].groupby(list(POINT), sort=False):
        host, configuration, experiment, point = map(str, key)
        replicates = sorted({int(number) for number in group["replicate"]})
        summary = by_replicate.get((experiment, point, replicates[0]))
        reasons = dict.fromkeys(str(reason) for reason in group["reason"] if reason is not None)
        file = record_file(experiment, point, replicates[0])
        points.append(
            FailedPoint(
                experiment=titles.get(experiment) or experiment,
                loads=tuple(dict.fromkeys(map(load_words, group.to_dict("records")))),
                replicates=", ".join(map(str, replicates)),
                reason="; ".join(reasons) or "no reason recorded",
                commands=summary.commands if summary else {},
                repeat=shlex.join(["snakemake", f"{results}/{host}/{configuration}/{file}"]),
            )
        )
    omitted = max(0, len(points) - _MOST_FAILED)
    return FailedPointsSection(tuple(points[:_MOST_FAILED]), omitted) if points else None
