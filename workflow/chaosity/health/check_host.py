"""Measure the points of a check of a host within a limited time, and judge the values."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pandas as pd

from chaosity.components import (
    Components,
    is_virtual_machine,
    make_component_documents,
    record_components_of_check,
)
from chaosity.errors import MeasurementError, UserError, malformed_as_user_error
from chaosity.health.check_history import (
    append_check,
    earlier_normal_values,
    read_series,
    recent_values,
    recent_values_of_equal_hosts,
    time_of_last_check_by_point,
)
from chaosity.health.check_points import (
    CheckedValue,
    CheckPoint,
    Expectation,
    MapValue,
    Suspect,
    choose_check_points,
    compare_with_equal_hosts,
    exit_status_of_values,
    split_by_available_time,
    suspected_parts,
)
from chaosity.hosts.measure_point_on_host import (
    DiscoveredHostDocument,
    HostLostOrChangedError,
    measure_replicate,
)
from chaosity.hosts.runner_command import (
    LOCAL,
    SIMULATED,
    SLURM,
    SSH,
    control_socket_folder,
    runner_command_line,
)
from chaosity.records.record_files import load_record, read_regular_file, utc_now_text
from chaosity.records.record_format import VALID, Point, PointKey, Record, point_key
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.rounds.machine_so_far import cells_of_earlier_runs
from chaosity.runner import lock_files
from chaosity.runner.devices_of_point import find_drive_path
from chaosity.runner.observed_state import read_processor_seconds
from chaosity.runner.point_measurement import spent_processor_seconds
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_from_records import read_points, status_and_values_of_record
from chaosity.text_templates import texts_of_yaml_file
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_model import Topology, read_topology

# Time of a check in seconds. Slurm kills a HealthCheckProgram after 60 s, so ten seconds remain for
# start, end and a slow measurement.
CHECK_SECONDS = 50.0
# Share of the time of a check in which each point is measured once. In the remaining time, slow
# values are measured again.
_TIME_SHARE_OF_FIRST_MEASUREMENTS = 0.85
# A host counts as busy if other programs use more than this share of its processors.
_MOST_BUSY_PROCESSORS_SHARE = 0.10
_SECONDS_TO_MEASURE_BUSY_SHARE = 1.0
# Longest time in seconds that a check waits for a host to describe itself. A description takes a
# second, unless a driver hangs, and a check has no time to wait for this driver.
_MOST_SECONDS_FOR_DESCRIPTION = 10.0
# Number of undisturbed measurements with which a slow value is judged.
REPLICATES_OF_SLOW_VALUE = 3
# Largest number of measurements of one point. If other programs disturbed too many of these
# measurements, a loss is only a warning.
MOST_REPLICATES = 6

MAP_REMEDY = "measure the host first, for example with make run; the check compares with this map"


class HostBusyError(UserError):
    """Another program uses the host, so a check would disturb it and give wrong values."""


@dataclass
class HostCheckResult:
    """The result of a check of a host."""

    host: str  # name of the host
    moment: str  # UTC time at which the check began
    seconds: float = 0.0  # duration of the check
    values: list[CheckedValue] = field(default_factory=list)  # all measured values
    # points that were not measured, because the time was too short
    left_for_next_check: list[CheckPoint] = field(default_factory=list)
    # Point -> the reason why it has no valid value.
    failed: dict[str, str] = field(default_factory=dict)
    # Components that were not checked because this user may not read them.
    unreadable: list[str] = field(default_factory=list)
    # Experiments without a value in the map -> the faults that the check does not see without them.
    missing_experiments: dict[str, str] = field(default_factory=dict)
    is_simulated: bool = False  # says whether the host is simulated, so that it does not exist

    @property
    def status(self) -> int:
        """Return the exit status of the check: 0 for fine, 1 for a warning, 2 for a fault."""
        return max(exit_status_of_values(self.values), 1 if self.failed else 0)

    @property
    def suspects(self) -> list[Suspect]:
        """Return the components that explain the slow values."""
        return suspected_parts(self.values)

    def gauges(self, end_seconds: float) -> Iterable[tuple[str, str, dict[str, str], float]]:
        """Yield the name, help text, labels and value of each gauge for Prometheus.

        `end_seconds` is the end of the check in seconds since 1970.
        """
        host = {"host": self.host}
        yield "status", "Result of the check: 0 fine, 1 warning, 2 fault.", host, self.status
        yield "end_timestamp_seconds", "End of the check in seconds since 1970.", host, end_seconds
        yield "duration_seconds", "Duration of the check in seconds.", host, self.seconds
        yield "failed_points", "Points without a valid value.", host, len(self.failed)
        for each in self.values:
            names = {"component": "->".join(each.check.parts), "metric": each.check.metric}
            place = {**host, **names, "point": "/".join(each.check.key)}
            loss = "Loss against the map: 0.1 is 10 % less bandwidth."
            yield "loss_ratio", loss, place, each.tonight.loss
            limit = "The smallest loss that chance does not explain."
            yield "clear_loss_ratio", limit, place, each.limit
            unit = "Measured value in the unit that ends the metric's name."
            yield "value", unit, place, each.value


def measure_and_judge(
    points: Sequence[CheckPoint],
    expectation: Expectation,
    measure: Callable[[CheckPoint, int], tuple[float | None, bool]],
    has_time: Callable[[CheckPoint], bool],
) -> list[CheckedValue]:
    """Measure each point once, and slow points again; return the values and the expected values.

    Disturbed measurements of a slow point count only if fewer than three measurements are
    undisturbed.

    Args:
        points: the points.
        expectation: the values to expect from the map and from earlier checks.
        measure: function that measures a replicate (1, 2, ...) of a point. The function returns the
            value (None if not valid), and whether other programs disturbed the measurement.
        has_time: function that returns whether there is time for another measurement of a point.
    """
    # Point -> its values; each value has a mark that says whether other programs disturbed it.
    taken: dict[PointKey, list[tuple[float, bool]]] = {}

    def judged_point(check: CheckPoint) -> CheckedValue:
        every = taken[check.key]
        quiet = [value for value, disturbed in every if not disturbed]
        enough = len(quiet) >= min(len(every), REPLICATES_OF_SLOW_VALUE)
        used = quiet if enough else [value for value, _ in every]
        return expectation.judge(check, used, len(taken), disturbed=not enough)

    def needs_replicate(value: CheckedValue, replicate: int) -> bool:
        # A point that was slow in its first measurement is measured three times, so its median has
        # three values.
        begun = len(value.values) == replicate - 1 > 1 and replicate <= REPLICATES_OF_SLOW_VALUE
        complete = len(value.values) >= REPLICATES_OF_SLOW_VALUE and not value.disturbed
        return begun or (value.tonight.is_clear and not complete)

    for replicate in range(1, MOST_REPLICATES + 1):
        for check in points:
            known = check.key in taken
            wanted = replicate == 1 or (known and needs_replicate(judged_point(check), replicate))
            if wanted and has_time(check):
                value, disturbed = measure(check, replicate)
                if value is not None:
                    taken.setdefault(check.key, []).append((value, disturbed))
    return [judged_point(check) for check in points if check.key in taken]


class HostCheck:
    """A check of the host whose map is in ``results/HOST/CONFIGURATION``.

    `with_equal_hosts` says whether values are also compared with recent checks of equal hosts.

    Raises:
        UserError: the folder has no map.
    """

    def __init__(self, folder: Path, *, with_equal_hosts: bool = True) -> None:
        self.begin, self.folder = time.monotonic(), folder
        host_file = folder.resolve().parent / "host.json"
        topology = read_topology(folder / "topology.json")
        table = folder / MEASUREMENTS_FILE
        if topology is None or not table.exists() or not host_file.exists():
            raise UserError("the folder has no map of a host", str(folder), MAP_REMEDY)
        with malformed_as_user_error("the file is not a description of a host", str(host_file)):
            self.host: DiscoveredHostDocument = json.loads(read_regular_file(host_file))
            self.transport = self.host["transport"]["kind"]
        points = _points_of_plan(folder)
        measured = Measurements.read(table)
        plan = set(map(point_key, points))
        known = _values_in_map(cells_of_earlier_runs(measured, plan, str(table)))
        self.series = read_series(folder)
        rows = measured.rows.dropna(subset="measured_at")
        last = rows.groupby(["experiment", "point"])["measured_at"].max().items()
        mapped_at = {(str(key[0]), str(key[1])): str(time) for key, time in last}  # type: ignore[index] # narrow stub
        self.expectation = Expectation(
            known,
            earlier_normal_values(self.series, mapped_at),
            in_virtual_machine=is_virtual_machine(folder),
        )
        moment = utc_now_text()
        self.recent = recent_values(self.series, moment, mapped_at)
        self.equals = recent_values_of_equal_hosts(folder, moment) if with_equal_hosts else []
        hosts = Counter(chain(time_of_last_check_by_point(self.series), *self.equals))
        medians = {key: value.median for key, value in known.items()}
        chosen = choose_check_points(points, medians, topology, hosts)
        # A check of a remote host logs in as the user who measured the map, and this user could
        # read all drives.
        here = self.transport in (LOCAL, SLURM)
        self.points = [check for check in chosen if not here or may_read_drives(check)]
        self.unreadable = sorted({check.parts[0] for check in chosen if check not in self.points})
        self.missing_experiments = experiments_missing_in_map(chosen, topology)
        # The planned time and the spent time of all measurements so far.
        self.planned = self.spent = 0.0
        self.records: list[Record] = []
        if not self.points:
            what = "the map has no values that a check can repeat"
            names = ", ".join(self.missing_experiments)
            remedy = f"add {names} to the experiments of the config and measure the host again"
            raise UserError(what, str(folder), remedy if names else MAP_REMEDY)

    def run(
        self,
        seconds: float = CHECK_SECONDS,
        progress: Callable[[str], None] = lambda _: None,
        *,
        ignore_load: bool = False,
    ) -> HostCheckResult:
        """Measure the points, judge the values, store them, and return the result of the check.

        Args:
            seconds: time of the check, which begins when the map is read.
            progress: function that is called with the name of each point before its measurement.
            ignore_load: says whether to check the host even if other programs use it.

        Raises:
            HostBusyError: somebody uses the host.
            UserError: no measurement is valid, or the host is lost.
        """
        if self.transport == SSH:
            # Discovery made the folder for sockets in /tmp, but a reboot can have emptied /tmp
            # since then.
            control_socket_folder()
        if self.transport in (LOCAL, SLURM):  # the checked host is this machine
            self._refuse_another_machine()
            if not ignore_load:
                refuse_busy_host(lock_files.lock_file_path(lock_files.MEASURING))
        is_simulated = self.transport == SIMULATED
        result = HostCheckResult(self.host["host"], utc_now_text(), is_simulated=is_simulated)
        result.unreadable = self.unreadable
        result.missing_experiments = self.missing_experiments
        if components := _present_components(self.host, self.folder):
            record_components_of_check(self.folder, result.moment, components)
        checked = time_of_last_check_by_point(self.series)
        chosen, result.left_for_next_check = split_by_available_time(
            self.points, checked, _TIME_SHARE_OF_FIRST_MEASUREMENTS * seconds
        )
        number = len({row["time"] for row in self.series}) * MOST_REPLICATES

        def has_time(check: CheckPoint) -> bool:
            # On a busy host, measurements take longer than planned.
            slowness = max(1.0, self.spent / self.planned) if self.planned else 1.0
            return self._seconds + check.seconds * slowness <= seconds

        def measure_check_point(check: CheckPoint, replicate: int) -> tuple[float | None, bool]:
            progress("/".join(check.key))
            record = self._measure(check, number + replicate)
            value, reason, disturbed = _value_of_record(record, check)
            if value is None:
                result.failed["/".join(check.key)] = reason or "the record has no value"
            return value, disturbed

        values = measure_and_judge(chosen, self.expectation, measure_check_point, has_time)
        result.values = compare_with_equal_hosts(values, self.recent, self.equals)
        if not values and not result.failed:
            what = "the time of the check is too short for a measurement"
            raise UserError(what, str(self.folder), "allow more time with --seconds")
        if not values:
            name, reason = next(iter(result.failed.items()))
            what = f"no measurement of the check is valid: {name}: {reason}"
            raise UserError(what, str(self.folder), "remove this cause and check again")
        done = {"/".join(value.check.key) for value in values} | set(result.failed)
        result.left_for_next_check += [check for check in chosen if "/".join(check.key) not in done]
        append_check(self.folder, result.moment, result.values, self.records)
        result.seconds = self._seconds
        return result

    @property
    def _seconds(self) -> float:
        """Return the duration of the check so far; for a simulated host, the planned duration."""
        is_simulated = self.transport == SIMULATED
        return self.planned if is_simulated else time.monotonic() - self.begin

    def _refuse_another_machine(self) -> None:
        """Raise a UserError if the map was measured on another machine.

        The map of a Slurm node can be read on all nodes. A reboot since the map was measured is
        accepted, because the runner verifies nodes and drives.
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
        """Measure a point, keep its record and return it; raise a UserError if the host is lost."""
        began = time.monotonic()
        # The points of a check have no random order, so all replicates have the position 0. The
        # record gets only one position, because replicates are counted over all nights.
        point: Point = {**check.point, "orders": [0] * replicate}
        try:
            # The difference also includes the time of earlier points.
            before = spent_processor_seconds()
            results = self.folder.resolve().parent
            record = measure_replicate(self.host, point, replicate, results, before)
        except (HostLostOrChangedError, ValueError) as error:
            raise UserError(str(error), f"host {self.host['host']}") from None
        self.planned += check.seconds
        self.spent += time.monotonic() - began
        self.records.append({**record, "point": {**record["point"], "orders": [0]}})
        return self.records[-1]


def _present_components(host: DiscoveredHostDocument, folder: Path) -> Components | None:
    """Return the present components of a host; None if the host does not answer in time."""
    transport = host["transport"]
    with suppress(OSError, subprocess.SubprocessError, UserError):
        if transport["kind"] == SIMULATED:
            topology = read_topology(folder / "topology.json")
            return make_component_documents(topology) if topology else None
        if transport["kind"] == SLURM:  # with Slurm, this program runs on the node that is checked
            transport = {**transport, "way": []}
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run(
                runner_command_line(transport, "--describe"),
                input=b'{"needs": []}',
                stdout=file,
                stderr=subprocess.DEVNULL,
                timeout=_MOST_SECONDS_FOR_DESCRIPTION,
                check=True,
            )
            return make_component_documents(discover_topology(file.name))
    return None


def _points_of_plan(folder: Path) -> list[Point]:
    """Return the points of ``results/HOST/CONFIGURATION``, with experiments in the plan's order."""
    plan = folder / "plan.json"
    with malformed_as_user_error("the file is not the plan.json of a host", str(plan), MAP_REMEDY):
        names = [*json.loads(plan.read_text(encoding="utf-8"))["experiments"]]
    places = {name: place for place, name in enumerate(names)}
    points = read_points(folder / "points")
    return sorted(points, key=lambda point: places.get(point["experiment"], len(names)))


def experiments_missing_in_map(chosen: Iterable[CheckPoint], topology: Topology) -> dict[str, str]:
    """Return experiment -> the faults that a check does not see, because the map lacks its values.

    `chosen` are all points that a check of the map can repeat. On a host without NVMe drives, a
    check needs no value of drives.
    """
    categories = {check.load["category"] for check in chosen}
    return {
        each["experiment"]: each["unseen"]
        for category, each in texts_of_yaml_file("check")["experiments"].items()
        if category not in categories and (topology.drives or not each["of_drives"])
    }


def may_read_drives(check: CheckPoint) -> bool:
    """Return whether this user may read the drives of a point; true for a missing drive.

    The measurement will report that the drive is missing.
    """
    for drive in check.load["target"]["drives"]:
        with suppress(MeasurementError):
            device = find_drive_path(drive)
            if device.exists() and not os.access(device, os.R_OK, effective_ids=True):
                return False
    return True


def _values_in_map(cells: pd.DataFrame) -> dict[PointKey, MapValue]:
    """Return experiment and point -> the value of the point's first metric in the map."""
    found: dict[PointKey, MapValue] = {}
    for row in cells.drop_duplicates(["experiment", "point"]).to_dict("records"):
        value = MapValue(float(row["median"]), int(row["n"]), float(row["variance"]))
        if value.median > 0.0 and math.isfinite(value.variance):
            found[row["experiment"], row["point"]] = value
    return found


def _value_of_record(record: Record, check: CheckPoint) -> tuple[float | None, str | None, bool]:
    """Return the value of a record or None, the reason for None, and whether it was disturbed."""
    outcome = status_and_values_of_record(record)
    if outcome.status != VALID:
        return None, outcome.reason, False
    value, reason = outcome.readings[check.load["name"]][check.metric]
    number = float(value) if isinstance(value, int | float) and value > 0.0 else None
    return number, reason, "disturbed" in (outcome.remarks or "")


def refuse_busy_host(lock: Path, seconds: float = _SECONDS_TO_MEASURE_BUSY_SHARE) -> None:
    """Refuse the check of this machine if a measurement runs here or other programs use it.

    `lock` is the lock file of measurements. The function observes the use of the processors for
    `seconds` seconds.

    Raises:
        HostBusyError: somebody uses the host.
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
    if busy > _MOST_BUSY_PROCESSORS_SHARE * total:
        raise HostBusyError(
            f"other programs use {100 * busy / total:.0f} % of the processors of this host",
            remedy="check it later",
        )
