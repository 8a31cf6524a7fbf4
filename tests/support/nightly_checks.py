"""The points of the checks of a simulated server, and the times of these checks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from chaosity.health.check_points import CheckPoint, MapValue, choose_check_points
from chaosity.records.record_files import format_utc
from machines import server


@cache
def check_points() -> tuple[CheckPoint, ...]:
    """The points of a check of the server, by its values without noise."""
    host = server().without_drives_of_several_nodes()
    rows = host.true_table.performance_rows().rows
    # The first value of a point is the last that is entered.
    columns = (rows[name][::-1] for name in ("experiment", "point", "value"))
    medians = {
        (experiment, point): value for experiment, point, value in zip(*columns, strict=True)
    }
    return tuple(choose_check_points(host.points, medians, host.topology))


@cache
def known() -> dict[tuple[str, str], MapValue]:
    """The value of each point in the map."""
    return {each.key: MapValue(100.0, 3, 1e-4) for each in check_points()}


def time_of_night(night: int) -> str:
    """Return when the check of a night begins; night 0 is the first of January 2026."""
    return format_utc(datetime(2026, 1, 1, 1, tzinfo=UTC) + timedelta(days=night))


def write_points(folder: Path, checks: Iterable[CheckPoint]) -> None:
    """Write the points of checks, as a plan has them."""
    for check in checks:
        path = folder / "points" / check.key[0] / f"{check.key[1]}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(check.point))
