"""Watches a run's jobs and nodes while Snakemake waits for them.

A job for a node that was drained after the run began would stay in the queue until somebody resumes
the node: perhaps for ever. Such jobs are cancelled, by number; Snakemake tries them again as often
as the profile says, and then leaves their points for a later run. Everything else that ends a job
before its time is said in one line with its number and host.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping

from chaosity.errors import UserError
from chaosity.slurm.slurm_commands import run_slurm_command
from chaosity.slurm.slurm_jobs import CUT_SHORT, FORMAT, SlurmJob, parse_jobs
from chaosity.slurm.slurm_nodes import SlurmNode, parse_nodes, unusable_nodes

# A look costs Slurm two cheap questions.
LOOK_SECONDS = 15.0
# A node has to be in trouble at so many looks in a row: one that answers late is no lost node.
PATIENCE = 2


def list_slurm_nodes() -> dict[str, SlurmNode]:
    """All nodes of Slurm's, by name.

    Raises:
        UserError: Slurm does not answer.
    """
    return parse_nodes(run_slurm_command("scontrol", "show", "node", "--oneliner"))


def say(text: str) -> None:
    """One line for a person, beside Snakemake's own."""
    print(f"chaosity: {text}", file=sys.stderr, flush=True)


class JobWatch:
    """The watch over one run.

    Args:
        hosts: host by the name of its node.
        prefix: how the names of the run's jobs begin.
        say: prints a line for a person.
    """

    def __init__(
        self, hosts: Mapping[str, str], prefix: str, say: Callable[[str], None] = say
    ) -> None:
        self.hosts, self.prefix, self.say = dict(hosts), prefix, say
        self.folder = os.getcwd()  # noqa: PTH109 - as Snakemake tells it to sbatch
        self.began = float(int(time.time()))  # Slurm counts whole seconds
        self.jobs: dict[str, SlurmJob] = {}
        # Hosts whose jobs were cancelled, with why.
        self.given_up: dict[str, str] = {}
        self._told: set[str] = set()
        self._seen_in_trouble: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="slurm-watch")

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look a last time, then no more."""
        self._ended.set()
        self._thread.join()
        self.look()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Look once; a Slurm that does not answer is asked again the next time."""
        try:
            said = run_slurm_command("squeue", "--states=all", "--noheader", f"--format={FORMAT}")
            self.jobs.update(parse_jobs(said, self.prefix, self.folder, self.began))
            trouble = unusable_nodes(list_slurm_nodes().values())
        except UserError:
            return
        for job in self.jobs.values():
            self.tell(job)
        for node in self.hosts:
            count = self._seen_in_trouble.get(node, 0) + 1 if node in trouble else 0
            self._seen_in_trouble[node] = count
            if count >= PATIENCE:
                self.give_up(node, trouble[node])

    def tell(self, job: SlurmJob) -> None:
        """Say once that a job was cut short, and that this is no verdict on its points."""
        if job.state not in CUT_SHORT or job.number in self._told:
            return
        self._told.add(job.number)
        ran = f"after {job.ended - job.started:.0f} s" if job.started and job.ended else "unstarted"
        self.say(
            f"Slurm job {job.number} on host {self.hosts.get(job.node, job.node)} ended {ran} as"
            f" {job.state}; what it had measured is kept"
        )

    def give_up(self, node: str, reason: str) -> None:
        """Cancel what still waits for a node that will not take it."""
        waiting = [
            job.number for job in self.jobs.values() if job.node == node and job.state == "PENDING"
        ]
        if not waiting:
            return
        self.given_up[self.hosts[node]] = reason
        self.say(
            f"host {self.hosts[node]}: {reason}; cancelling {', '.join(waiting)}, which would wait"
            " for it; its points are left for later"
        )
        try:
            run_slurm_command("scancel", "--state=PENDING", *waiting)
        except UserError as error:
            self.say(str(error))
