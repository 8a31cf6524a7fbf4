# Helper functions of the rules, and what they all need to know: config, hosts, plans.
from pathlib import Path

from chaosity.campaign import Campaign, checked_or_exit

# Discovery and the lock belong to the process that a person started; jobs that run elsewhere
# (Slurm) read what it wrote down.
CAMPAIGN = checked_or_exit(
    lambda: Campaign(
        config,
        root=Path(workflow.basedir),
        discover=workflow.is_main_process,
        limits=workflow.global_resources,
        measures=not workflow.dryrun and workflow.is_main_process,
    )
)
RESULTS = config["results"]


wildcard_constraints:
    host="|".join(map(re.escape, CAMPAIGN.hosts)),
    configuration="[A-Za-z0-9_-]+",
    experiment="[a-z][a-z0-9_]*",
    point="[A-Za-z0-9_,=+.-]+",
    replicate=r"\d+",


def point_of(wildcards):
    """The planned point that a record is of."""
    return CAMPAIGN.point(wildcards.host, wildcards.experiment, wildcards.point)


def components_of(wildcards):
    """Files of the components that a point touches."""
    folder = f"{RESULTS}/{wildcards.host}/{wildcards.configuration}/components"
    return [f"{folder}/{name}.json" for name in point_of(wildcards)["components"]]


def order_of(wildcards):
    """Priority of a measurement: the later in the random order, the lower."""
    return -point_of(wildcards)["orders"][int(wildcards.replicate) - 1]


def expected_of(wildcards):
    """How long a measurement takes, in whole seconds, for the estimate of the time left."""
    return round(point_of(wildcards)["estimated_seconds"])


def failures_of(wildcards):
    """How often this replicate has failed: one more failure than last time asks for a retry."""
    return CAMPAIGN.failures(wildcards)


def records_of(wildcards):
    """All records of a host."""
    return CAMPAIGN.records(wildcards.host)
