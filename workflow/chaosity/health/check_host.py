"""Measure the points of a check on a host within its time, and judge them."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from chaosity.components.component_files import is_virtual_machine
from chaosity.errors import MeasurementError, UserError, malformed_as_user_error
from chaosity.health.check_series import append_check, earlier_values, last_checks, read_series
from chaosity.health.choose_check_points import (
    CheckPoint,
    PointKey,
    choose_check_points,
    fit_into_time,
)
from chaosity.health.components_of_checks import keep_components, present_components
from chaosity.health.equal_hosts import (
    compare_with_equal_hosts,
    popularity,
    recent_values,
    recent_values_of_equal_hosts,
)
from chaosity.health.judge_check_values import (
    CheckedValue,
    Expectation,
    MapValue,
    Suspect,
    status_of_values,
    suspected_parts,
)
from chaosity.health.measure_check_points import MOST_REPLICATES, measure_and_judge
from chaosity.records.atomic_writes_and_record_files import (
    load_record,
    read_regular_file,
    utc_now_text,
)
from chaosity.records.point_types import Point
from chaosity.records.record_types_and_verdict import VALID, Record
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.rounds.known_before import known_cells
from chaosity.runner import lock_files
from chaosity.runner.find_and_protect_drives import find_device
from chaosity.runner.host_state import read_processor_seconds
from chaosity.runner.point_measurement import spent_processor_seconds
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import read_points, status_and_values_of_record
from chaosity.topology.topology_json import read_topology
from chaosity.transport.measure_point_on_host import (
    DiscoveredHostDocument,
    HostLostOrChangedError,
    measure_replicate,
)
from chaosity.transport.runner_command import (
    LOCAL,
    SIMULATED,
    SLURM,
    SSH,
    control_socket_folder,
)

# Slurm ends a HealthCheckProgram after 60 s. Ten are left for start, end and a slow measurement.
CHECK_SECONDS = 50.0
# Share of the time that the first measurements may take; the rest is for repeating slow values.
_FIRST_SHARE = 0.85
# A host is busy if other programs use more than this share of its processors.
_MOST_BUSY_SHARE = 0.10
_BUSY_LOOK_SECONDS = 1.0

MAP_REMEDY = "measure the host first, for example with make run; the check compares with this map"


class HostBusyError(UserError):
    """Somebody works on the host, so a check would disturb them and tell nothing."""


@dataclass
class CheckResult:
    """The result of a check."""

    host: str  # name of the host
    moment: str  # when the check began, in UTC
    seconds: float = 0.0  # how long it took
    values: list[CheckedValue] = field(default_factory=list)  # all values
    left: list[CheckPoint] = field(default_factory=list)  # points that did not fit into the time
    failed: dict[str, str] = field(default_factory=dict)  # point -> why it has no valid value
    # Components that this user may not read, and which were not checked.
    unreadable: list[str] = field(default_factory=list)
    is_simulated: bool = False  # whether the host does not exist

    @property
    def status(self) -> int:
        """Return 0 for fine, 1 for a warning, 2 for a fault."""
        return max(status_of_values(self.values), 1 if self.failed else 0)

    @property
    def suspects(self) -> list[Suspect]:
        """Return the components that explain the slow values."""
        return suspected_parts(self.values)


class HostCheck:
    """A check of one host.

    Args:
        folder: ``results/HOST/CONFIGURATION`` with the map: records, points and topology.
        with_equal_hosts: whether to compare also with the recent checks of equal hosts.

    Raises:
        UserError: the folder has no map.
    """

    def __init__(self, folder: Path, *, with_equal_hosts: bool = True) -> None:
        self.begin = time.monotonic()
        self.folder = folder
        host_file = folder.resolve().parent / "host.json"
        topology = read_topology(folder / "topology.json")
        table = folder / MEASUREMENTS_FILE
        if topology is None or not table.exists() or not host_file.exists():
            raise UserError("the folder has no map of a host", str(folder), MAP_REMEDY)
        with malformed_as_user_error("the file is no description of a host", str(host_file)):
            self.host: DiscoveredHostDocument = json.loads(read_regular_file(host_file))
            self.transport = self.host["transport"]["kind"]
        points = _points_of_plan(folder)
        measured = Measurements.read(table)
        plan = {(point["experiment"], point["point"]) for point in points}
        cells = known_cells(measured, plan, str(table))
        self.series = read_series(folder)
        rows = measured.rows.dropna(subset="measured_at").sort_values("measured_at")
        times = zip(rows["experiment"], rows["point"], rows["measured_at"], strict=True)
        mapped_at = {(experiment, point): str(at) for experiment, point, at in times}
        earlier = earlier_values(self.series, mapped_at)
        known = _map_values(cells)
        self.expectation = Expectation(
            known, earlier, in_virtual_machine=is_virtual_machine(folder)
        )
        medians = {key: value.median for key, value in known.items()}
        moment = utc_now_text()
        self.recent = recent_values(self.series, moment, mapped_at)
        self.equals = recent_values_of_equal_hosts(folder, moment) if with_equal_hosts else []
        chosen = choose_check_points(
            points, medians, topology, popularity([*last_checks(self.series)], self.equals)
        )
        # On a remote host, the user is the one who measured the map.
        here = self.transport in (LOCAL, SLURM)
        self.points = [check for check in chosen if not here or may_read_drives(check)]
        self.unreadable = sorted({check.parts[0] for check in chosen if check not in self.points})
        if not self.points:
            raise UserError(
                "the map has no values that a check can repeat", str(folder), MAP_REMEDY
            )

    def run(
        self,
        seconds: float = CHECK_SECONDS,
        progress: Callable[[str], None] = lambda _: None,
        *,
        ignore_load: bool = False,
    ) -> CheckResult:
        """Measure, judge, append the values to the series, and return the result.

        Args:
            seconds: time of the check, from reading the map on.
            progress: gets the point before each measurement.
            ignore_load: check the host also while other programs use it.

        Raises:
            HostBusyError: somebody works on the host.
            UserError: no measurement is valid, or the host is lost.
        """
        if self.transport == SSH:
            control_socket_folder()  # discovery made it; the last boot can have emptied /tmp
        if self.transport in (LOCAL, SLURM):  # measured here
            self._refuse_another_machine()
            if not ignore_load:
                refuse_busy_host(lock_files.lock_file(lock_files.MEASURING))
        result = CheckResult(self.host["host"], utc_now_text())
        result.is_simulated = self.transport == SIMULATED
        result.unreadable = self.unreadable
        records: list[Record] = []
        if components := present_components(self.host, self.folder):
            keep_components(self.folder, result.moment, components)
        chosen, result.left = fit_into_time(
            self.points, last_checks(self.series), _FIRST_SHARE * seconds
        )
        number = len({row["time"] for row in self.series}) * MOST_REPLICATES
        planned = taken = 0.0  # time of the measurements so far

        def spent() -> float:
            # The measurements of a simulated host take no time, so the plan's counts.
            return planned if result.is_simulated else time.monotonic() - self.begin

        def has_time(check: CheckPoint) -> bool:
            # On a busy host, measurements take longer than planned.
            slowness = max(1.0, taken / planned) if planned else 1.0
            return spent() + check.seconds * slowness <= seconds

        def measure(check: CheckPoint, replicate: int) -> tuple[float | None, bool]:
            nonlocal planned, taken
            progress("/".join(check.key))
            began = time.monotonic()
            record = self._measure(check, number + replicate)
            records.append(record)
            planned, taken = planned + check.seconds, taken + time.monotonic() - began
            value, reason, disturbed = _value_of_record(record, check)
            if value is None:
                result.failed["/".join(check.key)] = reason or "it has no value"
            return value, disturbed

        result.values = measure_and_judge(chosen, self.expectation, measure, has_time)
        result.values = compare_with_equal_hosts(result.values, self.recent, self.equals)
        if not result.values:
            first = next(iter(result.failed.values()), "the time is too short")
            raise UserError(f"no measurement of the check is valid: {first}", str(self.folder))
        done = {value.check.key for value in result.values} | set(result.failed)
        result.left += [check for check in chosen if not {check.key, "/".join(check.key)} & done]
        append_check(self.folder, result.moment, result.values, records)
        result.seconds = spent()
        return result

    def _refuse_another_machine(self) -> None:
        """Refuse the check of this machine against the map of another one.

        The map of a Slurm node can be read on all nodes. A reboot since the map is no reason: the
        runner verifies nodes and drives.

        Raises:
            UserError: the map was measured on another machine.
        """
        for path in self.folder.glob("*/*/rep*.json"):
            with suppress(ValueError):
                measured_on, here = load_record(path)["measured_on"], socket.gethostname()
                if measured_on != here:
                    raise UserError(
                        f"the map was measured on {measured_on}, and this machine is {here}",
                        str(self.folder),
                        f"run the command on {measured_on}",
                    )
                return

    def _measure(self, check: CheckPoint, replicate: int) -> Record:
        """Return the record of a measurement.

        Raises:
            UserError: the host does not answer.
        """
        # A check has no random order, so all its replicates are at position 0. The record keeps one
        # position: replicates are counted over all nights.
        point: Point = {**check.point, "orders": [0] * replicate}
        try:
            results = self.folder.resolve().parent
            spent = spent_processor_seconds()  # by earlier points, too
            record = measure_replicate(self.host, point, replicate, results, spent)
            return {**record, "point": {**record["point"], "orders": [0]}}
        except (HostLostOrChangedError, ValueError) as error:
            raise UserError(str(error), f"host {self.host['host']}") from None


def _points_of_plan(folder: Path) -> list[Point]:
    """Return the points of ``results/HOST/CONFIGURATION``, the experiments in the plan's order.

    Raises:
        UserError: a file is damaged.
    """
    plan = folder / "plan.json"
    with malformed_as_user_error("the file is not the plan.json of a host", str(plan), MAP_REMEDY):
        names = [*json.loads(plan.read_text(encoding="utf-8"))["experiments"]]
    places = {name: place for place, name in enumerate(names)}
    points = read_points(folder / "points")
    return sorted(points, key=lambda point: places.get(point["experiment"], len(names)))


def may_read_drives(check: CheckPoint) -> bool:
    """Return whether this user may read the drives of a point; a missing drive counts as readable.

    The measurement of a missing drive tells that it is missing.
    """
    for drive in check.load["target"]["drives"]:
        with suppress(MeasurementError):
            device = find_device(drive)
            if device.exists() and not os.access(device, os.R_OK, effective_ids=True):
                return False
    return True


def _map_values(cells: pd.DataFrame) -> dict[PointKey, MapValue]:
    """Return experiment and point -> what the map says about its first metric."""
    found: dict[PointKey, MapValue] = {}
    for row in cells.drop_duplicates(["experiment", "point"]).to_dict("records"):
        value = MapValue(float(row["median"]), int(row["n"]), float(row["variance"]))
        if value.median > 0.0 and math.isfinite(value.variance):
            found[row["experiment"], row["point"]] = value
    return found


def _value_of_record(record: Record, check: CheckPoint) -> tuple[float | None, str | None, bool]:
    """Return the value of a record, the reason for none, and whether the host was disturbed."""
    outcome = status_and_values_of_record(record)
    if outcome.status != VALID:
        return None, outcome.reason, False
    value, reason = outcome.readings[check.load["name"]][check.metric]
    number = float(value) if isinstance(value, int | float) and value > 0.0 else None
    return number, reason, "disturbed" in (outcome.remarks or "")


def refuse_busy_host(lock: Path, seconds: float = _BUSY_LOOK_SECONDS) -> None:
    """Refuse the check of this machine if a measurement runs, or other programs use it.

    Args:
        lock: the lock of measurements.
        seconds: for how long to look at the processors.

    Raises:
        HostBusyError: somebody works on the host.
    """
    handle = lock_files.open_lock_file(lock)
    try:
        if not lock_files.try_to_lock(handle):
            holders = lock_files.describe_holders(handle)
            raise HostBusyError(f"{holders} measures on this host", remedy="check it later")
    finally:
        os.close(handle)
    before = read_processor_seconds()
    time.sleep(seconds)
    spent = {kind: after - before[kind] for kind, after in read_processor_seconds().items()}
    total = sum(spent.values())
    busy = total - spent["idle"] - spent["iowait"]
    if busy > _MOST_BUSY_SHARE * total:
        raise HostBusyError(
            f"other programs use {100 * busy / total:.0f} % of the processors of this host",
            remedy="check it later",
        )
