"""The hosts of a workflow run, their plans, and the paths of their records.

Snakemake reads the workflow in the process that the user starts, and again in jobs that run
elsewhere. Only the first process discovers hosts and takes locks; jobs read the files that it
wrote.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from chaosity.campaign.budgeted_plan import has_budget, plan_of_rounds
from chaosity.campaign.damaged_files import (
    set_damaged_derived_files_aside,
    set_damaged_records_aside,
)
from chaosity.campaign.kept_page_weights import HostPageWeights
from chaosity.components.component_history import (
    ComponentState,
    components_changed_since,
    notes_on_missing_components,
    read_component_histories,
)
from chaosity.design.host_plan import HostPlan, PlannedHost, plan_host
from chaosity.documents.check_config import check_config
from chaosity.errors import UserError, file_system_error, printable_line
from chaosity.hosts.host_discovery import discover_hosts, read_discovered_hosts
from chaosity.records.atomic_writes_and_record_files import (
    file_time,
    record_file,
    replicate_numbers,
    time_in_file_name,
)
from chaosity.records.point_types import Point
from chaosity.result_folders import (
    MEASUREMENTS_FILE,
    PREDICTIONS_FILE,
    SUMMARY_FILE,
    UNMEASURED_FILE,
)
from chaosity.simulation.simulated_records import open_machine_model
from chaosity.simulation.true_values import check_programs_can_be_simulated
from chaosity.topology.topology_sources import LIVE
from chaosity.transport.own_programs import put_own_programs_first_in_path

T = TypeVar("T")
# The outputs of the rules after the measurements, below ``results/<host>/<configuration>``.
_RESULT_FILES = (
    *(MEASUREMENTS_FILE, "history.parquet", "findings.json", "topology.svg", "report.html"),
    *(SUMMARY_FILE, "summary.txt", "figures", "exports/notes.txt"),
)


class MeasurementWildcards(Protocol):
    """The wildcards of Snakemake's rule `measure`."""

    host: str
    configuration: str
    experiment: str
    point: str
    replicate: str


def call_or_exit_on_user_error(make: Callable[[], T]) -> T:
    """Return the result of `make`; for errors that a user can fix, print them and exit with 2."""
    try:
        return make()
    except (UserError, OSError) as error:
        sentence = file_system_error(error) if isinstance(error, OSError) else error
        if sentence is None:
            raise
        print(f"chaosity: {sentence}", file=sys.stderr)
        sys.exit(2)


def measuring_resource_name(host: str) -> str:
    """Return the name of the Snakemake resource that allows one measurement at a time on a host."""
    return "measuring_" + re.sub(r"\W", "_", host)


class Campaign:
    """The hosts, plans and records of one run.

    Args:
        config: the merged config from Snakemake.
        root: the repository.
        discover: whether this process discovers hosts; if not, it reads the last discovery.
        with_hosts: False if Snakemake only reads the rules, for `snakemake --lint`.

    Raises:
        UserError: config, inventory or a host is wrong.
    """

    # The campaign of this process, for the progress messages: Snakemake creates their plugin.
    current: ClassVar[Campaign | None] = None

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        root: Path,
        discover: bool = True,
        with_hosts: bool = True,
    ) -> None:
        self.config = check_config(config)
        self.results = Path(self.config["results"])
        put_own_programs_first_in_path(root)
        if discover:
            found, skipped = discover_hosts(self.config)
            for error in skipped:
                print(f"chaosity: {error} This run skips the host.", file=sys.stderr)
        else:
            found = read_discovered_hosts(self.config) if with_hosts else []
        self.plans: dict[str, HostPlan] = {}
        for host in found:
            folder = self.results / host.name / host.configuration
            if discover:
                for plan_file in sorted(folder.parent.glob("*/plan.json")):
                    damaged = set_damaged_derived_files_aside(plan_file.parent)
                    self._set_aside(host.name, damaged)
            # Only the discovering process calculates weights; the others use its file.
            weights = HostPageWeights(folder, recalculate=discover)
            plan = plan_host(host, self.config, weights=weights)
            if discover:
                self._set_aside(host.name, set_damaged_records_aside(plan, folder))
            missing = notes_on_missing_components(folder / "components") if discover else []
            for note in missing:
                print(f"chaosity: host {host.name}: {note}", file=sys.stderr)
            plan = replace(plan, notes=(*plan.notes, *missing))
            if self.config["rounds"]:
                plan = plan_of_rounds(plan, folder)
                if discover and plan.left_out and not (folder / UNMEASURED_FILE).exists():
                    self._write_unmeasured_rows(plan, folder)  # it may have been set aside
            self.plans[host.name] = plan
            if discover:
                if host.is_simulated:
                    model = open_machine_model(folder, host.name)
                    check_programs_can_be_simulated(plan.points, model)
                weights.write_known_weights()
                if not has_budget(self.config):  # else, the runs of the rounds write the plan
                    plan.write_plan(folder, points=False)
        self._points = {
            (plan.host.name, point["experiment"], point["point"]): point
            for plan in self.plans.values()
            for point in plan.points
        }
        # States of the components of each host that have ever changed.
        self._changed: dict[str, dict[str, list[ComponentState]]] = {}
        self._failures: dict[str, Counter[str]] = {}  # failed attempts by folder and replicate
        self._locks: list[int] = []
        # Returns Snakemake's jobs that are to run; the workflow sets it.
        self.needed_jobs: Callable[[], Iterable[Any]] = tuple
        Campaign.current = self

    def _set_aside(self, host: str, sentences: Iterable[str]) -> None:
        """Set damaged files aside, unless another run writes to the results now."""
        try:
            lock = _lock_results(self.results / host)
        except UserError:  # a run that measures is refused later
            return
        try:
            for sentence in sentences:
                print(f"chaosity: {printable_line(sentence)}", file=sys.stderr)
        finally:
            os.close(lock)

    def lock_results_and_write_points(self) -> None:
        """Lock the results and write the points; call this only if it is not a dry run.

        Raises:
            UserError: a host cannot be measured, or another run is active.
        """
        for name, host in self.hosts.items():
            if host.topology.kind != LIVE and not host.is_simulated:
                what = "the host's topology is a file, so the host can be planned but not measured"
                remedy = (
                    "use snakemake --dry-run, or list only other hosts in `hosts` of the config"
                )
                raise UserError(what, f"host {name}", remedy)
        self._locks = [_lock_results(self.results / name) for name in self.plans]
        for name, plan in self.plans.items():
            plan.write_plan(self.configuration_folder(name), points=True)
            self._write_unmeasured_rows(plan, self.configuration_folder(name))

    def repetitions(self) -> str | None:
        """Return a sentence on the records that are measured again, and why; None without any."""
        from chaosity.campaign.reasons_of_repetitions import describe_repetitions

        measurements = (job for job in self.needed_jobs() if job.rule.name.endswith("measure"))
        return describe_repetitions(
            (
                job,
                self.planned_point(
                    job.wildcards.host, job.wildcards.experiment, job.wildcards.point
                ),
            )
            for job in measurements
        )

    def _write_unmeasured_rows(self, plan: HostPlan, folder: Path) -> None:
        """Write the rows that the budget leaves out; remove the file if there are none."""
        if plan.left_out:
            from chaosity.campaign.measured_rounds import write_unmeasured_rows

            write_unmeasured_rows(plan, folder)
            return
        for name in (UNMEASURED_FILE, PREDICTIONS_FILE):
            (folder / name).unlink(missing_ok=True)

    def prediction_files(self, host: str) -> list[str]:
        """Return the file of predictions, if the plan of a host leaves out points."""
        folder = self.configuration_folder(host)
        return [str(folder / PREDICTIONS_FILE)] if self.plans[host].left_out else []

    def result_files(self, host: str) -> list[str]:
        """Return the files that the rules make of the records of a host."""
        folder = self.configuration_folder(host)
        return [*(str(folder / name) for name in _RESULT_FILES), *self.prediction_files(host)]

    def unlock_results(self) -> None:
        """Let another campaign write to the results before this process ends."""
        while self._locks:
            os.close(self._locks.pop())

    @property
    def hosts(self) -> dict[str, PlannedHost]:
        """Return the hosts by name."""
        return {name: plan.host for name, plan in self.plans.items()}

    @property
    def measurement_resources(self) -> dict[str, int]:
        """Return the Snakemake resources of a measurement: one unit of the host's resource."""
        return {measuring_resource_name(name): 1 for name in self.plans}

    def allow_one_measurement_per_host(
        self, limits: Mapping[str, Any], register: Callable[[str, int], None]
    ) -> None:
        """Let one measurement run at a time on each host, through Snakemake's `limits`.

        Snakemake ignores a resource without a limit, so `register` sets it.

        Raises:
            UserError: a host's resource has another limit on the command line or in a profile.
        """
        for name in self.hosts:
            resource = measuring_resource_name(name)
            if resource not in limits:
                register(resource, 1)
            elif limits[resource].value != 1:
                what = f"several measurements could run on host {name} at the same time"
                raise UserError(what, f"resources, {resource}", "set the resource to 1")

    @property
    def measurement_threads(self) -> int:
        """Return how many cores of this machine a measurement uses: 0 if it runs elsewhere."""
        return int(all(host.local for host in self.hosts.values()))

    def planned_point(self, host: str, experiment: str, name: str) -> Point:
        """Return the planned point with this name."""
        return self._points[(host, experiment, name)]

    def configuration_folder(self, host: str) -> Path:
        """Return the folder of a host's files for its present configuration."""
        return self.results / host / self.hosts[host].configuration

    def changed_component_files(self, wildcards: MeasurementWildcards) -> list[str]:
        """Return the files of a point's components that changed after its record was written.

        A record that does not exist is measured anyway, and what did not change asks for nothing.
        So most measurements have no component as input, which Snakemake would have to follow.
        """
        folder = self.configuration_folder(wildcards.host) / "components"
        if wildcards.host not in self._changed:
            histories = read_component_histories(folder)
            self._changed[wildcards.host] = {
                name: states for name, states in histories.items() if len(states) > 1
            }
        changed = self._changed[wildcards.host]
        point = self.planned_point(wildcards.host, wildcards.experiment, wildcards.point)
        own = [name for name in point["components"] if name in changed]
        record = folder.parent / record_file(
            wildcards.experiment, wildcards.point, int(wildcards.replicate)
        )
        if not own or not record.exists():
            return []
        written = time_in_file_name(file_time(record))
        return [
            str(folder / f"{name}.json") for name in components_changed_since(written, own, changed)
        ]

    def failed_attempts(self, wildcards: MeasurementWildcards) -> int:
        """Return the number of failed attempts of a replicate so far.

        Within a run in rounds, only attempts before the run count, so none asks for a repetition.
        """
        # Strings instead of paths: this runs for each of ten thousand jobs.
        folder = (
            f"{self.results}/{wildcards.host}/{wildcards.configuration}/{wildcards.experiment}"
            f"/{wildcards.point}/attempts"
        )
        if folder not in self._failures:
            names = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
            failed = (name.split(".", 1) for name in names if name.endswith(".failed.json"))
            began = time_in_file_name(self.config["rounds"] or "9999")
            self._failures[folder] = Counter(
                replicate for replicate, rest in failed if rest < began
            )
        return self._failures[folder][f"rep{wildcards.replicate}"]

    def record_paths(self, host: str) -> list[str]:
        """Return the paths of all records of a host's plan."""
        folder = self.configuration_folder(host)
        return [
            f"{folder}/{record_file(point['experiment'], point['point'], replicate)}"
            for point in self.plans[host].points
            for replicate in replicate_numbers(point)
        ]

    def lost_records(self, host: str) -> list[str]:
        """Return the paths of records that are missing although their table exists.

        Without a table, the rule that makes it asks for the records.
        """
        if not (self.configuration_folder(host) / MEASUREMENTS_FILE).exists():
            return []
        return [path for path in self.record_paths(host) if not os.path.exists(path)]  # noqa: PTH110


def _lock_results(results: Path) -> int:
    """Lock a host's results, so that no two runs write the same records; return the open file.

    The kernel frees the lock when the process ends, also after a crash. Snakemake's own lock stays
    after a crash, so profiles/default turns it off.
    """
    results.mkdir(parents=True, exist_ok=True)
    handle = os.open(results / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(handle, 20).decode().strip()
        os.close(handle)
        what = f"another run (process {pid}) writes to this folder"
        raise UserError(what, str(results), "wait for the other run or stop it") from None
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    return handle
