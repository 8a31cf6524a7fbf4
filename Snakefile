# What is measured and what is made of it, as a table of contents: the rules stand in
# workflow/rules, one file a stage, and their helper functions in workflow/rules/common.smk.
from snakemake.utils import min_version

min_version("9.13")


configfile: f"{workflow.basedir}/workflow/config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/tidy.smk"
include: "workflow/rules/present.smk"


rule all:
    default_target: True
    input:
        [f"{CAMPAIGN.folder(host)}/report.html" for host in CAMPAIGN.hosts],
        # The records stand here too, so that a lost one is noticed though the report is there.
        [CAMPAIGN.records(host) for host in CAMPAIGN.hosts],
