"""Call Slurm's programs: list Slurm's nodes, request jobs, and watch the jobs of a run.

A measurement needs a node without other jobs, and all processors and all memory of this node that
Slurm manages. So a job requests exactly the processors and the memory of its node. With ``--hint``
or ``--threads-per-core`` the job would lose half of the processing units.

If a node is drained after the run began, a job for this node waits until the node is resumed,
perhaps for ever. So jobs that wait for a drained node are cancelled by their numbers. Snakemake
retries cancelled jobs as often as the profile allows; a later run measures the points that remain.
If a job ends early for another reason, a line with the job's number and host is printed. Jobs are
listed only by ``squeue``, since this program needs no accounting.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

from chaosity.documents.config import SlurmConfig
from chaosity.documents.inventory import HostVariables
from chaosity.errors import UserError
from chaosity.units import format_count

# Longest time that this program waits for Slurm's programs, which usually answer at once. If
# slurmctld is down, they try for minutes.
MOST_SECONDS_FOR_ANSWER = 30
# Time limit of the job in which a host describes itself; lstopo may take two minutes.
TIME_LIMIT_MINUTES_OF_DESCRIPTION = 5
# Environment variables that exclude hyper-threads from jobs without a message (sbatch(1)).
HYPER_THREAD_HINT_VARIABLES = (
    "SLURM_HINT",
    "SBATCH_HINT",
    "SLURM_THREADS_PER_CORE",
    "SBATCH_THREADS_PER_CORE",
)
# States and flags of nodes on which no new job starts (sinfo(1), NODE STATE CODES), and the words
# for them. POWERED_DOWN and POWERING_UP are absent, since Slurm wakes nodes in these states for a
# job.
WORDS_OF_UNUSABLE_STATES = {
    "DOWN": "down",
    "DRAIN": "drained",
    "DRAINED": "drained",
    "DRAINING": "draining",
    "ERROR": "in error",
    "FAIL": "failing",
    "FAILING": "failing",
    "FUTURE": "not available yet",
    "INVAL": "different from its configuration",
    "INVALID_REG": "different from its configuration",
    "MAINT": "under maintenance",
    "NOT_RESPONDING": "not responding",
    "REBOOT_ISSUED": "rebooting",
    "UNKNOWN": "in an unknown state",
}


@dataclass(frozen=True)
class SlurmNode:
    """A node in Slurm."""

    name: str
    states: tuple[str, ...]  # state and flags of the node, such as ``("IDLE", "DRAIN")``
    # The reason of an administrator or of Slurm why the node is drained or down; can be empty.
    reason: str
    processors: int  # number of processors that Slurm manages and does not reserve for the system
    memory_mib: int  # memory in MiB that Slurm manages; 0 if the site does not manage memory

    @property
    def unusable_reason(self) -> str | None:
        """Return why no job can start on the node, as a clause; None if a job can start."""
        words = dict.fromkeys(
            WORDS_OF_UNUSABLE_STATES[state]
            for state in self.states
            if state in WORDS_OF_UNUSABLE_STATES
        )
        text = f"node {self.name} is {' and '.join(words)}: reason {self.reason or 'not given'}"
        return text if words else None


def parse_slurm_nodes(text: str) -> dict[str, SlurmNode]:
    """Return name -> node, from the output of ``scontrol show node --oneliner``.

    A ``*`` after the state means that the node does not respond. Other characters after the state
    (node asleep, waking up, in maintenance) are ignored. Newer releases of Slurm print words in
    place of most of these characters.
    """
    found = {}
    for line in text.splitlines():
        # The name becomes part of an option of Slurm's programs, so only safe characters are
        # allowed.
        name = re.match(r"NodeName=([A-Za-z0-9][A-Za-z0-9._-]*)(?:\s|$)", line)
        state = re.search(r"\bState=(\S+)", line)
        if name is None or state is None:
            continue
        states = [word for word in re.split(r"[^A-Z_]+", state[1]) if word]
        if "*" in state[1]:
            states.append("NOT_RESPONDING")
        # The reason is at the end of a line, followed by its author and time in brackets.
        reason = re.search(r"\bReason=(.*?)(?: \[[^\]]*\])?(?: Comment=.*)?$", line.rstrip())
        memory = _whole_number(line, "RealMemory") - _whole_number(line, "MemSpecLimit")
        found[name[1]] = SlurmNode(
            name=name[1],
            states=tuple(states),
            reason=reason[1].strip() if reason else "",
            processors=_whole_number(line, "CPUEfctv") or _whole_number(line, "CPUTot"),
            # Slurm's default of 1 MiB means that the site did not configure the memory.
            memory_mib=memory if memory > 1 else 0,
        )
    return found


def _whole_number(text: str, name: str) -> int:
    """Return the whole number called `name` in a node's description; 0 if it is missing."""
    match = re.search(rf"\b{name}=(\d{{1,15}})\b", text)
    return int(match[1]) if match else 0


def slurm_node_name(host: str, variables: HostVariables) -> str:
    """Return a host's name in Slurm: its variable ``chaosity_slurm_node``, or else its name."""
    return variables.get("chaosity_slurm_node", host)


def run_slurm_command(*command: str) -> str:
    """Return the output of one of Slurm's programs.

    Raises:
        UserError: the program is not installed, failed, or gave no answer in time.
    """
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS_FOR_ANSWER,
            check=False,
            # With this format Slurm prints times as seconds since 1970, whatever format and time
            # zone the site has.
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )
    except FileNotFoundError:
        remedy = "submit from a machine that has Slurm's programs"
        raise UserError("the program is not installed", command[0], remedy) from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{command[0]} gave no answer in {MOST_SECONDS_FOR_ANSWER} s", "Slurm"
        ) from None
    if answer.returncode:
        message = (answer.stderr.strip() or "without a message").splitlines()[-1]
        raise UserError(f"{command[0]} failed: {message}", "Slurm")
    return answer.stdout


def transport_of_dry_run(transport: str) -> str:
    """Return the transport for a dry run: "inventory" replaces "slurm" if Slurm is not installed.

    So a dry run works on any machine. A dry run without Slurm's programs does not ask Slurm for its
    nodes; a printed line says so.
    """
    if transport != "slurm" or shutil.which("scontrol"):
        return transport
    what = "Slurm's programs are not installed here, so this dry run does not ask for Slurm's nodes"
    how = "plans the hosts as if without Slurm"
    remedy = "repeat the command on a machine that has scontrol, such as a login node"
    print(f"chaosity: {what} and {how}; to plan with Slurm's nodes, {remedy}.", file=sys.stderr)
    return "inventory"


def list_slurm_nodes() -> dict[str, SlurmNode]:
    """Return name -> node, for all nodes of Slurm."""
    return parse_slurm_nodes(run_slurm_command("scontrol", "show", "node", "--oneliner"))


def remove_hyper_thread_hint_variables(environment: MutableMapping[str, str]) -> None:
    """Remove the environment variables by which a site excludes hyper-threads from jobs."""
    for name in HYPER_THREAD_HINT_VARIABLES:
        environment.pop(name, None)


def srun_command_for_host_description(node: SlurmNode, slurm: SlurmConfig) -> list[str]:
    """Return the ``srun`` command of a separate job in which the host of a node describes itself.

    The program that runs on the node reads the standard input of ``srun`` and writes to its
    standard output. If the node is busy, ``srun`` waits as long as the config allows, then fails
    with a message.
    """
    queue = {"partition": slurm["partition"], "account": slurm["account"]}
    return [
        "srun",
        "--quiet",
        # The name of this job lacks the prefix of measurement jobs, since all jobs with this prefix
        # are counted and watched.
        "--job-name=chaosity-describe",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={node.processors}",
        *([f"--mem={node.memory_mib}M"] if node.memory_mib else []),
        f"--nodelist={node.name}",
        "--exclusive",
        # CPU binding is off, so that the program sees all processors that the job may use.
        "--cpu-bind=none",
        f"--time={TIME_LIMIT_MINUTES_OF_DESCRIPTION}",
        f"--immediate={60 * slurm['wait_minutes']}",
        *(f"--{name}={value}" for name, value in queue.items() if value),
    ]


def whole_node_job_resources(node: SlurmNode, slurm: SlurmConfig) -> dict[str, str | int]:
    """Return the resources of a measurement's job, so that the job gets a node without other jobs.

    Snakemake's executor plugin converts the resources into options of ``sbatch``, and of ``srun``
    in the job. Source: snakemake_executor_plugin_slurm/submit_string.py (2.8).
    """
    found: dict[str, str | int | None] = {
        "slurm_extra": f"--nodelist={node.name} --exclusive",
        # The step inside the job also needs the number of processors, or else the step gets one
        # processor.
        "cpus_per_task": node.processors,
        "mem_mb": node.memory_mib,
        "slurm_partition": slurm["partition"],
        "slurm_account": slurm["account"],
    }
    return {name: value for name, value in found.items() if value is not None}


# Format in which squeue(1) prints each job: the fields of `SlurmJob`, then the job's name and
# folder. Times are seconds since 1970, see `run_slurm_command`.
SQUEUE_FORMAT = "%i|%T|%n|%V|%S|%e|%r|%j|%Z"
# The executor plugin queries its jobs at least every 180 s. If a finished job vanishes from Slurm
# between two queries, the plugin waits for ever.
LEAST_SECONDS_JOBS_STAY_VISIBLE = 200
# Final states of jobs that Slurm or a person ended, which says nothing about the measurements of
# the job.
STATES_OF_ABORTED_JOBS = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY"}
STATES_OF_ABORTED_JOBS |= {"PREEMPTED", "TIMEOUT"}
STATES_OF_FINISHED_JOBS = STATES_OF_ABORTED_JOBS | {"COMPLETED", "FAILED"}
# Seconds between two queries of jobs and nodes; each time, two short queries are made.
WATCH_INTERVAL_SECONDS = 15.0
# Number of consecutive queries in which a node must be unusable before its jobs are cancelled. One
# query is too few, since a node may answer late.
LOOKS_BEFORE_NODE_IS_GIVEN_UP = 2


@dataclass(frozen=True)
class SlurmJob:
    """A job in Slurm's queue. Times are seconds since 1970, or None if not known yet."""

    number: str
    state: str
    node: str
    submitted: float
    started: float | None
    ended: float | None


def parse_slurm_jobs_of_run(
    text: str, nodes: Container[str], prefix: str, folder: str, since: float
) -> dict[str, SlurmJob]:
    """Return job number -> job of this run, from the output of ``squeue`` with `SQUEUE_FORMAT`.

    A job belongs to the run if its name begins with `prefix`, it runs in `folder` on one of
    `nodes`, and it was submitted after `since`. Prefix and folder do not suffice, since
    simultaneous runs of other hosts use the same prefix and folder.
    """
    found = {}
    for line in text.splitlines():
        fields = line.split("|", 8)
        if len(fields) < 9 or not fields[7].startswith(prefix) or fields[8] != folder:
            continue
        number, state, node, *texts = fields[:6]
        # Slurm prints a missing time as `N/A` or another word.
        submitted, started, ended = (float(x) if x.isdecimal() else None for x in texts)
        job = SlurmJob(
            number,
            state,
            node,
            submitted=submitted or 0.0,
            started=started if state != "PENDING" else None,
            ended=ended if state in STATES_OF_FINISHED_JOBS else None,
        )
        if job.submitted >= since and node in nodes:
            found[job.number] = job
    return found


def check_finished_jobs_stay_visible(configuration: str) -> None:
    """Check in Slurm's configuration that the executor plugin sees the end of every job.

    Raises:
        UserError: Slurm may forget a finished job too early, and has no accounting that could be
            queried instead.
    """
    age = re.search(r"^MinJobAge\s*=\s*(\d{1,9})\b", configuration, re.MULTILINE)
    storage = re.search(r"^AccountingStorageType\s*=\s*(\S+)", configuration, re.MULTILINE)
    if age is None or int(age[1]) >= LEAST_SECONDS_JOBS_STAY_VISIBLE:
        return
    if storage is None or storage[1].endswith("/none"):
        raise UserError(
            f"Slurm forgets finished jobs after {age[1]} s (MinJobAge) and has no accounting, so"
            " the end of a job could be missed",
            "Slurm",
            f"set MinJobAge to {LEAST_SECONDS_JOBS_STAY_VISIBLE} or more, or set up accounting",
        )


def describe_queue_and_job_times(
    jobs: Iterable[SlurmJob], measured: Mapping[str, tuple[int, float]]
) -> str | None:
    """Return the waiting times and run times of the jobs in one sentence.

    Return None if no job has run, or if nothing was measured. `measured` is node -> (number of
    measurements, seconds that these measurements took according to their records).

    For each node, the time from the first submission to the last end has two parts: the run times
    of the node's jobs, and waiting. The run times consist of measuring and of overhead: the start
    of Snakemake in the job, the start of the job's step, and reading the last discovery.
    """
    nodes: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for job in jobs:
        if job.started is not None and job.ended is not None:
            nodes[job.node].append((job.submitted, job.started, job.ended))
    times = [own for each in nodes.values() for own in each]
    points = sum(number for number, _ in measured.values())
    if not times or not points:
        return None
    total = sum(max(end for *_, end in own) - min(own)[0] for own in nodes.values())
    ran = sum(ended - started for _, started, ended in times)
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

    `hosts` is node name -> host name. The names of the run's jobs begin with `prefix`. `jobs` is
    job number -> job. `given_up` is host -> reason, for hosts whose jobs were cancelled.
    """

    def __init__(self, hosts: Mapping[str, str], prefix: str) -> None:
        self.hosts, self.prefix = hosts, prefix
        self.folder = os.getcwd()  # noqa: PTH109 - the same text that Snakemake gives to sbatch
        self.began = float(int(time.time()))  # Slurm rounds times to seconds
        self.jobs: dict[str, SlurmJob] = {}
        self.given_up: dict[str, str] = {}
        self._reported: set[str] = set()
        self._looks_in_trouble: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._watch_until_stopped, daemon=True, name="slurm-watch"
        )

    def start_watching(self) -> None:
        """Start a thread that queries jobs and nodes at intervals."""
        self._thread.start()

    def stop_watching(self) -> None:
        """Query jobs and nodes once more, then stop the thread."""
        self._ended.set()
        self._thread.join()
        self._look_at_jobs_and_nodes()

    def _watch_until_stopped(self) -> None:
        while not self._ended.wait(WATCH_INTERVAL_SECONDS):
            self._look_at_jobs_and_nodes()

    def _look_at_jobs_and_nodes(self) -> None:
        """Query jobs and nodes once. If Slurm does not answer, the next query tries again."""
        try:
            text = run_slurm_command(
                "squeue", "--states=all", "--noheader", f"--format={SQUEUE_FORMAT}"
            )
            self.jobs.update(
                parse_slurm_jobs_of_run(text, self.hosts, self.prefix, self.folder, self.began)
            )
            nodes = list_slurm_nodes()
        except UserError:
            return
        for job in self.jobs.values():
            self._report_aborted_job(job)
        for node in self.hosts:
            reason = nodes[node].unusable_reason if node in nodes else None
            self._looks_in_trouble[node] = self._looks_in_trouble[node] + 1 if reason else 0
            if reason and self._looks_in_trouble[node] >= LOOKS_BEFORE_NODE_IS_GIVEN_UP:
                self._give_up_node(node, reason)

    def _report_aborted_job(self, job: SlurmJob) -> None:
        """Report once that a job ended too early, so that its points do not count as failed."""
        if job.state not in STATES_OF_ABORTED_JOBS or job.number in self._reported:
            return
        self._reported.add(job.number)
        ran = f"after {job.ended - job.started:.0f} s" if job.started and job.ended else "unstarted"
        _print_message(
            f"Slurm job {job.number} on host {self.hosts.get(job.node, job.node)} ended {ran} as"
            f" {job.state}; its finished measurements are kept"
        )

    def _give_up_node(self, node: str, reason: str) -> None:
        """Cancel the pending jobs of a node on which no job can start."""
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
