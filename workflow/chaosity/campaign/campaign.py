"""The hosts of a run of the workflow, each in one or several configurations of its firmware.

Snakemake reads the workflow in the process that the user starts, and again in each job that runs as
a separate process. Only the process of the user discovers hosts and takes locks; a job reads the
files that this process wrote.

Snakemake has no documented way to pass its options to the rules, so `CommandLine` reads the words
that the user typed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, TypeVar

import yaml

from chaosity.campaign.files_made_again import (
    describe_repetitions,
    set_damaged_derived_files_aside,
    set_damaged_records_aside,
)
from chaosity.campaign.host_in_mode import (
    COMMANDS_WITHOUT_BOOT,
    HostInMode,
    firmware_and_state_commands,
    hosts_that_can_change_configuration,
    lock_results,
)
from chaosity.campaign.measured_page_weights import MeasuredPageWeights
from chaosity.components import notes_on_missing_components
from chaosity.design.host_plan import PlannedHost, plan_host
from chaosity.documents.config import check_config
from chaosity.errors import UserError, file_system_error, printable_short_line
from chaosity.hosts.ansible_inventory import (
    InventoryHost,
    read_inventory,
    share_inventory_with_child_processes,
)
from chaosity.hosts.host_discovery import (
    discover_hosts,
    find_unready_hosts,
    needs_no_connection,
    read_discovered_host,
    read_discovered_hosts,
)
from chaosity.hosts.runner_command import put_own_programs_first_in_path
from chaosity.records.record_files import (
    time_in_file_name,
    utc_now_text,
    write_if_changed,
)
from chaosity.records.record_format import Point
from chaosity.rounds.budget import (
    PlannedRounds,
    has_budget_or_precision,
    plan_of_rounds,
    read_round_choices,
    rounds_of_choices,
)
from chaosity.simulation.machine_model import check_programs_can_be_simulated
from chaosity.simulation.simulated_records import open_machine_model
from chaosity.topology.topology_sources import LIVE_SOURCE

# Options of Snakemake that have one letter and no value can be joined, as in -np.
_SHORT_DRY_RUN_OPTION = re.compile(r"-[eFRkpqnS]*n")
_SHORT_FORCE_ALL_OPTION = re.compile(r"-[eFRkpqnS]*F")
# With these options, Snakemake only lists or checks rules, and needs neither hosts nor tools.
_OPTIONS_THAT_ONLY_READ_RULES = {
    "--lint",
    "--list",
    "--list-rules",
    "-l",
    "--list-target-rules",
    "--lt",
}
# With these options, Snakemake writes no file of the workflow.
_OPTIONS_THAT_WRITE_NOTHING = {
    *("--dry-run", "--dryrun", "--report", "--summary", "-S", "--detailed-summary", "-D"),
    *("--dag", "--rulegraph", "--filegraph", "--d3dag"),
}
# Options for which Snakemake must know all jobs at the start, although checkpoints add jobs later,
# and what each of these options does.
_OPTIONS_THAT_NEED_ALL_JOBS = {
    **dict.fromkeys(("--until", "-U"), "ends after jobs"),
    **dict.fromkeys(("--touch", "-t"), "marks jobs"),
    "--batch": "divides jobs",
}


class CommandLine(NamedTuple):
    """The words of Snakemake's command line, after the name of the program."""

    words: Sequence[str] = ()

    @property
    def only_reads_rules(self) -> bool:
        """Return whether Snakemake only reads the rules."""
        return self._has_any_option(_OPTIONS_THAT_ONLY_READ_RULES)

    @property
    def writes_nothing(self) -> bool:
        """Return whether Snakemake writes no results, as in a dry run, a report or a graph."""
        return self._has_any_option(_OPTIONS_THAT_WRITE_NOTHING) or any(
            map(_SHORT_DRY_RUN_OPTION.match, self.words)
        )

    @property
    def is_of_snakemake_job(self) -> bool:
        """Return whether Snakemake started this process for a job, and not a person."""
        return "--mode" in self.words

    @property
    def repeats_measurements(self) -> bool:
        """Return whether options make Snakemake repeat measurements that already have a record."""
        rules = {"-R", "--forcerun", "--force", "-f"}
        named = self._has_any_option(rules) and any("measure" in word for word in self.words)
        return (
            named
            or self._has_any_option({"--forceall"})
            or any(map(_SHORT_FORCE_ALL_OPTION.match, self.words))
        )

    def refuse_options_that_need_all_jobs(self, key: str) -> None:
        """Refuse options that need all jobs at the start, since `key` of the config adds jobs.

        Raises:
            UserError: one of these options is given.
        """
        for option, does in _OPTIONS_THAT_NEED_ALL_JOBS.items():
            if self._has_any_option({option}):
                what = f"the option {does} that are known at the start, but {key} adds jobs later"
                remedy = f"leave out {option} or {key}, or name a target such as measurements"
                raise UserError(what, option, remedy)

    def _has_any_option(self, options: set[str]) -> bool:
        return any(word.partition("=")[0] in options for word in self.words)


T = TypeVar("T")
# File with the config of this run, in the folder of a host's results; jobs of the workflow read
# this file.
RUN_CONFIG_FILE = "run_config.yaml"


def call_or_exit_on_user_error(make: Callable[[], T]) -> T:
    """Return the result of `make`; after a UserError, print the error and exit with status 2."""
    try:
        return make()
    except (UserError, OSError) as error:
        sentence = file_system_error(error) if isinstance(error, OSError) else error
        if sentence is None:
            raise
        print(f"chaosity: {sentence}", file=sys.stderr)
        sys.exit(2)


def measuring_resource_name(host: str) -> str:
    """Return the name of the Snakemake resource that limits a host to one measurement at a time."""
    return "measuring_" + re.sub(r"\W", "_", host)


class Campaign:
    """The hosts of one run, each in its configurations.

    `config` is the merged config from Snakemake, and `root` is the folder of the repository.
    `command_line` says what this process may do. `modes` maps (host, configuration) to the host in
    this configuration. `skipped` maps a host to the reason why the host cannot be discovered.
    `began` is the time when this run began, in the form for names of files.

    Raises:
        UserError: config, inventory or a host is wrong.
    """

    # The campaign of this process. The plugin for progress messages, which Snakemake creates, finds
    # the campaign in this variable.
    current: ClassVar[Campaign | None] = None

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        root: Path,
        command_line: CommandLine = CommandLine(),  # noqa: B008 - it cannot change
    ) -> None:
        self.config, self.root = check_config(config), root
        self.results = Path(self.config["results"])
        put_own_programs_first_in_path(root)
        self.is_main = not command_line.is_of_snakemake_job
        self.writes = self.is_main and not command_line.writes_nothing
        # The folder for the files that a dry run discovers; it is deleted at the end of the
        # process.
        self._folder: TemporaryDirectory[str] | None = None
        if self.is_main and not self.writes:
            self._folder = TemporaryDirectory(prefix="chaosity-dry-run-")
        self.discovered = Path(self._folder.name) if self._folder else self.results
        self.began = time_in_file_name(utc_now_text())
        self._locks: list[int] = []
        self.modes: dict[tuple[str, str], HostInMode] = {}
        self.skipped: dict[str, str] = {}
        # A function that returns the jobs that Snakemake is going to run; the workflow sets it.
        self.needed_jobs: Callable[[], Iterable[Any]] = tuple
        Campaign.current = self
        if command_line.only_reads_rules:
            return
        for key in ("budget", "precision", "configurations"):
            if self.config[key]:
                command_line.refuse_options_that_need_all_jobs(key)
        if self._folder:
            # A dry run notes changes of components in copies of their files.
            for folder in self.results.glob("*/*/components"):
                shutil.copytree(folder, self.discovered / folder.relative_to(self.results))
        if self.config["configurations"]:
            self._add_hosts_with_modes(command_line.repeats_measurements)
        else:
            self._add_hosts_in_present_mode()

    def _add_hosts_in_present_mode(self) -> None:
        if self.is_main:
            found, errors = discover_hosts(self.config, results=self.discovered)
            for name, error in errors.items():
                self._skip_host(name, error)
        else:
            found = read_discovered_hosts(self.config)
        for host in found:
            mode = self._add_host_in_mode(host, host.configuration, self.discovered)
            if self.writes:
                for other in sorted(mode.folder.parent.glob("*/plan.json")):
                    self._set_damaged_files_aside(
                        host.name, set_damaged_derived_files_aside(other.parent)
                    )
            self._plan_host(mode, host)

    def _add_hosts_with_modes(self, repeats: bool) -> None:
        """Add each host in each configuration, and plan a boot if measurements are missing."""
        inventory = self.config["inventory"]
        to_boot: dict[str, InventoryHost] = {}
        hosts = hosts_that_can_change_configuration(
            read_inventory(inventory, self.config["hosts"]), inventory
        )
        for host in hosts:
            before: HostInMode | None = None
            for name in self.config["configurations"]:
                # An existing topology is from an earlier run, because a dry run cannot boot the
                # host into this configuration and discover it.
                mode = self._add_host_in_mode(host, name, self.results)
                mode.local = needs_no_connection(host, self.config)
                self._plan_from_last_discovery(mode, host)
                if self.is_main and (repeats or not mode.has_plan or not mode.is_complete()):
                    to_boot[host.name] = host
                    mode.firmware_and_state_commands = firmware_and_state_commands(
                        host, name, inventory, self.root
                    )
                    mode.before, before = before, mode
                    mode.forget_plan()
                    if self.writes:
                        mode.remove_signs_of_boot()
        # A reboot takes minutes, so a host that lacks something is reported before any reboot.
        unready = find_unready_hosts([*to_boot.values()], self.config, self.discovered)
        for skipped, error in unready.items():
            for mode in self.modes_of_host(skipped):
                if mode.firmware_and_state_commands != COMMANDS_WITHOUT_BOOT:
                    del self.modes[skipped, mode.configuration]
            if not self.modes:
                raise error
            self._skip_host(skipped, error)

    def _skip_host(self, host: str, error: UserError) -> None:
        self.skipped[host] = str(error)
        print(f"chaosity: {error} This run skips the host.", file=sys.stderr)

    def _add_host_in_mode(
        self, host: InventoryHost | PlannedHost, configuration: str, discovered: Path
    ) -> HostInMode:
        mode = HostInMode(host, configuration, self.results, discovered, self.began)
        self.modes[host.name, configuration] = mode
        return mode

    def _plan_from_last_discovery(self, mode: HostInMode, host: InventoryHost) -> None:
        """Plan a host from its last discovery in a configuration, if the files can be read."""
        if not (mode.folder / "topology.json").exists():
            return
        if self.writes:
            self._set_damaged_files_aside(host.name, set_damaged_derived_files_aside(mode.folder))
        try:
            found = read_discovered_host(host, mode.configuration, self.config)
            self._plan_host(mode, found, tells_budget=False)
        except UserError:  # a file is damaged; discovery in this configuration writes it again
            mode.forget_plan()

    def plan_discovered(self, mode: HostInMode) -> None:
        """Plan a host that this run has discovered after it booted into a configuration."""
        [entry] = read_inventory(self.config["inventory"], [mode.host])
        self._plan_host(mode, read_discovered_host(entry, mode.configuration, self.config))
        if self.writes:
            mode.write_plan()

    def _plan_host(self, mode: HostInMode, host: PlannedHost, *, tells_budget: bool = True) -> None:
        """Plan a host in a configuration within its budget; save the plan if this run writes."""
        mode.local = host.local
        # Only the process that the user started calculates weights; jobs read the file with the
        # weights.
        weights = MeasuredPageWeights(mode.folder, recalculate=self.is_main)
        plan = plan_host(host, self.config, weights=weights)
        if not self.is_main:
            if has_budget_or_precision(self.config):
                chosen = rounds_of_choices(read_round_choices(mode.folder))
                plan = plan_of_rounds(plan, mode.folder, chosen) if chosen else plan
            mode.use_plan(plan)
            return
        if self.writes:
            self._set_damaged_files_aside(host.name, set_damaged_records_aside(plan, mode.folder))
        missing = notes_on_missing_components(mode.discovery_folder / "components")
        for note in missing:
            print(f"chaosity: host {host.name}: {note}", file=sys.stderr)
        plan = replace(plan, notes=(*plan.notes, *missing))
        rounds: PlannedRounds | None = None
        if has_budget_or_precision(self.config):
            # `measured_rounds` imports pandas, which takes long.
            from chaosity.campaign.measured_rounds import RoundChooser

            # The first round is chosen during planning, so that a dry run lists its measurements.
            rounds, text = RoundChooser(
                plan, mode.folder, self.config, mode.discovery_folder, writes=self.writes
            ).choose_first()
            if text and tells_budget:
                print(f"chaosity: {text}", file=sys.stderr, flush=True)
        mode.use_plan(plan, rounds)
        if host.is_simulated:
            model = open_machine_model(mode.discovery_folder, host.name)
            check_programs_can_be_simulated(plan.points, model)
        if self.writes:
            weights.write_weights()
            mode.plan.write_plan(mode.folder, points=False)

    def _set_damaged_files_aside(self, host: str, sentences: Iterable[str]) -> None:
        """Iterate `sentences`, which sets files aside, unless another run writes to the results."""
        if self._locks:  # this run has locked the results
            _print_lines(sentences)
            return
        try:
            lock = lock_results(self.results / host)
        except UserError:
            # Another run writes to the results; this run is refused later if it measures.
            return
        try:
            _print_lines(sentences)
        finally:
            os.close(lock)

    def mode(self, host: str, configuration: str) -> HostInMode:
        """Return the `HostInMode` of a host in one of its configurations.

        Raises:
            UserError: this run does not measure the host in this configuration.
        """
        if found := self.modes.get((host, configuration)):
            return found
        names = ", ".join(mode.configuration for mode in self.modes_of_host(host))
        what = f"this run measures the host in {names}, not in {configuration}"
        raise UserError(what, f"host {host}", "name the configuration in `configurations`")

    def modes_of_host(self, host: str) -> list[HostInMode]:
        """Return the `HostInMode` of each configuration of a host, in the order of the config."""
        return [mode for mode in self.modes.values() if mode.host == host]

    @property
    def hosts(self) -> list[str]:
        """Return the names of the hosts of this run."""
        return list(dict.fromkeys(host for host, _ in self.modes))

    def inputs_of_choice(self, mode: HostInMode, number: int) -> list[str]:
        """Return the inputs of a choice except records; a changed input repeats the choice."""
        assert mode.rounds
        before = mode.rounds.plan_before_choice(number).points_fingerprint
        given = {key: self.config[key] for key in ("budget", "precision", "known_from", "seed")}
        return [json.dumps(given), mode.rounds.complete.points_fingerprint, before]

    def lock_results_and_write_points(self) -> None:
        """Lock the results and write the points; a dry run must not call this function.

        Raises:
            UserError: a host cannot be measured, or another run writes to its results.
        """
        known = [mode for mode in self.modes.values() if mode.has_plan]
        for mode in known:
            host = mode.plan.host
            if host.topology.kind != LIVE_SOURCE and not host.is_simulated:
                what = "the host's topology is a file, so the host can be planned but not measured"
                remedy = (
                    "use snakemake --dry-run, or list only other hosts in `hosts` of the config"
                )
                raise UserError(what, f"host {host.name}", remedy)
        self._locks = [lock_results(self.results / name) for name in self.hosts]
        text = yaml.safe_dump(dict(self.config), sort_keys=False)
        for name in self.hosts:
            write_if_changed(self.results / name / RUN_CONFIG_FILE, text)
        for mode in known:
            mode.write_plan()

    def share_inventory(self) -> None:
        """Share the inventory that this process has read with the jobs, since reading it is slow.

        With the key `configurations` in the config, each job reads the inventory itself, since a
        reboot can change a dynamic inventory.
        """
        if not self.config["configurations"]:
            share_inventory_with_child_processes(self.config["inventory"])

    def unlock_results(self) -> None:
        """Unlock the results, so that another run can write to them before this process ends."""
        while self._locks:
            os.close(self._locks.pop())

    def repeated_measurements_text(self) -> str | None:
        """Return a sentence on records that are measured again and why; None if no record is."""
        return describe_repetitions(
            (Path(job.output[0]), job.input.changed_components, self.point_of(job.wildcards))
            for job in self.needed_jobs()
            if job.rule.name.endswith("measure")
        )

    def point_of(self, wildcards: Any) -> Point:
        """Return the planned point of the measurement that Snakemake's wildcards name."""
        mode = self.modes[wildcards.host, wildcards.configuration]
        return mode.planned_point(wildcards.experiment, wildcards.point)

    @property
    def measurement_resources(self) -> dict[str, int | Callable[[Any], int]]:
        """Return the Snakemake resources of a measurement: one unit of its host's resource."""

        def units_of(host: str) -> Callable[[Any], int]:
            return lambda wildcards: int(wildcards.host == host)

        # For a single host, a number saves Snakemake ten thousand calls of a function.
        if len(self.hosts) == 1:
            return {measuring_resource_name(self.hosts[0]): 1}
        return {measuring_resource_name(host): units_of(host) for host in self.hosts}

    @property
    def measurement_threads(self) -> int | Callable[[Any], int]:
        """Return the number of this machine's cores that a measurement uses: 0 for other hosts."""
        found = {mode.local for mode in self.modes.values()}
        if len(found) < 2:
            return int(all(found))
        return lambda wildcards: int(self.mode(wildcards.host, wildcards.configuration).local)

    def allow_one_measurement_per_host(
        self, limits: Mapping[str, Any], register: Callable[[str, int], None]
    ) -> None:
        """Let one measurement run at a time on each host, through Snakemake's `limits`.

        Snakemake ignores a resource that has no limit, so `register` sets each missing limit to 1.

        Raises:
            UserError: a host's resource has another limit on the command line or in a profile.
        """
        for host in self.hosts:
            resource = measuring_resource_name(host)
            if resource not in limits:
                register(resource, 1)
            elif limits[resource].value != 1:
                what = f"several measurements could run on host {host} at the same time"
                raise UserError(what, f"resources, {resource}", "set the resource to 1")


def _print_lines(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(f"chaosity: {printable_short_line(sentence)}", file=sys.stderr)
