"""Slurm: its nodes, its queue, and measurements as jobs.

This room calls Slurm's programs and parses their output. It knows nothing of plans or records.
"""

from chaosity.slurm.job_batches import JobBatch, ReplicateToMeasure, cut_into_batches
from chaosity.slurm.queue_watch import QueueWatch, check_finished_jobs_stay_visible, queue_cost_text
from chaosity.slurm.slurm_commands import (
    SlurmNode,
    job_resources,
    list_slurm_nodes,
    parse_slurm_nodes,
    remove_hint_variables,
    run_slurm_command,
    slurm_node_name,
    srun_command,
)

__all__ = [
    "JobBatch",
    "QueueWatch",
    "ReplicateToMeasure",
    "SlurmNode",
    "check_finished_jobs_stay_visible",
    "cut_into_batches",
    "job_resources",
    "list_slurm_nodes",
    "parse_slurm_nodes",
    "queue_cost_text",
    "remove_hint_variables",
    "run_slurm_command",
    "slurm_node_name",
    "srun_command",
]
