"""A host in one configuration of its firmware: boot, plan, records and result files."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaosity.components import (
    ComponentState,
    components_changed_since,
    read_component_histories,
)
from chaosity.design.host_plan import HostPlan, PlannedHost
from chaosity.documents.config import Config
from chaosity.errors import UserError
from chaosity.hosts.ansible_inventory import (
    CONFIGURATION_PLACEHOLDER,
    PLAYBOOK_PROGRAM,
    InventoryHost,
    ansible_command,
    read_inventory,
)
from chaosity.hosts.host_discovery import discover_hosts
from chaosity.hosts.runner_command import LOCAL
from chaosity.records.record_files import (
    current_record_path,
    file_has_text,
    file_time,
    has_valid_record,
    replicate_numbers,
    time_in_file_name,
)
from chaosity.records.record_format import Point, PointKey, point_key
from chaosity.result_folders import (
    MEASUREMENTS_FILE,
    PREDICTIONS_FILE,
    SUMMARY_FILE,
    UNMEASURED_FILE,
)
from chaosity.rounds.budget import PlannedRounds, rewrite_rounds
from chaosity.topology.topology_sources import LIVE_SOURCE

# The outputs of the rules after the measurements, below ``results/<host>/<configuration>``.
_RESULT_FILES = (
    *(MEASUREMENTS_FILE, "history.parquet", "findings.json", "topology.svg", "report.html"),
    *(SUMMARY_FILE, "summary.txt", "figures", "exports/notes.txt"),
)
# Names of two empty files. This run makes the first file after it has booted the host into the
# configuration, and the second file after it has discovered the host in this configuration.
CONFIGURED_FILE, DISCOVERED_FILE = "configured.txt", "discovered.txt"


class HostInMode:
    """A host in one configuration of its firmware.

    `results` is the folder of all results. `discovered` is the same folder or, in a dry run, the
    folder for the files of discovery. `began` is the time when this run began, in the form for
    names of files.

    Attributes:
        folder: ``results/<host>/<configuration>``.
        discovery_folder: ``<host>/<configuration>`` in the folder `discovered`.
        local: whether the measurements run as processes of this machine.
        firmware_and_state_commands: two commands; the first boots the host into the configuration,
            the second sets the state of the host.
        before: the configuration that is measured before the boot into this configuration; None for
            the first.
    """

    def __init__(
        self,
        host: InventoryHost | PlannedHost,
        configuration: str,
        results: Path,
        discovered: Path,
        began: str,
    ) -> None:
        self.host, self.configuration = host.name, configuration
        self.folder = results / host.name / configuration
        self.discovery_folder = discovered / host.name / configuration
        self.variables, self.is_simulated = host.variables, host.is_simulated
        self.local = True
        self.firmware_and_state_commands = COMMANDS_WITHOUT_BOOT
        self.before: HostInMode | None = None
        self._began = began
        self._plan: HostPlan | None = None
        # The rounds in which the host is measured; None if the complete plan fits into the budget.
        self.rounds: PlannedRounds | None = None
        self._points: dict[PointKey, Point] = {}
        # Component -> its states, for each component that has ever changed; None until the states
        # are read.
        self._changed: dict[str, list[ComponentState]] | None = None
        # Folder -> replicate -> number of failed attempts.
        self._failures: dict[str, Counter[str]] = {}

    @property
    def has_plan(self) -> bool:
        """Return whether the host has a plan; before its first boot into the mode, it has none."""
        return self._plan is not None

    @property
    def plan(self) -> HostPlan:
        """Return the plan; with a budget, the plan of the rounds so far.

        Raises:
            UserError: the host is not discovered yet, so there is no plan.
        """
        if self._plan is None:
            raise UserError("the host is not discovered yet", str(self.folder), "run snakemake")
        return self._plan

    def use_plan(self, plan: HostPlan, rounds: PlannedRounds | None = None) -> None:
        """Use a complete plan from now on, or only the points of its rounds if it has rounds."""
        self._plan, self.rounds = rounds.plan if rounds else plan, rounds
        self._points = {point_key(point): point for point in self._plan.points}

    def forget_plan(self) -> None:
        """Forget the plan, because the host is going to be booted and discovered again."""
        self._plan = self.rounds = self._changed = None

    def remove_signs_of_boot(self) -> None:
        """Remove the files that say that the host is booted, so that Snakemake makes them again."""
        for name in (CONFIGURED_FILE, DISCOVERED_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def add_chosen_round(self, number: int) -> bool:
        """Add the rounds of choice `number` to the plan; return whether this choice is the last."""
        assert self.rounds
        is_last, is_new = self.rounds.read_choice(number)
        if is_new:
            self.use_plan(self.rounds.complete, self.rounds)
        return is_last

    def write_plan(self) -> None:
        """Write the plan and its points; with a budget, also the rounds and the left-out points."""
        if self.rounds and not self.rounds.are_written:
            rewrite_rounds(self.folder, self.rounds.rounds_before_first_choice)
        self.plan.write_plan(self.folder, points=True)
        if self.plan.left_out:
            # `measured_rounds` imports pandas, which takes long.
            from chaosity.campaign.measured_rounds import write_unmeasured_rows

            write_unmeasured_rows(self.plan, self.folder)
            return
        for name in (UNMEASURED_FILE, PREDICTIONS_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def planned_point(self, experiment: str, name: str) -> Point:
        """Return the planned point with the given name."""
        return self._points[experiment, name]

    def record_paths(self, plan: HostPlan | None = None) -> list[str]:
        """Return the paths of all records of this host's plan, or of another given plan."""
        points = (plan or self.plan).points
        return [
            f"{self.folder}/{current_record_path(*point_key(point), replicate)}"
            for point in points
            for replicate in replicate_numbers(point)
        ]

    def records_before_choice(self, number: int) -> list[str]:
        """Return the paths of the records of all rounds before a choice of the next round."""
        assert self.rounds
        return self.record_paths(self.rounds.plan_before_choice(number))

    def lost_record_paths(self) -> list[str]:
        """Return the paths of records that are missing although the tidy table exists."""
        # If the tidy table is missing, the rule that makes this table requests the records.
        if not (self.folder / MEASUREMENTS_FILE).exists():
            return []
        return [path for path in self.record_paths() if not os.path.exists(path)]  # noqa: PTH110

    def result_files(self) -> list[str]:
        """Return the files that the rules make from the records."""
        return [str(self.folder / name) for name in _RESULT_FILES]

    def prediction_files(self) -> list[str]:
        """Return a list with the file of predictions; it is empty if no points are left out."""
        return [str(self.folder / PREDICTIONS_FILE)] if self.plan.left_out else []

    def topology_digest(self) -> str:
        """Return the SHA-256 digest of the topology file that discovery has written."""
        return hashlib.sha256((self.discovery_folder / "topology.xml").read_bytes()).hexdigest()

    def is_complete(self) -> bool:
        """Return whether all measurements of the plan have valid records that are not outdated."""
        if self.rounds and not self.rounds.are_written:
            return False
        return all(
            self.is_up_to_date(point, replicate)
            for point in self.plan.points
            for replicate in replicate_numbers(point)
        )

    def is_up_to_date(self, point: Point, replicate: int) -> bool:
        """Return whether a replicate of a point has a valid record that is not outdated."""
        changed = self.changed_component_files(*point_key(point), str(replicate))
        return not changed and has_valid_record(self.folder, point, replicate)

    def changed_component_files(self, experiment: str, name: str, replicate: str) -> list[str]:
        """Return the files of a point's components that changed after its record was written.

        The result is empty for a point without a record, which is measured anyway, and if no
        component changed. So Snakemake has few input files to check.
        """
        if self._changed is None:
            histories = read_component_histories(self.discovery_folder / "components")
            self._changed = {k: states for k, states in histories.items() if len(states) > 1}
        if not self._changed:
            return []
        own = [c for c in self._points[experiment, name]["components"] if c in self._changed]
        record = self.folder / current_record_path(experiment, name, int(replicate))
        if not own or not record.exists():
            return []
        written = time_in_file_name(file_time(record))
        changed = components_changed_since(written, own, self._changed)
        return list(self._component_files(changed))

    def _component_files(self, names: list[str]) -> Iterator[str]:
        """Yield files of components in the results, or a dry run's file of a changed component."""
        for name in names:
            found, kept = (
                folder / "components" / f"{name}.json"
                for folder in (self.discovery_folder, self.folder)
            )
            is_kept = kept.exists() and file_has_text(kept, found.read_text(encoding="utf-8"))
            yield str(kept if is_kept else found)

    def failed_attempts(self, experiment: str, name: str, replicate: str) -> int:
        """Return the number of failed attempts of a replicate before this run."""
        # The paths are strings, because this function runs for each of ten thousand jobs, and Path
        # is slow.
        folder = f"{self.folder}/{experiment}/{name}/attempts"
        if folder not in self._failures:
            names = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
            failed = (each.split(".", 1) for each in names if each.endswith(".failed.json"))
            self._failures[folder] = Counter(
                number for number, rest in failed if rest < self._began
            )
        return self._failures[folder][f"rep{replicate}"]


CommandWords = list[str]  # the words of a command line
# The two commands for a host that needs no boot, because all its measurements in a configuration
# exist.
COMMANDS_WITHOUT_BOOT = (
    ["echo", "chaosity: nothing is to be measured in this configuration"],
    ["false"],
)


def hosts_that_can_change_configuration(
    hosts: Sequence[InventoryHost], inventory: str
) -> list[InventoryHost]:
    """Return the hosts that can be set to other configurations.

    Raises:
        UserError: no host can be set to other configurations, a host is simulated in only one, or a
            reboot of a host would end this run.
    """
    for host in hosts:
        if host.is_simulated and not host.can_change_configuration:
            what = "this host is simulated in a single configuration"
            remedy = f"write {CONFIGURATION_PLACEHOLDER} in the name of its topology file"
            raise UserError(what, f"host {host.name}", remedy)
        if host.topology_source == LIVE_SOURCE and host.local_or_ssh == LOCAL:
            what = "a reboot of this host into another configuration would end this run"
            remedy = "start the run on another machine, or list only other hosts in `hosts`"
            raise UserError(what, f"host {host.name}", remedy)
    found = [host for host in hosts if host.can_change_configuration]
    if not found:
        what = "the inventory has no host that can be set to other configurations"
        remedy = "list a host without chaosity_topology, or leave `configurations` empty"
        raise UserError(what, f"inventory {inventory}", remedy)
    return found


def firmware_and_state_commands(
    host: InventoryHost, configuration: str, inventory: str, root: Path
) -> tuple[CommandWords, CommandWords]:
    """Return two commands: one sets the firmware and reboots, one sets the state of the host.

    A simulated host needs no commands, so both are the command `true`.

    Raises:
        UserError: Ansible is not installed.
    """
    if host.is_simulated:
        return ["true"], ["true"]
    play = [*ansible_command(PLAYBOOK_PROGRAM), "--inventory", inventory, "--limit", host.name]
    firmware = [
        str(root / "playbooks/firmware.yml"),
        "--extra-vars",
        f"firmware_mode={configuration}",
    ]
    return [*play, *firmware], [*play, str(root / "playbooks/configure.yml")]


def discover_in_mode(config: Config, host: str, configuration: str) -> None:
    """Discover a host that was booted into a configuration, and write its topology and components.

    The inventory is read anew, since a reboot can change the output of a dynamic inventory.

    Raises:
        UserError: the host cannot be discovered, or is in another configuration.
    """
    own = config.copy()
    own["expected_configuration"] = configuration
    discover_hosts(own, read_inventory(config["inventory"], [host]))


def lock_results(results: Path) -> int:
    """Lock the results of a host (``results/<host>``); return the descriptor of the open lock file.

    The kernel frees this lock when the process ends, even by a crash. Snakemake's own lock would
    stay after a crash, so profiles/default turns off Snakemake's lock.

    Raises:
        UserError: another run has locked the results.
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
