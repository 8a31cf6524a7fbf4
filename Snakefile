# What is measured and what is made of it, as a table of contents: the rules stand in
# workflow/rules, one file a stage, and their helper functions in workflow/rules/common.smk.
from snakemake.utils import min_version

min_version("9.13")


configfile: "workflow/config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/design.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/tidy.smk"


rule all:
    default_target: True
    input:
        [f"{CAMPAIGN.folder(host)}/measurements.parquet" for host in CAMPAIGN.hosts],
