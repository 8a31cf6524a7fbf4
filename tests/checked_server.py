"""A simulated server with its plan, and the points of a check of it, made once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from chaosity.health.check_series import append_check
from chaosity.health.choose_check_points import CheckPoint, choose_check_points
from chaosity.health.judge_check_values import CheckedValue
from chaosity.records.atomic_writes_and_record_files import format_utc
from simulated_tables import SimulatedHost, shipped_machine, shipped_topology


@cache
def server() -> SimulatedHost:
    """A server with eight nodes in two packages and 30 drives, without faults."""
    topology = shipped_topology("epyc_7413_nps4")
    return SimulatedHost.planned(shipped_machine("epyc_7413", topology), topology, [])


@cache
def check_points() -> tuple[CheckPoint, ...]:
    """The points of a check of the server, by its values without noise."""
    rows = server().true_table.performance_rows().rows
    # The first value of a point is the last that is entered.
    columns = (rows[name][::-1] for name in ("experiment", "point", "value"))
    medians = {
        (experiment, point): value for experiment, point, value in zip(*columns, strict=True)
    }
    return tuple(choose_check_points(server().points, medians, server().topology))


def time_of_night(night: int) -> str:
    """When the check of a night begins; night 0 is the first of January 2026."""
    return format_utc(datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(days=night))


def write_points(folder: Path, checks: Sequence[CheckPoint]) -> None:
    """Write the points of checks, as a plan has them."""
    for check in checks:
        path = folder / "points" / check.key[0] / f"{check.key[1]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(check.point))


def write_checks(
    folder: Path, checks: Sequence[CheckPoint], values: Sequence[Sequence[float]]
) -> None:
    """Write the checks of some nights; `values` has those of each night for each of `checks`."""
    write_points(folder, checks)
    for night in range(len(values[0])):
        own = [
            CheckedValue(check, (each[night],), each[0], 0.0)
            for check, each in zip(checks, values, strict=True)
        ]
        append_check(folder, time_of_night(night), own, [])
