"""Slurm's programs: how they are called, and what a job on a host asks for.

A measurement needs its node whole: every processor that Slurm gives away there, all of its memory,
nobody beside it. It is said in plain numbers of the node and not by ``--hint`` or
``--threads-per-core``, which would take half of the processing units away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from chaosity.errors import UserError
from chaosity.slurm.slurm_nodes import SlurmNode

# Slurm's programs answer at once or not at all (slurmctld is down: they try for some minutes).
ANSWER_SECONDS = 30
# Time limit of the job in which a host describes itself: lstopo alone may take two minutes.
DESCRIBE_MINUTES = 5
# Sites set these; they would silently take hyper-threads away from jobs and steps (sbatch(1)).
HINTS = ("SLURM_HINT", "SBATCH_HINT", "SLURM_THREADS_PER_CORE", "SBATCH_THREADS_PER_CORE")


def run_slurm_command(*command: str) -> str:
    """What one of Slurm's programs prints.

    Raises:
        UserError: it is not installed, failed, or gave no answer in time.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UserError(
            "is not installed", command[0], "submit from a machine that has Slurm's programs"
        )
    try:
        answer = subprocess.run(
            [program, *command[1:]],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
            # Times as seconds since 1970, whatever the site's format and time zone.
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} gave no answer in {ANSWER_SECONDS} s", "Slurm") from None
    if answer.returncode:
        said = (answer.stderr.strip() or "it said nothing").splitlines()[-1]
        raise UserError(f"{command[0]} failed: {said}", "Slurm")
    return answer.stdout


def remove_hint_variables(environment: MutableMapping[str, str]) -> None:
    """Remove the variables by which a site takes hyper-threads away from jobs."""
    for name in HINTS:
        environment.pop(name, None)


def whole_node(node: SlurmNode) -> list[str]:
    """Options that give a job a node to itself, but for processors and memory."""
    return [f"--nodelist={node.name}", "--exclusive"]


def srun_command(
    node: SlurmNode, config: Mapping[str, Any], minutes: int = DESCRIBE_MINUTES
) -> list[str]:
    """The command that runs a program on a node, as a job of its own, through the queue.

    Standard input and output are the program's. A node that is busy is waited for as long as the
    config says, then ``srun`` gives up with a sentence.

    Args:
        node: the node, as Slurm describes it.
        config: the checked config; `slurm` in it.
        minutes: time limit of the job.
    """
    slurm = config["slurm"]
    return [
        "srun",
        "--quiet",
        # Not with the prefix of the measurements' jobs, which are counted and watched.
        "--job-name=chaosity-describe",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={node.processors}",
        *([f"--mem={node.memory_mib}M"] if node.memory_mib else []),
        *whole_node(node),
        # No binding of its own: the program shall see what the job may use, no more and no less.
        "--cpu-bind=none",
        f"--time={minutes}",
        f"--immediate={60 * slurm['wait_minutes']}",
        *queue_options(slurm),
    ]


def queue_options(slurm: Mapping[str, Any]) -> list[str]:
    """Partition and account, where the config names them."""
    names: Sequence[str] = ("partition", "account")
    return [f"--{name}={slurm[name]}" for name in names if slurm[name]]


def job_resources(node: SlurmNode, slurm: Mapping[str, Any]) -> dict[str, Any]:
    """What the executor plugin turns into options of ``sbatch`` and of ``srun`` inside the job.

    Source: snakemake_executor_plugin_slurm/submit_string.py (2.8).
    """
    found = {
        "slurm_extra": " ".join(whole_node(node)),
        # Also given to the step inside, which otherwise gets one processor of the node.
        "cpus_per_task": node.processors,
        "mem_mb": node.memory_mib,
        "slurm_partition": slurm["partition"],
        "slurm_account": slurm["account"],
    }
    return {name: value for name, value in found.items() if value is not None}
