"""Slurm: its nodes, its queue, and measurements as jobs.

This room calls Slurm's programs and parses their output. It knows nothing of plans or records.
"""
