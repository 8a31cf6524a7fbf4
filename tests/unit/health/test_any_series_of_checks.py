"""Any file of the nightly checks, perhaps edited, is read or refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from chaosity.components.component_history import CHECKS_FILE, ComponentLog
from chaosity.health.check_history import read_check_history
from chaosity.health.check_series import (
    COLUMNS,
    SERIES_FILE,
    earlier_values,
    read_series,
    time_of_last_check_by_point,
)
from chaosity.health.judge_check_values import Expectation, MapValue
from strategies import change_text, changed, check_any_input, simulated_records, write_text

KEY = ("memory_bandwidth", "memory=node0+node0+triad")
CHECKS = ",".join(COLUMNS) + "".join(
    f"\n2026-11-2{night}T01:00:00.000Z,{experiment},{name},bandwidth_bytes_per_second,"
    f"{4e10 + night},1,4e10,0.01,0.05,no"
    for night in range(4)
    for experiment, name in (KEY, (KEY[0], "memory=node1+node1+triad"))
)
STATES = "".join(
    json.dumps(
        {
            "since": f"2026-11-{day}T01:00:00.000Z",
            "content": {
                "system": {"component": "system", "kernel_release": f"6.1.{day}"},
                "drive-0": {"component": "drive", "serial": f"S{day}", "size_bytes": 1},
            },
        }
    )
    + "\n"
    for day in ("01", "24")
)


def parse_series(text: str, folder: Path) -> None:
    write_text(folder / SERIES_FILE, text)
    rows = read_series(folder)
    time_of_last_check_by_point(rows)
    Expectation({KEY: MapValue(4e10, 3, 1e-4)}, earlier_values(rows, {}))
    if rows:
        point = {**simulated_records()[0]["point"], "experiment": KEY[0], "point": KEY[1]}
        write_text(folder / "points" / KEY[0] / f"{KEY[1]}.json", json.dumps(point))
        read_check_history(folder).sentences()


def parse_states(text: str, folder: Path) -> None:
    write_text(folder / CHECKS_FILE, text)
    log = ComponentLog(folder)
    log.changes_between("2026-11-01T01:00:00.000Z", "2026-11-30T01:00:00.000Z")
    list(log.replacements("drive-0"))


def test_any_series_is_read_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([CHECKS], change_text, 3), parse_series, tmp_path, 0.4)


def test_any_log_of_components_is_read_or_refused(tmp_path: Path) -> None:
    check_any_input(changed([STATES], change_text), parse_states, tmp_path, 0.2)
