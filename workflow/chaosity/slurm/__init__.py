"""Use Slurm: read its nodes and its queue, and run measurements as its jobs.

This Python package calls Slurm's programs and parses their output, without plans or records.
"""
