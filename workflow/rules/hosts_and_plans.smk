# What all rules use: the config, hosts and plans of the run, and functions for inputs and parameters.
import inspect
import shlex
from pathlib import Path

from chaosity.campaign.hosts_and_plans_of_run import Campaign, call_or_exit_on_user_error
from chaosity.campaign.campaign_slurm_jobs import CampaignSlurmJobs
from chaosity.result_folders import other_configuration_tables

# Only the process that a person starts discovers hosts. Jobs that run elsewhere (Slurm) read its
# files.
CAMPAIGN = call_or_exit_on_user_error(
    lambda: Campaign(
        config,
        root=ROOT,
        discover=workflow.is_main_process and not LINTING,
        with_hosts=not LINTING,
    )
)
call_or_exit_on_user_error(
    lambda: CAMPAIGN.allow_one_measurement_per_host(
        workflow.global_resources, workflow.register_resource
    )
)
# The Slurm jobs, if the config asks for them.
SLURM = None
if CAMPAIGN.config["transport"] == "slurm" and not LINTING:
    SLURM = call_or_exit_on_user_error(lambda: CampaignSlurmJobs(CAMPAIGN, workflow))
CAMPAIGN.needed_jobs = lambda: workflow.dag.needrun_jobs()
RESULTS = config["results"]


wildcard_constraints:
    host="|".join(map(re.escape, CAMPAIGN.hosts)) or "[^/]+",
    configuration="[A-Za-z0-9_-]+",
    experiment="[a-z][a-z0-9_]*",
    point="[A-Za-z0-9_,=+.-]+",
    replicate=r"\d+",


def planned_point(wildcards):
    """The planned point of a record."""
    return CAMPAIGN.planned_point(wildcards.host, wildcards.experiment, wildcards.point)


def changed_component_files(wildcards):
    """Files of the components of a point that changed after its record was written."""
    return CAMPAIGN.changed_component_files(wildcards)


def measurement_priority(wildcards):
    """Priority of a measurement: the later in the random order, the lower."""
    if SLURM:  # in a Slurm job, Snakemake calls this function of the rule first
        SLURM.set_snakemake_options_for_batches()
    return -planned_point(wildcards)["orders"][int(wildcards.replicate) - 1]


def measurement_identity(wildcards):
    """The point's definition and the number of failures so far; a change asks for a measurement."""
    return [planned_point(wildcards)["definition"], CAMPAIGN.failed_attempts(wildcards)]


def all_records(wildcards):
    """All records of all hosts."""
    return [path for host in CAMPAIGN.hosts for path in CAMPAIGN.record_paths(host)]


def host_records(wildcards):
    """All records of a host."""
    return CAMPAIGN.record_paths(wildcards.host)


def other_tables(wildcards):
    """Measurements tables of a host's other configurations that exist."""
    return other_configuration_tables(Path(RESULTS), wildcards.host, wildcards.configuration)


# Snakemake asks for the signature of each function several times for each job. With this attribute,
# Python does not determine the signature again (PEP 362).
for function in (changed_component_files, measurement_priority, measurement_identity):
    function.__signature__ = inspect.signature(function)
