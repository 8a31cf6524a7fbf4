# What `snakemake` runs in this folder: the workflow, whose rules and files are in workflow/.
include: "workflow/Snakefile"
