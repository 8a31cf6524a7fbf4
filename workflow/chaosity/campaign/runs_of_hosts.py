"""Measure each host, and each configuration of its firmware, in a run of the workflow of its own.

A small workflow starts these runs, so Snakemake never holds the jobs of more than one host. In a
run with a budget, `measured_rounds` then divides the run of a host into rounds. A host is not
rebooted into a configuration with complete records.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from chaosity.campaign.budgeted_plan import has_budget
from chaosity.campaign.kept_page_weights import HostPageWeights
from chaosity.design.host_plan import plan_host
from chaosity.design.point_expansion import json_fingerprint
from chaosity.documents.check_config import check_config
from chaosity.documents.config import Config
from chaosity.errors import UserError
from chaosity.hosts.ansible_inventory import (
    CONFIGURATION,
    InventoryHost,
    read_inventory,
    share_inventory_with_processes_below,
)
from chaosity.hosts.host_discovery import (
    discover_hosts,
    is_this_machine,
    read_discovered_host,
)
from chaosity.records.atomic_writes_and_record_files import (
    has_text,
    is_measured,
    replicate_numbers,
    write_atomically,
    write_if_changed,
)
from chaosity.runner.guardian_process import kill_program
from chaosity.topology.topology_sources import LIVE
from chaosity.transport.runner_command import LOCAL, SLURM

# A run's config; the file that exists only if nothing of the run is missing.
_CONFIG_FILE, _FINISHED_FILE = "run_config.yaml", "measured.txt"
# What a run depends on beside its config; the state of the host's files in a run that changed none.
_REQUEST_FILE, _UNCHANGED_FILE = "run_request.txt", "unchanged.txt"
# Files below the folder of a host that every run writes.
_WRITTEN_ALWAYS = {".lock", "description.tar.gz", "run.log", _FINISHED_FILE, _UNCHANGED_FILE}
# Options with which a run does not do, or does again, what an ordinary run does.
_SELECTING_OPTIONS = ("--dry-run", "--until", "--omit-from", "--forcerun", "--forceall")
# Options of Snakemake's command line that the runs get, or that say where and what the workflow is.
_TAKEN_OPTIONS = {
    *("until", "omit_from", "forcerun", "forceall", "quiet", "cores", "jobs", "dryrun", "targets"),
    *("config", "configfile", "profile", "workflow_profile", "snakefile", "directory"),
    *("resources", "max_jobs_per_timespan"),  # runs_of_hosts; equal values compare as unequal
    *("keep_going", "rerun_incomplete", "nolock"),  # set in profiles/default
}
# Memory of a run with about 10,000 measurements. The runs of remote hosts need hardly any
# processor time, so only the memory limits how many run at the same time.
_BYTES_OF_A_RUN = 400e6
_SHARE_OF_MEMORY = 0.5
# How often a run looks whether the workflow above it still exists.
_ALIVE_SECONDS = 1.0
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER in linux/prctl.h


class HostRun(NamedTuple):
    """A run of the workflow for one host; in the host's present configuration if it is None."""

    host: InventoryHost
    configuration: str | None

    @property
    def name(self) -> str:
        """Return the folder of the run below the results."""
        return f"{self.host.name}/{self.configuration}" if self.configuration else self.host.name


def runs_of_hosts(config: Mapping[str, object], root: Path) -> RunsOfHosts | None:
    """Return the runs below the workflow; None if the workflow measures one host by itself.

    Raises:
        UserError: config or inventory is wrong, or a host cannot be rebooted.
    """
    checked = check_config(config)
    if checked["rounds"]:
        return None
    several = checked["configurations"] or has_budget(checked)
    if not several and len(checked["hosts"]) == 1:
        return None
    found = read_inventory(checked["inventory"], checked["hosts"])
    return RunsOfHosts(checked, found, root) if several or len(found) > 1 else None


class RunsOfHosts:
    """The runs below a small workflow.

    Args:
        config: the config of the small workflow.
        hosts: the hosts of the inventory that it measures.
        root: the repository.

    Raises:
        UserError: a host (or every host) cannot be set to other configurations.
    """

    def __init__(self, config: Config, hosts: Sequence[InventoryHost], root: Path) -> None:
        self.config, self.root = config, root
        self.results = Path(config["results"])
        if config["configurations"]:
            hosts = _hosts_with_configurations(hosts, config["inventory"])
        self.hosts = [host.name for host in hosts]
        names: Sequence[str | None] = config["configurations"] or [None]
        runs = [HostRun(host, name) for host in hosts for name in names]
        self.runs = {run.name: run for run in runs}
        # Snakemake's options for the runs; the hosts whose runs need not start.
        self.options: list[str] = []
        self.unchanged: set[str] = set()

    def take_options(self, words: Sequence[str], workflow: Any) -> bool:
        """Pass Snakemake's options on to the runs; return whether the small workflow cannot run.

        It cannot if options name rules, which only the runs have. In a dry run, the measurements of
        each host are of interest; those of another configuration are known only after its reboot.

        Args:
            words: Snakemake's command line.
            workflow: Snakemake's workflow. While it is read, it does not know all options.
        """
        from snakemake.cli import get_argument_parser  # the runs do without it

        parser = get_argument_parser()
        given, _ = parser.parse_known_args(list(words))
        usual, _ = parser.parse_known_args([])
        if ignored := [
            f"--{name.replace('_', '-')}"
            for name, value in sorted(vars(given).items())
            if value != getattr(usual, name) and name not in _TAKEN_OPTIONS
        ]:
            print(f"chaosity: the runs of the hosts ignore {', '.join(ignored)}", file=sys.stderr)
        for name in ("until", "omit_from", "forcerun"):
            if rules := sorted(getattr(given, name)):
                self.options += ["--" + name.replace("_", "-"), *rules]
        names_rules = bool(self.options)
        self.options += ["--forceall"] if given.forceall else []
        if quiet := workflow.output_settings.quiet:
            self.options += ["--quiet", *sorted(each.item_to_choice() for each in quiet)]
        if cores := workflow.resource_settings.cores:
            self.options += ["--cores", str(cores)]
        if workflow.output_settings.dryrun and not self.config["configurations"]:
            self.options.append("--dry-run")
            if not quiet and len(self.hosts) > 1:  # a line for each host, and no list of its jobs
                self.options.append("--quiet")
        return names_rules or "--dry-run" in self.options

    def finished_files(self, host: str) -> list[str]:
        """Return the files that exist only after all runs of a host are complete."""
        runs = (name for name, run in self.runs.items() if run.host.name == host)
        return [str(self.results / name / _FINISHED_FILE) for name in runs]

    def finished_before(self, name: str) -> list[str]:
        """Return the file of the host's run before a run; an empty list for the first one."""
        own = str(self.results / name / _FINISHED_FILE)
        files = self.finished_files(self.runs[name].host.name)
        return files[: files.index(own)][-1:]

    def threads(self, name: str) -> int:
        """Return how many cores of this machine a run needs: 0 if it measures elsewhere."""
        try:
            return int(is_this_machine(self.runs[name].host, self.config))
        except UserError:  # the run fails, and says why
            return 0

    @property
    def runs_at_once(self) -> int:
        """Return how many runs fit into the memory of this machine."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(1, int(_SHARE_OF_MEMORY * memory / _BYTES_OF_A_RUN))

    @property
    def snakemake_arguments(self) -> list[str]:
        """Return the words of Snakemake's command line for each run: options and target."""
        # A run among several leaves the overview of all hosts to the small workflow.
        return [*self.options, "--", "host_results" if len(self.hosts) > 1 else "all"]

    def prepare(self) -> None:
        """Write the config of each run, and remove the files of finished runs to do again.

        The runs use the inventory as this process has read it, so Ansible does not read it again
        for each host. With `configurations`, each run reads the inventory itself, since a reboot
        can change what a dynamic inventory says.

        Only a configuration with all records and its report is finished: its run would reboot the
        host. Every other run looks whether anything is to be done.
        """
        if not self.config["configurations"]:
            share_inventory_with_processes_below(self.config["inventory"])
        programs = _state_of_files(self.root / "workflow", self.root / "templates")
        for name, run in self.runs.items():
            folder = self.results / name
            own = {**self.config, "hosts": [run.host.name], "configurations": []}
            if run.configuration:
                own["expected_configuration"] = run.configuration
            write_if_changed(folder / _CONFIG_FILE, yaml.safe_dump(own, sort_keys=False))
            request = json_fingerprint([programs, sys.version, run.host.variables])
            write_if_changed(folder / _REQUEST_FILE, request)
            if run.configuration and self._is_complete(run.host, run.configuration):
                (folder / _FINISHED_FILE).touch()
        self.unchanged = self._unchanged_hosts()
        for name, run in self.runs.items():
            if not run.configuration and name not in self.unchanged:
                (self.results / name / _FINISHED_FILE).unlink(missing_ok=True)

    def _unchanged_hosts(self) -> set[str]:
        """Return the hosts whose run would change nothing, as their last run changed nothing.

        Discovery and `prepare` write what they find only if it differs, so any change is a change
        of a file below the host's folder. A Slurm job for each discovery would wait in the queue.
        """
        selecting = not set(self.options).isdisjoint(_SELECTING_OPTIONS[1:])
        if selecting or has_budget(self.config) or self.config["transport"] == SLURM:
            return set()
        hosts = [
            run.host
            for name, run in self.runs.items()
            if not run.configuration and (self.results / name / _UNCHANGED_FILE).exists()
        ]
        if hosts:
            try:
                discover_hosts(self.config, hosts)
            except UserError:  # no host could be discovered; each run says why
                return set()
        return {host.name for host in hosts if _is_unchanged(self.results / host.name)}

    def _is_complete(self, host: InventoryHost, configuration: str) -> bool:
        """Return whether a configuration has all records, and its report."""
        folder = self.results / host.name / configuration
        if not (folder / "topology.json").exists() or not (folder / "report.html").exists():
            return False
        try:
            found = read_discovered_host(host, configuration, self.config)
            plan = plan_host(found, self.config, weights=HostPageWeights(folder))
        except UserError:  # a damaged file; the run of this configuration writes it again
            return False
        return all(
            is_measured(folder, point, replicate)
            for point in plan.points
            for replicate in replicate_numbers(point)
        )

    def run_each_host(self) -> int:
        """Run each host without the small workflow; return the first status that is not 0, or 0."""
        words = ["--workflow", str(self.root), "--below", str(os.getpid())]

        def run(name: str) -> subprocess.CompletedProcess[str]:
            if name in self.unchanged:
                text = f"{name}: Nothing to be done, unchanged since its last run\n"
                return subprocess.CompletedProcess([], 0, stdout=text, stderr="")
            config = str(self.results / name / _CONFIG_FILE)
            command = ["chaosity", "host", config, *words, "--", *self.snakemake_arguments]
            return subprocess.run(command, text=True, capture_output=True, check=False)

        status = 0
        with ThreadPoolExecutor(min(self.runs_at_once, os.cpu_count() or 1)) as pool:
            for done in pool.map(run, self.runs):  # in this order, so that the output is readable
                errors = done.stderr.splitlines(keepends=True)
                # Snakemake names the profile of every run before it reads its options.
                shown = (line for line in errors if not line.startswith("Using workflow specific"))
                print("".join(shown), end="", file=sys.stderr, flush=True)
                print(done.stdout, end="", flush=True)
                status = status or done.returncode
        if self.options[-1:] == ["--quiet"]:
            what = "with --quiet reason, a dry run lists the measurements of each host"
            print(f"chaosity: {what}", file=sys.stderr)
        return status


def _state_of_files(*folders: Path) -> str:
    """Return a digest of path, size and time stamp of all files that runs do not always write."""
    digest = hashlib.sha256()
    pending = [str(folder) for folder in folders]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.name in _WRITTEN_ALWAYS or entry.name == "__pycache__":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
                status = entry.stat()
                facts = (entry.path, status.st_size, status.st_mtime_ns, status.st_ino)
                digest.update(repr(facts).encode())
    return digest.hexdigest()


def _is_unchanged(folder: Path) -> bool:
    """Return whether a host's files are as in its last run, which changed none of them."""
    path = folder / _UNCHANGED_FILE
    return path.exists() and has_text(path, _state_of_files(folder))


def _hosts_with_configurations(
    hosts: Sequence[InventoryHost], inventory: str
) -> list[InventoryHost]:
    """Return the hosts that can be set to other configurations.

    Raises:
        UserError: there is none, or a host cannot be rebooted.
    """
    for host in hosts:
        if host.is_simulated and not host.can_change_configuration:
            what = "this host is simulated in a single configuration"
            remedy = f"write {CONFIGURATION} in the name of its topology file"
            raise UserError(what, f"host {host.name}", remedy)
        if host.topology_source == LIVE and host.local_or_ssh == LOCAL:
            what = "a reboot of this host into another configuration would end this run"
            remedy = "start the run on another machine, or list only other hosts in `hosts`"
            raise UserError(what, f"host {host.name}", remedy)
    found = [host for host in hosts if host.can_change_configuration]
    if not found:
        what = "the inventory has no host that can be set to other configurations"
        remedy = "list a host without chaosity_topology, or leave `configurations` empty"
        raise UserError(what, f"inventory {inventory}", remedy)
    return found


class HostWorkflow(NamedTuple):
    """How to run the workflow of one host."""

    root: Path  # the repository
    # Further words of Snakemake's command line, the options before the target.
    arguments: Sequence[str] = ()
    # Process of the small workflow: this run ends soon after it; None for no such process.
    below: int | None = None

    @property
    def is_dry_run(self) -> bool:
        """Return whether nothing is measured."""
        return "--dry-run" in self.arguments

    def run_and_note_whether_unchanged(self, config_file: Path, config: Config) -> int:
        """Run the workflow with a config, note whether it changed any file; return its status."""
        folder = config_file.parent
        before = _state_of_files(folder)
        status = self.run(config_file, config)
        if status or not set(self.arguments).isdisjoint(_SELECTING_OPTIONS):
            return status
        if _state_of_files(folder) == before:
            write_atomically(folder / _UNCHANGED_FILE, before)
        else:
            (folder / _UNCHANGED_FILE).unlink(missing_ok=True)
        return status

    def run(self, config_file: Path, config: Config, target: str | None = None) -> int:
        """Run the workflow with a config, for another `target` if given; return its status."""
        words = list(self.arguments)
        if target:
            words[-1:] = [target]
        command = [
            *("snakemake", "--snakefile", str(self.root / "workflow" / "Snakefile")),
            *("--workflow-profile", str(self.root / "profiles" / "default")),
            *(["--profile", "cluster"] if config["transport"] == "slurm" else []),
            *("--configfile", str(config_file), *words),
        ]
        _adopt_orphans()
        process = subprocess.Popen(command)
        while True:
            try:
                status = process.wait(_ALIVE_SECONDS)
                if status < 0:  # it was killed, so it did not end its measurement
                    for orphan in Path("/proc/thread-self/children").read_text().split():
                        kill_program(int(orphan))
                return status
            except KeyboardInterrupt:
                # The workflow got the signal too. It ends the measurement and writes the report.
                continue
            except subprocess.TimeoutExpired:
                if self.below and not Path(f"/proc/{self.below}").exists():
                    # On SIGTERM, Snakemake (9.27) can wait without an end for its own lock.
                    kill_program(process.pid)


def _adopt_orphans() -> None:
    """Become the parent of processes below whose own parent is killed, see prctl(2)."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
