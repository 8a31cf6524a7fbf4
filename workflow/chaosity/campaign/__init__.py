"""Data of one run of the workflow: hosts, configurations, plans, Slurm jobs, kept page weights."""
