"""What a run through Slurm knows beyond its campaign: nodes, batches, the watch, and the cost.

Used by ``workflow/rules/common.smk`` alone, and only when the config says ``transport: slurm``.
Snakemake starts itself again twice in each job: once to make a step of it, once to run the batch's
measurements one after the other. Those processes ask Slurm nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from chaosity.campaign.campaign_plans import Campaign, resource_name
from chaosity.records import RUN_BEGAN, load_record, utc_now
from chaosity.slurm import (
    JobBatch,
    JobWatch,
    Measurement,
    batches,
    check_job_age,
    job_resources,
    list_slurm_nodes,
    queue_cost_text,
    remove_hint_variables,
    run_slurm_command,
)
from chaosity.slurm.slurm_nodes import slurm_node_name
from chaosity.transport.skipped_hosts import skip_host

# How Snakemake calls all groups of measurements together, see `SlurmRun.prepare`.
BATCH = "batch"
# Measurements in one group; Snakemake wants a number.
UNLIMITED = 10**9
# How the names of this project's jobs begin; profiles/cluster says the same to the plugin.
JOB_PREFIX = "chaosity_"
# What `job_resources` may give for a node, and the time limit.
RESOURCES = ("slurm_extra", "cpus_per_task", "mem_mb", "slurm_partition", "slurm_account")


def seconds_between(begin: str, end: str) -> float:
    """Seconds from one time of a record to another (see `records.utc_now`)."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


class SlurmRun:
    """The way of a campaign through Slurm.

    Args:
        campaign: hosts, plans and records of the run.
        workflow: Snakemake's workflow.

    Raises:
        UserError: Slurm does not answer, or forgets jobs before their end is seen.
    """

    def __init__(self, campaign: Campaign, workflow: Any) -> None:
        self.campaign, self.workflow = campaign, workflow
        self.slurm = campaign.config["slurm"]
        self.first = workflow.is_main_process
        self._batches: dict[tuple[str, ...], JobBatch] = {}
        self._resources: dict[str, dict[str, Any]] = {}
        self.watch: JobWatch | None = None
        # All batches go into the queue at once, so that their waits overlap. One measurement at a
        # time on a host is left to the exclusive node, and inside a job to the same resource.
        workflow.resourcescope(**{resource_name(name): "local" for name in campaign.hosts})
        if self.first:
            remove_hint_variables(os.environ)
            check_job_age(run_slurm_command("scontrol", "show", "config"))
            nodes = list_slurm_nodes()
            for name in campaign.hosts:
                self._resources[name] = job_resources(nodes[self.node(name)], self.slurm)
        else:
            processors = int(os.environ.get("SLURM_CPUS_ON_NODE", 1))
            own = {"cpus_per_task": processors, "mem_mb": 0}  # the step gets the job's memory
            self._resources = dict.fromkeys(campaign.hosts, own)

    def settle(self) -> None:
        """Tell Snakemake (9.27) what it has no directive for, as soon as it has its settings.

        Measurements in a group are not connected by files, and Snakemake puts unconnected jobs of a
        group together only up to a number that is set for the group's name. The names of batches
        are only known later, so they get a common parent, as names with wildcards have.

        In a job, a measurement that crashes must not keep the rest of its batch from being tried;
        Snakemake does not hand ``--keep-going`` on to the processes that it starts there.
        """
        self.workflow.group_settings.group_components = {BATCH: UNLIMITED}
        if not self.first:
            self.workflow.execution_settings.keep_going = True

    def node(self, host: str) -> str:
        """The name that Slurm has for a host."""
        return slurm_node_name(host, self.campaign.hosts[host].variables)

    def batch_of(self, wildcards: Any) -> str:
        """Name of the batch that a measurement belongs to."""
        self.settle()
        if not self.first:
            return BATCH
        key = tuple(wildcards)
        if key not in self._batches:
            self.cut()
        return self._batches[key].name

    def cut(self) -> None:
        """Cut all measurements that this run has to take into batches."""
        found = []
        for job in self.workflow.dag.needrun_jobs():
            if job.rule.name != "measure":
                continue
            its = job.wildcards
            point = self.campaign.point(its.host, its.experiment, its.point)
            order = point["orders"][int(its.replicate) - 1]
            seconds = point["estimated_seconds"]
            found.append(Measurement(tuple(its), its.host, order, seconds))
        for batch in batches(found, self.slurm["minutes_per_job"]):
            self.workflow.parent_groupids[batch.name] = BATCH
            for one in batch.measurements:
                self._batches[one.key] = batch

    def minutes(self, wildcards: Any, attempt: int) -> int:
        """A measurement's part of its job's time limit, in minutes.

        Snakemake adds up the parts of a group. Whole minutes for each of a hundred points of two
        seconds would be far too many, so the first one carries all.
        """
        batch = self._batches.get(tuple(wildcards))
        if batch is None or batch.measurements[0].key != tuple(wildcards):
            return 0
        return batch.minutes(self.slurm["time_factor"], self.slurm["slack_minutes"], attempt)

    @property
    def resources(self) -> dict[str, Callable[..., Any]]:
        """What measurements ask of Slurm, as Snakemake's resources."""

        def its(name: str) -> Callable[[Any], Any]:
            return lambda wildcards: self._resources[wildcards.host].get(name)

        return {
            **{name: its(name) for name in RESOURCES},
            "runtime": lambda wildcards, attempt: self.minutes(wildcards, attempt),
        }

    def begin(self) -> None:
        """Begin to watch, once it is known that this is no dry run."""
        os.environ[RUN_BEGAN] = utc_now()
        self.watch = JobWatch({self.node(host): host for host in self.campaign.hosts}, JOB_PREFIX)
        self.watch.start()

    def end(self) -> None:
        """Stop watching and say what the queue cost."""
        if self.watch is None:
            return
        self.watch.stop()
        for host, reason in self.watch.given_up.items():  # the report says so
            skip_host(self.campaign.results / host, host, reason)
        sentence = queue_cost_text(self.watch.jobs.values(), self.measured())
        if sentence:
            print(f"chaosity: {sentence}.", file=sys.stderr, flush=True)

    def measured(self) -> dict[str, tuple[int, float]]:
        """How many records this run made, and the seconds they took, by node."""
        found = {}
        for host in self.campaign.hosts:
            spent = []
            for path in self.campaign.records(host):
                with contextlib.suppress(ValueError):
                    record = load_record(Path(path))
                    if record["began_at"] >= os.environ[RUN_BEGAN]:
                        spent.append(seconds_between(record["began_at"], record["finished_at"]))
            found[self.node(host)] = (len(spent), sum(spent))
        return found
