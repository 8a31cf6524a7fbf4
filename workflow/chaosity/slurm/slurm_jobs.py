"""The jobs of a run, as Slurm's queue shows them, and what the queue costs.

``squeue`` alone is asked, so that it works with and without accounting: it shows finished jobs for
``MinJobAge`` seconds after their end, which the run checks to be long enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from chaosity.errors import UserError

# The fields of `SlurmJob` in squeue's signs (squeue(1)); times are seconds since 1970, see
# `run_slurm_command`.
FORMAT = "%i|%T|%n|%V|%S|%e|%r|%j|%Z"
# The executor plugin looks at its jobs at least every 180 s; one that vanished in between would be
# waited for for ever.
OLDEST_LOOK_SECONDS = 200
# Ends that are Slurm's doing or a person's, and no verdict on a measurement.
CUT_SHORT = (
    "BOOT_FAIL",
    "CANCELLED",
    "DEADLINE",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
OVER = (*CUT_SHORT, "COMPLETED", "FAILED")


@dataclass(frozen=True)
class SlurmJob:
    """A job. Times are seconds since 1970, None while they lie ahead."""

    number: str
    state: str
    node: str
    submitted: float
    started: float | None
    ended: float | None
    reason: str

    @property
    def over(self) -> bool:
        """Whether it has ended, however."""
        return self.state in OVER


def seconds(text: str) -> float | None:
    """A time, None for ``N/A`` and the like."""
    return float(text) if text.isdigit() else None


def parse_jobs(text: str, prefix: str, folder: str, since: float) -> dict[str, SlurmJob]:
    """The jobs of a run by number, from ``squeue --format`` with `FORMAT`.

    Args:
        text: what squeue printed.
        prefix: how the names of the run's jobs begin.
        folder: their working directory.
        since: begin of the run; older jobs are an earlier run's.
    """
    found = {}
    for line in text.splitlines():
        fields = line.split("|", 8)
        if len(fields) < 9 or not fields[7].startswith(prefix) or fields[8] != folder:
            continue
        job = SlurmJob(
            number=fields[0],
            state=fields[1],
            node=fields[2],
            submitted=seconds(fields[3]) or 0.0,
            started=seconds(fields[4]) if fields[1] != "PENDING" else None,
            ended=seconds(fields[5]) if fields[1] in OVER else None,
            reason=fields[6],
        )
        if job.submitted >= since:
            found[job.number] = job
    return found


def check_job_age(configuration: str) -> None:
    """Make sure that a finished job stays in sight until it has been looked at.

    Args:
        configuration: what ``scontrol show config`` prints.

    Raises:
        UserError: it might vanish unseen, and there is no accounting to ask instead.
    """
    age = re.search(r"^MinJobAge\s*=\s*(\d+)", configuration, re.MULTILINE)
    storage = re.search(r"^AccountingStorageType\s*=\s*(\S+)", configuration, re.MULTILINE)
    if age is None or int(age.group(1)) >= OLDEST_LOOK_SECONDS:
        return
    if storage is None or storage.group(1).endswith("/none"):
        raise UserError(
            f"forgets finished jobs after {age.group(1)} s (MinJobAge) and keeps no accounts, so a"
            " job's end might not be noticed",
            "Slurm",
            f"have MinJobAge set to {OLDEST_LOOK_SECONDS} or more, or accounting",
        )


def queue_cost_text(jobs: Iterable[SlurmJob], measured: dict[str, tuple[int, float]]) -> str | None:
    """What going through the queue cost, in one sentence.

    For each node the time from the first submission to the last end is split into what its jobs
    ran and what it waited for them; what they ran is split into measuring and all else (Snakemake
    in the job, the step, the discovery of nothing new).

    Args:
        jobs: the run's jobs that have started, in any order.
        measured: number of measurements and the seconds they took by their own records, by node.

    Returns:
        None when no job has run.
    """
    by_node: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        if job.started is not None and job.ended is not None:
            by_node.setdefault(job.node, []).append(job)
    total = waited = ran = 0.0
    for ones in by_node.values():
        span = max(job.ended for job in ones) - min(job.submitted for job in ones)
        at_work = sum(job.ended - job.started for job in ones)
        total, waited, ran = total + span, waited + span - at_work, ran + at_work
    points = sum(number for number, _ in measured.values())
    records = sum(spent for _, spent in measured.values())
    if not by_node or not points:
        return None
    count = sum(map(len, by_node.values()))
    return (
        f"{points} measurements went through Slurm in {count} {'job' if count == 1 else 'jobs'} on"
        f" {len(by_node)} {'node' if len(by_node) == 1 else 'nodes'}: {total:.0f} s from submission"
        f" to end, added up over nodes, of which {records:.0f} s measuring; the queue cost"
        f" {waited / points:.2f} s a measurement in waiting and {(ran - records) / points:.2f} s"
        " in the jobs' own start and end"
    )
