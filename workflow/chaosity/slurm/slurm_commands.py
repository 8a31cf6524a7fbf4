"""Call Slurm's programs: list its nodes, and make the requests of jobs.

A measurement needs a whole node: all processors that Slurm manages there, all memory, and no other
job. So a job requests the node's own numbers. With ``--hint`` or ``--threads-per-core`` the job
would lose half of the processing units.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass

from chaosity.documents.config import SlurmConfig
from chaosity.documents.inventory import HostVariables
from chaosity.errors import UserError

# Slurm's programs answer at once, or try for minutes if slurmctld is down.
ANSWER_SECONDS = 30
# Time limit of the job in which a host describes itself; lstopo may take two minutes.
DESCRIBE_MINUTES = 5
# Variables by which sites take hyper-threads away from jobs, without a message (sbatch(1)).
HINTS = ("SLURM_HINT", "SBATCH_HINT", "SLURM_THREADS_PER_CORE", "SBATCH_THREADS_PER_CORE")
# States and flags in which no new job starts (sinfo(1), NODE STATE CODES). POWERED_DOWN and
# POWERING_UP are not among them: Slurm wakes such a node for a job.
UNUSABLE = {
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
    reason: str  # why it is drained or down, from an administrator or Slurm; may be empty
    processors: int  # number that Slurm manages, without processors reserved for the system
    memory_mib: int  # memory in MiB that Slurm manages; 0 if the site does not manage memory

    @property
    def unusable_reason(self) -> str | None:
        """Return why no job can start on the node, as a clause; None if a job can start."""
        words = dict.fromkeys(UNUSABLE[state] for state in self.states if state in UNUSABLE)
        text = f"node {self.name} is {' and '.join(words)}: reason {self.reason or 'not given'}"
        return text if words else None


def parse_slurm_nodes(text: str) -> dict[str, SlurmNode]:
    """Return name -> node, from the output of ``scontrol show node --oneliner``.

    A ``*`` after the state means that the node does not respond. Other signs mean that the node
    sleeps, wakes up or is under maintenance; newer releases have flags for most of these states.
    """
    found = {}
    for line in text.splitlines():
        # The name becomes an option of Slurm's programs.
        name = re.match(r"NodeName=([A-Za-z0-9][A-Za-z0-9._-]*)(?:\s|$)", line)
        state = re.search(r"\bState=(\S+)", line)
        if name is None or state is None:
            continue
        states = [word for word in re.split(r"[^A-Z_]+", state[1]) if word]
        if "*" in state[1]:
            states.append("NOT_RESPONDING")
        # The reason is at the end, with its author and time in brackets.
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


def reasons_of_unusable_nodes(nodes: Iterable[SlurmNode]) -> dict[str, str]:
    """Return node -> reason, for the nodes on which no job can start."""
    return {node.name: node.unusable_reason for node in nodes if node.unusable_reason}


def slurm_node_name(host: str, variables: HostVariables) -> str:
    """Return a host's name in Slurm: its variable ``chaosity_slurm_node``, else its own name."""
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
            timeout=ANSWER_SECONDS,
            check=False,
            # Times as seconds since 1970, whatever the site's format and time zone.
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )
    except FileNotFoundError:
        remedy = "submit from a machine that has Slurm's programs"
        raise UserError("the program is not installed", command[0], remedy) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} gave no answer in {ANSWER_SECONDS} s", "Slurm") from None
    if answer.returncode:
        message = (answer.stderr.strip() or "without a message").splitlines()[-1]
        raise UserError(f"{command[0]} failed: {message}", "Slurm")
    return answer.stdout


def transport_of_dry_run(transport: str) -> str:
    """Return the transport for a dry run: that of the inventory where Slurm's programs are missing.

    So a campaign can be planned on any machine; the nodes are not asked, and a sentence says so.
    """
    if transport != "slurm" or shutil.which("scontrol"):
        return transport
    text = "Slurm's programs are not installed here, so this dry run does not ask Slurm's nodes"
    print(f"chaosity: {text}; hosts are described as without Slurm.", file=sys.stderr)
    return "inventory"


def list_slurm_nodes() -> dict[str, SlurmNode]:
    """Return all nodes of Slurm, by name."""
    return parse_slurm_nodes(run_slurm_command("scontrol", "show", "node", "--oneliner"))


def remove_hyper_thread_hint_variables(environment: MutableMapping[str, str]) -> None:
    """Remove the environment variables by which a site excludes hyper-threads from jobs."""
    for name in HINTS:
        environment.pop(name, None)


def _whole_node_options(node: SlurmNode) -> list[str]:
    """Return the options for a whole node, except those for processors and memory."""
    return [f"--nodelist={node.name}", "--exclusive"]


def srun_command_for_description(node: SlurmNode, slurm: SlurmConfig) -> list[str]:
    """Return the command that makes the host's description on a node, as a separate job.

    Standard input and output are those of the program. If the node is busy, ``srun`` waits as long
    as the config allows, then fails with a message.
    """
    queue = {"partition": slurm["partition"], "account": slurm["account"]}
    return [
        "srun",
        "--quiet",
        # No prefix of the measurements' jobs: only jobs with that prefix are counted and watched.
        "--job-name=chaosity-describe",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={node.processors}",
        *([f"--mem={node.memory_mib}M"] if node.memory_mib else []),
        *_whole_node_options(node),
        # Without binding, so that the program sees exactly what the job may use.
        "--cpu-bind=none",
        f"--time={DESCRIBE_MINUTES}",
        f"--immediate={60 * slurm['wait_minutes']}",
        *(f"--{name}={value}" for name, value in queue.items() if value),
    ]


def whole_node_job_resources(node: SlurmNode, slurm: SlurmConfig) -> dict[str, str | int]:
    """Return the resources of a measurement's job, which must get the whole node.

    The executor plugin converts the resources into options of ``sbatch``, and ``srun`` in the job.
    Source: snakemake_executor_plugin_slurm/submit_string.py (2.8).
    """
    found: dict[str, str | int | None] = {
        "slurm_extra": " ".join(_whole_node_options(node)),
        # The step inside the job needs this number too; otherwise the step gets one processor.
        "cpus_per_task": node.processors,
        "mem_mb": node.memory_mib,
        "slurm_partition": slurm["partition"],
        "slurm_account": slurm["account"],
    }
    return {name: value for name, value in found.items() if value is not None}
