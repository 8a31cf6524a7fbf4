"""Manage the Slurm jobs of a workflow run: nodes, batches, resources, observation and cost.

Only ``workflow/rules/common.smk`` uses this module, and only for ``transport: slurm`` in
the config. In each job Snakemake starts itself twice: to run a step, and to run the batch's
measurements one after the other. Processes within a job do not call Slurm.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from chaosity.campaign.campaign import Campaign, measuring_resource_name
from chaosity.records.atomic_writes_and_record_files import RUN_BEGAN, load_record, utc_now_text
from chaosity.slurm.job_watch_and_queue_cost import (
    SlurmJobAndNodeWatch,
    check_finished_jobs_stay_visible,
    describe_queue_and_job_times,
)
from chaosity.slurm.measurement_batches import (
    Key,
    MeasurementBatch,
    ReplicateToMeasure,
    cut_measurements_into_batches,
)
from chaosity.slurm.slurm_commands import (
    list_slurm_nodes,
    remove_hyper_thread_hint_variables,
    run_slurm_command,
    slurm_node_name,
    whole_node_job_resources,
)
from chaosity.transport.skipped_hosts import note_skipped_host

# Common name of all groups of measurements in Snakemake.
BATCH = "batch"
# Number of measurements in one group; Snakemake needs a number.
UNLIMITED = 10**9
# Prefix of the names of this project's jobs; profiles/cluster passes it to the plugin.
JOB_PREFIX = "chaosity_"
# Names of the Snakemake resources that `whole_node_job_resources` may return.
RESOURCES = ("slurm_extra", "cpus_per_task", "mem_mb", "slurm_partition", "slurm_account")


def _measurement_key(wildcards: Any) -> Key:
    """Return the wildcards of a measurement as a tuple, which identifies the measurement."""
    return tuple(str(value) for value in wildcards)


class CampaignSlurmJobs:
    """The Slurm jobs of a campaign.

    Args:
        campaign: the hosts, plans and records of the run.
        workflow: Snakemake's workflow.

    Raises:
        UserError: Slurm does not answer, or removes jobs from its list before their end is seen.
    """

    def __init__(self, campaign: Campaign, workflow: Any) -> None:
        self.campaign, self.workflow = campaign, workflow
        self.slurm = campaign.config["slurm"]
        self.is_main = bool(workflow.is_main_process)
        self._batches: dict[Key, MeasurementBatch] = {}
        self._resources: dict[str, dict[str, str | int]] = {}
        self.watch: SlurmJobAndNodeWatch | None = None
        # All batches go into the queue at once, so that their waiting times overlap. The exclusive
        # node, and this resource within the job, keep the measurements of a host apart.
        workflow.resourcescope(
            **{measuring_resource_name(name): "local" for name in campaign.hosts}
        )
        if self.is_main:
            remove_hyper_thread_hint_variables(os.environ)
            check_finished_jobs_stay_visible(run_slurm_command("scontrol", "show", "config"))
            nodes = list_slurm_nodes()
            for name in campaign.hosts:
                # A simulated host has no node, so its jobs run anywhere.
                node = nodes.get(self.slurm_node_name(name))
                self._resources[name] = whole_node_job_resources(node, self.slurm) if node else {}
        else:
            processors = int(os.environ.get("SLURM_CPUS_ON_NODE", 1))
            # With mem_mb 0 the step gets the job's memory.
            own: dict[str, str | int] = {"cpus_per_task": processors, "mem_mb": 0}
            self._resources = dict.fromkeys(campaign.hosts, own)

    def set_snakemake_options_for_batches(self) -> None:
        """Change settings of Snakemake (9.27) for which it has no directive, after it created them.

        The measurements of a batch are not connected by files. Snakemake puts unconnected jobs into
        one group only up to a number that is set for the group's name. The names of batches are
        known only later, so the number is set for their common parent name.

        In a job, a failed measurement must not stop the rest of its batch. Snakemake does not pass
        ``--keep-going`` to the processes that it starts there.
        """
        self.workflow.group_settings.group_components = {BATCH: UNLIMITED}
        if not self.is_main:
            self.workflow.execution_settings.keep_going = True

    def slurm_node_name(self, host: str) -> str:
        """Return a host's name in Slurm."""
        return slurm_node_name(host, self.campaign.modes_of(host)[0].variables)

    def batch_name(self, wildcards: Any) -> str:
        """Return the name of a measurement's batch."""
        self.set_snakemake_options_for_batches()
        if not self.is_main:
            return BATCH
        key = _measurement_key(wildcards)
        if key not in self._batches:
            self._cut_into_batches()
        return self._batches[key].name

    def _cut_into_batches(self) -> None:
        """Put measurements without a batch into batches; a checkpoint adds such measurements."""
        found = []
        begun = Counter(batch.host for batch in set(self._batches.values()))
        for job in self.workflow.dag.needrun_jobs():
            if not job.rule.name.endswith("measure"):  # a module's rules may have a prefix
                continue
            own = job.wildcards
            if _measurement_key(own) in self._batches:
                continue
            point = self.campaign.point_of(own)
            order = point["orders"][int(own.replicate) - 1]
            seconds = point["estimated_seconds"]
            found.append(ReplicateToMeasure(_measurement_key(own), own.host, order, seconds))
        for cut in cut_measurements_into_batches(found, self.slurm["minutes_per_job"]):
            batch = replace(cut, number=cut.number + begun[cut.host])
            self.workflow.parent_groupids[batch.name] = BATCH
            for measurement in batch.measurements:
                self._batches[measurement.key] = batch

    def _minutes(self, wildcards: Any, attempt: int) -> int:
        """Return a measurement's part of the time limit of its job, in minutes.

        Snakemake adds the minutes of all measurements of a batch. A minute for each of a hundred
        points of two seconds would be too long. So the batch's first measurement has the whole
        limit.
        """
        key = _measurement_key(wildcards)
        batch = self._batches.get(key)
        if batch is None or batch.measurements[0].key != key:
            return 0
        factor, slack = self.slurm["time_factor"], self.slurm["slack_minutes"]
        return batch.time_limit_minutes(factor, slack, attempt)

    @property
    def measurement_resources(self) -> dict[str, Callable[..., str | int | None]]:
        """Return Snakemake's functions for the Slurm resources of a measurement, by resource."""

        def resource_of_host(name: str) -> Callable[[Any], str | int | None]:
            return lambda wildcards: self._resources[wildcards.host].get(name)

        return {
            **{name: resource_of_host(name) for name in RESOURCES},
            "runtime": lambda wildcards, attempt: self._minutes(wildcards, attempt),
        }

    def start_job_watch(self) -> None:
        """Start to watch the jobs; call it when it is known that this is not a dry run."""
        os.environ[RUN_BEGAN] = utc_now_text()
        hosts = {self.slurm_node_name(host): host for host in self.campaign.hosts}
        self.watch = SlurmJobAndNodeWatch(hosts, JOB_PREFIX)
        self.watch.start_watching()

    def stop_job_watch(self) -> None:
        """Stop watching the jobs, and print the time that they waited in the queue."""
        if self.watch is None:
            return
        self.watch.stop_watching()
        for host, reason in self.watch.given_up.items():  # for the report
            note_skipped_host(self.campaign.results / host, host, reason)
        if text := describe_queue_and_job_times(self.watch.jobs.values(), self._measured_by_node()):
            print(f"chaosity: {text}.", file=sys.stderr, flush=True)

    def _measured_by_node(self) -> dict[str, tuple[int, float]]:
        """Return Slurm node -> number of this run's records and the seconds that they took."""
        found = {}
        for host in self.campaign.hosts:
            seconds = []
            modes = [mode for mode in self.campaign.modes_of(host) if mode.is_known]
            for path in (path for mode in modes for path in mode.record_paths()):
                with contextlib.suppress(ValueError):
                    record = load_record(Path(path))
                    if record["began_at"] >= os.environ[RUN_BEGAN]:
                        end = datetime.fromisoformat(record["finished_at"])
                        begin = datetime.fromisoformat(record["began_at"])
                        seconds.append((end - begin).total_seconds())
            found[self.slurm_node_name(host)] = (len(seconds), sum(seconds))
        return found
