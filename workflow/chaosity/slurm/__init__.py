"""Use Slurm: read its nodes and its queue, and run measurements as its jobs.

This room calls Slurm's programs and parses their output. It does not use plans or records.
"""
