"""Manage the Slurm jobs of a workflow run: nodes, batches, resources, watching and cost.

Only the rules use this module, and only for ``transport: slurm`` in the config. A batch is the
measurements of one Slurm job. All measurements of a batch have one file as input. The rule
`open_slurm_batch` makes this file, and requests the node and the time for all measurements of the
batch. So Snakemake puts the job of this rule and the measurements of the batch into one group. In
each Slurm job, Snakemake starts itself twice: to run a job step, and to run the batch's
measurements one after the other. Processes within a Slurm job do not call Slurm. A batch is planned
to run much longer than it waits in the queue.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaosity.campaign.campaign import Campaign
from chaosity.campaign.host_in_mode import HostInMode
from chaosity.records.record_files import (
    RUN_BEGAN_VARIABLE,
    load_record,
    measurement_seconds,
    utc_now_text,
)
from chaosity.records.record_format import point_key
from chaosity.result_folders import write_skipped_host_note
from chaosity.slurm import (
    SlurmJobAndNodeWatch,
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
    list_slurm_nodes,
    remove_hyper_thread_hint_variables,
    run_slurm_command,
    slurm_node_name,
    whole_node_job_resources,
)

# Prefix of the names of Chaosity's Slurm jobs; profiles/cluster passes this prefix to Snakemake's
# plugin for Slurm.
JOB_PREFIX = "chaosity_"
# Folder in ``results/<host>/<configuration>`` that contains an empty file for each batch.
BATCHES_FOLDER = "slurm_batches"
# Names of the Snakemake resources that `whole_node_job_resources` may return.
SLURM_RESOURCES = ("slurm_extra", "cpus_per_task", "mem_mb", "slurm_partition", "slurm_account")


class CampaignSlurmJobs:
    """The Slurm jobs of a campaign; `repeats` says whether complete measurements are made again.

    Raises:
        UserError: Slurm does not answer, or may forget a job before the job's end is seen.
    """

    def __init__(self, campaign: Campaign, *, repeats: bool) -> None:
        self.campaign, self._repeats = campaign, repeats
        self.slurm = campaign.config["slurm"]
        self._seconds_of_batches: dict[str, float] = {}  # name of a batch's file -> planned seconds
        # (host, configuration) -> measurement -> file of its batch; None for a measurement that is
        # complete.
        self._files: defaultdict[tuple[str, str], dict[Key, str | None]] = defaultdict(dict)
        self._resources: dict[str, dict[str, str | int]] = {}
        self.watch: SlurmJobAndNodeWatch | None = None
        if campaign.is_main:
            remove_hyper_thread_hint_variables(os.environ)
            check_finished_jobs_stay_visible(run_slurm_command("scontrol", "show", "config"))
            nodes = list_slurm_nodes()
            for name in campaign.hosts:
                # A simulated host has no node in Slurm, so jobs of this host run on any node.
                # Snakemake refuses `mem_mb` without a number; 0 is all memory that Slurm manages.
                node = nodes.get(self.slurm_node_name(name))
                self._resources[name] = (
                    whole_node_job_resources(node, self.slurm) if node else {"mem_mb": 0}
                )
        else:
            processors = int(os.environ.get("SLURM_CPUS_ON_NODE", 1))
            # With mem_mb 0, the step within a job gets all memory of the job.
            own: dict[str, str | int] = {"cpus_per_task": processors, "mem_mb": 0}
            self._resources = dict.fromkeys(campaign.hosts, own)

    def slurm_node_name(self, host: str) -> str:
        """Return a host's name in Slurm."""
        return slurm_node_name(host, self.campaign.modes_of_host(host)[0].variables)

    def batch_file(self, mode: HostInMode, wildcards: Any) -> list[str]:
        """Return the file of a measurement's batch.

        The list is empty within a Slurm job, which measures the batch itself, and also for a
        complete measurement. If Snakemake repeats a complete measurement for another reason, this
        measurement becomes a separate Slurm job.
        """
        if not self.campaign.is_main:
            return []
        key = (wildcards.experiment, wildcards.point, wildcards.replicate)
        found = self._files[mode.host, mode.configuration]
        if key not in found:
            self._cut_into_batches(mode)
        return [path] if (path := found[key]) else []

    def _cut_into_batches(self, mode: HostInMode) -> None:
        """Put those missing measurements of a host into batches that are in no batch yet."""
        found = self._files[mode.host, mode.configuration]
        missing = []
        for point in mode.plan.points:
            for number, order in enumerate(point["orders"], start=1):
                key = (*point_key(point), str(number))
                if key in found:
                    continue
                found[key] = None
                if self._repeats or not mode.is_up_to_date(point, number):
                    missing.append(ReplicateToMeasure(key, order, point["estimated_seconds"]))
        for batch in cut_measurements_into_batches(missing, self.slurm["minutes_per_job"]):
            # The name contains the time of this run, so that no file of an earlier run has the same
            # name.
            name = f"{self.campaign.began}.{1 + len(self._seconds_of_batches)}"
            path = f"{mode.folder}/{BATCHES_FOLDER}/{name}"
            self._seconds_of_batches[name] = planned_seconds(batch)
            found.update(dict.fromkeys((each.key for each in batch), path))

    def _minutes_of_batch(self, wildcards: Any, attempt: int) -> int:
        """Return the time limit of a batch's Slurm job in minutes; the job does not use it."""
        return self._time_limit(self._seconds_of_batches.get(wildcards.batch, 0.0), attempt)

    def _minutes_of_measurement(self, wildcards: Any, attempt: int) -> int:
        """Return the minutes that a measurement adds to the time limit of its job: 0 in a batch."""
        # The limit of a group is the sum of the limits of its jobs, each rounded up to minutes. A
        # minute for each of a hundred points of two seconds would be too long, so the job that
        # opens the batch has the limit for all its measurements.
        mode = self.campaign.mode(wildcards.host, wildcards.configuration)
        if not self.campaign.is_main or self.batch_file(mode, wildcards):
            return 0
        point = mode.planned_point(wildcards.experiment, wildcards.point)
        return self._time_limit(point["estimated_seconds"], attempt)

    def _time_limit(self, seconds: float, attempt: int) -> int:
        factor, slack = self.slurm["time_factor"], self.slurm["slack_minutes"]
        return time_limit_minutes(seconds, factor, slack, attempt)

    def _resources_with_minutes(
        self, minutes: Callable[[Any, int], int]
    ) -> dict[str, Callable[..., str | int | None]]:
        """Return Slurm resource of a job -> function from which Snakemake gets its value."""

        def resource_of_host(name: str) -> Callable[[Any], str | int | None]:
            return lambda wildcards: self._resources[wildcards.host].get(name)

        return {
            **{name: resource_of_host(name) for name in SLURM_RESOURCES},
            "runtime": lambda wildcards, attempt: minutes(wildcards, attempt),
        }

    @property
    def batch_resources(self) -> dict[str, Callable[..., str | int | None]]:
        """Return the resources of the first job of a batch; Slurm reserves them for the batch."""
        return self._resources_with_minutes(self._minutes_of_batch)

    @property
    def measurement_resources(self) -> dict[str, Callable[..., str | int | None]]:
        """Return the resources of a measurement; in a batch, the measurement adds no time."""
        return self._resources_with_minutes(self._minutes_of_measurement)

    def start_job_watch(self) -> None:
        """Remove batch files of earlier runs and watch jobs; a dry run must not call it."""
        os.environ[RUN_BEGAN_VARIABLE] = utc_now_text()
        for mode in self.campaign.modes.values():
            shutil.rmtree(mode.folder / BATCHES_FOLDER, ignore_errors=True)
        hosts = {self.slurm_node_name(host): host for host in self.campaign.hosts}
        self.watch = SlurmJobAndNodeWatch(hosts, JOB_PREFIX)
        self.watch.start_watching()

    def stop_job_watch(self) -> None:
        """Stop watching jobs, note which hosts are skipped, and print how long jobs waited."""
        if self.watch is None:
            return
        self.watch.stop_watching()
        for host, reason in self.watch.given_up.items():  # the report shows these notes
            write_skipped_host_note(self.campaign.results / host, host, reason)
        if text := describe_queue_and_job_times(self.watch.jobs.values(), self._measured_by_node()):
            print(f"chaosity: {text}.", file=sys.stderr, flush=True)

    def _measured_by_node(self) -> dict[str, tuple[int, float]]:
        """Return Slurm node -> number of the records of this run, and their duration in seconds."""
        found = {}
        for host in self.campaign.hosts:
            seconds = []
            modes = [mode for mode in self.campaign.modes_of_host(host) if mode.has_plan]
            for path in (path for mode in modes for path in mode.record_paths()):
                with contextlib.suppress(ValueError):
                    record = load_record(Path(path))
                    if record["began_at"] >= os.environ[RUN_BEGAN_VARIABLE]:
                        seconds.append(measurement_seconds(record))
            found[self.slurm_node_name(host)] = (len(seconds), sum(seconds))
        return found


# Experiment, point and replicate.
Key = tuple[str, ...]


@dataclass(frozen=True)
class ReplicateToMeasure:
    """A replicate of a point that has to be measured."""

    key: Key
    order: int  # position of the replicate in the host's random order
    seconds: float  # planned duration


# Measurements that run in one Slurm job, one after the other in random order.
Batch = tuple[ReplicateToMeasure, ...]


def planned_seconds(batch: Iterable[ReplicateToMeasure]) -> float:
    """Return the planned duration of all measurements in seconds."""
    return sum(measurement.seconds for measurement in batch)


def time_limit_minutes(seconds: float, factor: float, slack: float, attempt: int = 1) -> int:
    """Return the time limit of a job in minutes: `factor` times planned `seconds`, plus `slack`.

    `slack` are minutes for the start of the job, and for a point that waits for its memory or for
    another measurement on the host. The second attempt gets twice this limit, and the third attempt
    three times.
    """
    return math.ceil(attempt * (seconds * factor / 60.0 + slack))


def cut_measurements_into_batches(
    measurements: Iterable[ReplicateToMeasure], minutes: float
) -> list[Batch]:
    """Divide a host's measurements, in their random order, into batches of about `minutes`.

    A batch ends with the measurement that reaches `minutes`. Only the last batch can be shorter. If
    the last batch is shorter than a tenth of `minutes`, its measurements are added to the batch
    before it.
    """
    parts: list[list[ReplicateToMeasure]] = [[]]
    for measurement in sorted(measurements, key=lambda measurement: measurement.order):
        if planned_seconds(parts[-1]) >= 60.0 * minutes:
            parts.append([])
        parts[-1].append(measurement)
    if len(parts) > 1 and planned_seconds(parts[-1]) < 6.0 * minutes:
        parts[-2:] = [parts[-2] + parts[-1]]
    return [tuple(part) for part in parts if part]
