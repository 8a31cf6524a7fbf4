"""Data of one run of the workflow: hosts, plans, configurations, Slurm jobs, measured weights."""
