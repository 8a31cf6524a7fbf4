"""Slurm: what it says of nodes and jobs, and how measurements become jobs.

This room reads and calls Slurm's programs and knows nothing of plans or records. Standard library
and `chaosity.errors` alone.
"""

from chaosity.slurm.batches import Batch, Measurement, batches
from chaosity.slurm.commands import ask, forget_hints, job_resources, srun_command
from chaosity.slurm.jobs import check_job_age, cost_sentence
from chaosity.slurm.nodes import Node, node_of, read_nodes
from chaosity.slurm.watch import Watch, see_nodes

__all__ = [
    "Batch",
    "Measurement",
    "Node",
    "Watch",
    "ask",
    "batches",
    "check_job_age",
    "cost_sentence",
    "forget_hints",
    "job_resources",
    "node_of",
    "read_nodes",
    "see_nodes",
    "srun_command",
]
