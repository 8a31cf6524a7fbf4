# Helper functions of the rules, and what they all need to know: config, hosts, plans.
from pathlib import Path

from chaosity.campaign.campaign_plans import Campaign, checked_or_exit
from chaosity.campaign.slurm_run import SlurmRun
from chaosity.store import other_configuration_tables

# Discovery belongs to the process that a person started; jobs that run elsewhere (Slurm) read what
# it wrote down.
CAMPAIGN = checked_or_exit(
    lambda: Campaign(config, root=Path(workflow.basedir), discover=workflow.is_main_process)
)
checked_or_exit(lambda: CAMPAIGN.limit(workflow.global_resources, workflow.register_resource))
# The way through Slurm, where the config says so.
CLUSTER = None
if CAMPAIGN.config["transport"] == "slurm":
    CLUSTER = checked_or_exit(lambda: SlurmRun(CAMPAIGN, workflow))
RESULTS = config["results"]


# Seconds of work each, and of no host: they stay in the process that a person started.
localrules:
    all,
    anomalies,
    draw_topology,
    export,
    overview,
    report,
    tidy,


wildcard_constraints:
    host="|".join(map(re.escape, CAMPAIGN.hosts)),
    configuration="[A-Za-z0-9_-]+",
    experiment="[a-z][a-z0-9_]*",
    point="[A-Za-z0-9_,=+.-]+",
    replicate=r"\d+",


onstart:
    checked_or_exit(CAMPAIGN.begin)
    if CLUSTER:
        CLUSTER.begin()


onsuccess:
    if CLUSTER:
        CLUSTER.end()
    checked_or_exit(CAMPAIGN.end)


def point_of(wildcards):
    """The planned point that a record is of."""
    return CAMPAIGN.point(wildcards.host, wildcards.experiment, wildcards.point)


def components_of(wildcards):
    """Files of the components that a point touches."""
    folder = f"{RESULTS}/{wildcards.host}/{wildcards.configuration}/components"
    return [f"{folder}/{name}.json" for name in point_of(wildcards)["components"]]


def order_of(wildcards):
    """Priority of a measurement: the later in the random order, the lower."""
    if CLUSTER:  # no function of a rule is called earlier in a Slurm job
        CLUSTER.settle()
    return -point_of(wildcards)["orders"][int(wildcards.replicate) - 1]


def identity_of(wildcards):
    """What a measurement is: the point's definition, and how often it has failed so far."""
    return [point_of(wildcards)["definition"], CAMPAIGN.failures(wildcards)]


def records_of(wildcards):
    """All records of a host."""
    return CAMPAIGN.records(wildcards.host)


def beside_of(wildcards):
    """Tables of a host's other configurations, as far as they were measured."""
    return other_configuration_tables(Path(RESULTS), wildcards.host, wildcards.configuration)
