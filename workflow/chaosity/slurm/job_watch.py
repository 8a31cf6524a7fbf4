"""Watch a run's jobs and nodes in Slurm's queue, and report how much time the queue took.

If a node is drained after the run began, a job for it waits until the node is resumed, perhaps for
ever. Such jobs are cancelled by number. Snakemake retries cancelled jobs as often as the profile
allows, and then leaves their points to a later run. Another early end of a job is reported in a
line with the job's number and host.

Only ``squeue`` is used, since it needs no accounting. ``squeue`` lists finished jobs for
``MinJobAge`` seconds; `check_finished_jobs_stay_visible` checks that this time is long enough.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from chaosity.errors import UserError
from chaosity.slurm.slurm_commands import (
    list_slurm_nodes,
    reasons_of_unusable_nodes,
    run_slurm_command,
)
from chaosity.units import format_count

# The fields of `SlurmJob` for squeue(1), and the job's name and folder; times are seconds since
# 1970, see `run_slurm_command`.
SQUEUE_FORMAT = "%i|%T|%n|%V|%S|%e|%r|%j|%Z"
# The executor plugin looks at its jobs at least every 180 s. If a job vanishes in between, the
# plugin waits for ever.
OLDEST_LOOK_SECONDS = 200
# States of jobs that Slurm or a person ended; such an end says nothing about a measurement.
CUT_SHORT = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY"}
CUT_SHORT |= {"PREEMPTED", "TIMEOUT"}
FINISHED = CUT_SHORT | {"COMPLETED", "FAILED"}
# Each look costs two short queries.
LOOK_SECONDS = 15.0
# A node is given up after this many looks in a row found it unusable, since a node may answer late.
LOOKS_IN_TROUBLE = 2


@dataclass(frozen=True)
class SlurmJob:
    """A job in Slurm's queue. Times are seconds since 1970; a time in the future is None."""

    number: str
    state: str
    node: str
    submitted: float
    started: float | None
    ended: float | None


def parse_slurm_jobs_of_run(
    text: str, nodes: Container[str], prefix: str, folder: str, since: float
) -> dict[str, SlurmJob]:
    """Return number -> job of a run, from ``squeue --format`` with `SQUEUE_FORMAT`.

    Jobs of the run have names with `prefix`, run in `folder` on one of `nodes`, and were submitted
    after `since`. Runs of other hosts use the same prefix and folder at the same time.
    """
    found = {}
    for line in text.splitlines():
        fields = line.split("|", 8)
        if len(fields) < 9 or not fields[7].startswith(prefix) or fields[8] != folder:
            continue
        number, state, node, *texts = fields[:6]
        # A missing time is `N/A` or the like.
        submitted, started, ended = (float(x) if x.isdecimal() else None for x in texts)
        job = SlurmJob(
            number,
            state,
            node,
            submitted=submitted or 0.0,
            started=started if state != "PENDING" else None,
            ended=ended if state in FINISHED else None,
        )
        if job.submitted >= since and node in nodes:
            found[job.number] = job
    return found


def check_finished_jobs_stay_visible(configuration: str) -> None:
    """Check in Slurm's configuration that the executor plugin sees the end of every job.

    Raises:
        UserError: a job may leave the list too early, and there is no accounting to query instead.
    """
    age = re.search(r"^MinJobAge\s*=\s*(\d{1,9})\b", configuration, re.MULTILINE)
    storage = re.search(r"^AccountingStorageType\s*=\s*(\S+)", configuration, re.MULTILINE)
    if age is None or int(age[1]) >= OLDEST_LOOK_SECONDS:
        return
    if storage is None or storage[1].endswith("/none"):
        raise UserError(
            f"Slurm forgets finished jobs after {age[1]} s (MinJobAge) and has no accounting, so"
            " the end of a job could be missed",
            "Slurm",
            f"set MinJobAge to {OLDEST_LOOK_SECONDS} or more, or set up accounting",
        )


def describe_queue_and_job_times(
    jobs: Iterable[SlurmJob], measured: Mapping[str, tuple[int, float]]
) -> str | None:
    """Return the waiting and run times of the jobs in one sentence.

    It is None if no job has run, or if nothing was measured.

    For each node, the time from the first submission to the last end has two parts: the run times
    of its jobs, and waiting. The run times consist of measuring and of overhead: the start of
    Snakemake in the job, the start of the step, reading the last discovery.

    Args:
        jobs: the run's jobs, in any order.
        measured: node -> number of measurements, and the seconds that their records say.
    """
    times = [
        (job.node, job.submitted, job.started, job.ended)
        for job in jobs
        if job.started is not None and job.ended is not None
    ]
    points = sum(number for number, _ in measured.values())
    if not times or not points:
        return None
    nodes = {node for node, *_ in times}
    total = sum(
        max(end for node, _, _, end in times if node == own)
        - min(begin for node, begin, _, _ in times if node == own)
        for own in nodes
    )
    ran = sum(ended - started for _, _, started, ended in times)
    measuring = sum(seconds for _, seconds in measured.values())
    return (
        f"{points} measurements in {format_count(len(times), 'Slurm job')} on"
        f" {format_count(len(nodes), 'node')}: {total:.0f} s from submission"
        f" to end, summed over nodes, {measuring:.0f} s of it measuring. Per measurement,"
        f" {(total - ran) / points:.2f} s of waiting in the queue and"
        f" {(ran - measuring) / points:.2f} s of start and end of the jobs"
    )


def _print_message(text: str) -> None:
    """Print one line for the user, between the lines that Snakemake prints."""
    print(f"chaosity: {text}", file=sys.stderr, flush=True)


class SlurmJobAndNodeWatch:
    """A thread that watches a run's jobs and nodes until the run ends.

    Args:
        hosts: name of the node -> its host.
        prefix: prefix of the names of the run's jobs.

    Attributes:
        jobs: number -> job of the run.
        given_up: hosts whose jobs were cancelled, with the reason.
    """

    def __init__(self, hosts: Mapping[str, str], prefix: str) -> None:
        self.hosts, self.prefix = hosts, prefix
        self.folder = os.getcwd()  # noqa: PTH109 - the same text that Snakemake gives to sbatch
        self.began = float(int(time.time()))  # Slurm counts whole seconds
        self.jobs: dict[str, SlurmJob] = {}
        self.given_up: dict[str, str] = {}
        self._reported: set[str] = set()
        self._looks_in_trouble: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="slurm-watch")

    def start_watching(self) -> None:
        """Start to look at jobs and nodes at intervals."""
        self._thread.start()

    def stop_watching(self) -> None:
        """Look once more at jobs and nodes, then stop."""
        self._ended.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """Look once at jobs and nodes; if Slurm does not answer, the next look follows as usual."""
        try:
            text = run_slurm_command(
                "squeue", "--states=all", "--noheader", f"--format={SQUEUE_FORMAT}"
            )
            self.jobs.update(
                parse_slurm_jobs_of_run(text, self.hosts, self.prefix, self.folder, self.began)
            )
            trouble = reasons_of_unusable_nodes(list_slurm_nodes().values())
        except UserError:
            return
        for job in self.jobs.values():
            self._report_cut_short(job)
        for node in self.hosts:
            count = self._looks_in_trouble.get(node, 0) + 1 if node in trouble else 0
            self._looks_in_trouble[node] = count
            if count >= LOOKS_IN_TROUBLE:
                self._give_up(node, trouble[node])

    def _report_cut_short(self, job: SlurmJob) -> None:
        """Report once that a job ended too early; its points do not count as failed."""
        if job.state not in CUT_SHORT or job.number in self._reported:
            return
        self._reported.add(job.number)
        ran = f"after {job.ended - job.started:.0f} s" if job.started and job.ended else "unstarted"
        _print_message(
            f"Slurm job {job.number} on host {self.hosts.get(job.node, job.node)} ended {ran} as"
            f" {job.state}; its finished measurements are kept"
        )

    def _give_up(self, node: str, reason: str) -> None:
        """Cancel the pending jobs of a node that cannot start them."""
        waiting = [
            job.number for job in self.jobs.values() if job.node == node and job.state == "PENDING"
        ]
        if not waiting:
            return
        self.given_up[self.hosts[node]] = reason
        _print_message(
            f"host {self.hosts[node]}: {reason}; cancelling {', '.join(waiting)}, which would wait"
            " for it; a later run measures its points"
        )
        try:
            run_slurm_command("scancel", "--state=PENDING", *waiting)
        except UserError as error:
            _print_message(str(error))
