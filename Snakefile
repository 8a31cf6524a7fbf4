# What `snakemake` runs in this folder: the workflow, whose rules and files are in workflow/.
include: "workflow/Snakefile"


# An included file does not set it, and without it Snakemake would do nothing and call that a success.
workflow.default_target = "all"
