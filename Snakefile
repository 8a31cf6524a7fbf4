# What is measured and what is made of it, as a table of contents: the rules stand in
# workflow/rules, one file a stage, and their helper functions in workflow/rules/common.smk.
from snakemake.utils import min_version

min_version("9.13")


configfile: f"{workflow.basedir}/workflow/config/config.yaml"


if config["configurations"]:

    # Each of them is a run of what stands below, once the host has been set to it.
    include: "workflow/rules/firmware_modes.smk"

    rule all:
        default_target: True
        input:
            [f"{RESULTS}/{host}/compared.txt" for host in CONFIGURATIONS.hosts],

else:

    include: "workflow/rules/common.smk"
    include: "workflow/rules/measure.smk"
    include: "workflow/rules/tidy.smk"
    include: "workflow/rules/analyse.smk"
    include: "workflow/rules/present.smk"

    rule all:
        default_target: True
        input:
            [f"{CAMPAIGN.folder(host)}/report.html" for host in CAMPAIGN.hosts],
            [f"{CAMPAIGN.folder(host)}/exports/notes.txt" for host in CAMPAIGN.hosts],
            # For a single host in a single configuration the report is all there is to see.
            [f"{RESULTS}/index.html"]
            if several_configurations(Path(RESULTS), map(CAMPAIGN.folder, CAMPAIGN.hosts))
            else [],
            # The records stand here too, so that a lost one is noticed though the report is there.
            [CAMPAIGN.records(host) for host in CAMPAIGN.hosts],
