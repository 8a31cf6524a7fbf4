"""Slurm: what it says of nodes and jobs, and how measurements become jobs.

This room reads and calls Slurm's programs and knows nothing of plans or records. Standard library
and `chaosity.errors` alone.
"""

from chaosity.slurm.job_batches import JobBatch, Measurement, batches
from chaosity.slurm.job_watch import JobWatch, list_slurm_nodes
from chaosity.slurm.slurm_commands import (
    job_resources,
    remove_hint_variables,
    run_slurm_command,
    srun_command,
)
from chaosity.slurm.slurm_jobs import check_job_age, queue_cost_text
from chaosity.slurm.slurm_nodes import SlurmNode, parse_nodes, slurm_node_name

__all__ = [
    "JobBatch",
    "JobWatch",
    "Measurement",
    "SlurmNode",
    "batches",
    "check_job_age",
    "job_resources",
    "list_slurm_nodes",
    "parse_nodes",
    "queue_cost_text",
    "remove_hint_variables",
    "run_slurm_command",
    "slurm_node_name",
    "srun_command",
]
