"""One run of the workflow: its hosts, configurations, plans, Slurm jobs and kept page weights."""
