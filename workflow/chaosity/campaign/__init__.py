"""What one run of the workflow knows: hosts, plans, firmware modes, Slurm and measured weights."""
