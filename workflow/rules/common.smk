# All rules use this file: the config, the hosts of the run, and functions for inputs and
# parameters.
import inspect
import re
import shlex
from types import SimpleNamespace

from chaosity.campaign.campaign import Campaign, call_or_exit_on_user_error
from chaosity.campaign.slurm_jobs import CampaignSlurmJobs
from chaosity.result_folders import (
    has_several_hosts_or_configurations,
    modification_times_ns,
    tidy_tables_of_other_configurations,
    skipped_hosts,
    summary_files_of_all_hosts,
)

# Only the process that a person starts discovers hosts. Processes of jobs read the files that this
# process wrote.
CAMPAIGN = call_or_exit_on_user_error(
    lambda: Campaign(config, root=ROOT, command_line=COMMAND_LINE)
)
call_or_exit_on_user_error(
    lambda: CAMPAIGN.allow_one_measurement_per_host(
        workflow.global_resources, workflow.register_resource
    )
)
# The Slurm jobs, if the config asks for them.
SLURM = None
if CAMPAIGN.config["transport"] == "slurm" and CAMPAIGN.modes:
    SLURM = call_or_exit_on_user_error(
        lambda: CampaignSlurmJobs(CAMPAIGN, repeats=COMMAND_LINE.repeats_measurements)
    )
CAMPAIGN.needed_jobs = lambda: workflow.dag.needrun_jobs()
RESULTS = config["results"]
# Such a file exists after the reports of a host in several configurations have been compared.
COMPARED = [
    f"{RESULTS}/{host}/compared.txt"
    for host in CAMPAIGN.hosts
    if len(CAMPAIGN.modes_of_host(host)) > 1
]
HAS_OVERVIEW = has_several_hosts_or_configurations(
    Path(RESULTS), (mode.folder for mode in CAMPAIGN.modes.values())
)


wildcard_constraints:
    host="|".join(map(re.escape, [*CAMPAIGN.hosts, *CAMPAIGN.skipped])) or "[^/]+",
    configuration="|".join({re.escape(name) for _, name in CAMPAIGN.modes}) or "[A-Za-z0-9_-]+",
    experiment="[a-z][a-z0-9_]*",
    point="[A-Za-z0-9_,=+.-]+",
    replicate=r"\d+",


def mode_of(wildcards):
    """The host in a configuration. Before its boot, Snakemake calls this again later."""
    mode = CAMPAIGN.mode(wildcards.host, wildcards.configuration)
    if not mode.has_plan:
        checkpoints.discover.get(host=mode.host, configuration=mode.configuration)
        CAMPAIGN.plan_discovered(mode)
    return mode


def discovery(wildcards):
    """No input file; makes a job wait until its host is booted and discovered."""
    mode_of(wildcards)
    return []


def report_before_boot(wildcards):
    """The report of the configuration that has to be measured before this one is booted."""
    before = CAMPAIGN.mode(wildcards.host, wildcards.configuration).before
    return [ancient(f"{before.folder}/report.html")] if before else []


def mode_with_all_rounds(wildcards):
    """The host in a configuration; with a budget, not before all rounds are chosen."""
    mode = mode_of(wildcards)
    if mode.rounds:
        number = mode.rounds.first_choice
        while not is_last_choice(mode, number):
            number += 1
    return mode


def is_last_choice(mode, number):
    """Whether choice `number` is the last one; Snakemake makes the choice before this returns."""
    checkpoints.choose_round.get(host=mode.host, configuration=mode.configuration, number=number)
    return mode.add_chosen_round(number)


def planned_point(wildcards):
    """The planned point of a record."""
    return mode_of(wildcards).planned_point(wildcards.experiment, wildcards.point)


def changed_component_files(wildcards):
    """Files of the components of a point that changed after its record was written."""
    return mode_of(wildcards).changed_component_files(
        wildcards.experiment, wildcards.point, wildcards.replicate
    )


def slurm_batch_file(wildcards):
    """The file of a measurement's batch, which never makes Snakemake repeat the measurement."""
    return ancient(SLURM.batch_file(mode_of(wildcards), wildcards))


def measurement_priority(wildcards):
    """Priority of a measurement, which is lower the later it is in the random order."""
    if SLURM and not CAMPAIGN.is_main:
        # A failed measurement must not stop the rest of its batch. Snakemake (9.27) does not pass
        # --keep-going to the processes that it starts in a Slurm job, and reads no profile in them.
        # This is the first function that Snakemake calls there after it has set its options.
        workflow.execution_settings.keep_going = True
    return -planned_point(wildcards)["orders"][int(wildcards.replicate) - 1]


def measurement_identity(wildcards):
    """The point's definition and its number of failures; if they change, it is measured again."""
    mode, names = mode_of(wildcards), (wildcards.experiment, wildcards.point)
    return [
        mode.planned_point(*names)["definition"],
        mode.failed_attempts(*names, wildcards.replicate),
    ]


def records(wildcards):
    """All records of a host in a configuration; with a budget, those of all rounds."""
    return mode_with_all_rounds(wildcards).record_paths()


def lost_records(wildcards):
    """The records of a host that are missing although the tidy table exists."""
    return mode_of(wildcards).lost_record_paths()


def of_each_mode(function):
    """A list with an input function for each mode: it calls `function` with the mode's names."""

    def of(mode):
        names = SimpleNamespace(host=mode.host, configuration=mode.configuration)
        return lambda _: function(names)

    return [of(mode) for mode in CAMPAIGN.modes.values()]


def prediction_files(wildcards):
    """The file of predictions, if the budget of a host leaves out points."""
    return mode_with_all_rounds(wildcards).prediction_files()


def records_before_choice(wildcards):
    """The records of all rounds before a choice of the next round."""
    mode, number = mode_of(wildcards), int(wildcards.number)
    if number > mode.rounds.first_choice:
        is_last_choice(mode, number - 1)
    return mode.records_before_choice(number)


def inputs_of_choice(wildcards):
    """What a choice of the next round depends on, besides records."""
    return CAMPAIGN.inputs_of_choice(mode_of(wildcards), int(wildcards.number))


def content_of_plan(wildcards):
    """The content of plan.json, without the points."""
    return mode_with_all_rounds(wildcards).plan.plan_json_text()


def topology_digest(wildcards):
    """A digest of a host's topology as hwloc describes it."""
    return mode_of(wildcards).topology_digest()


def tables_of_other_runs(wildcards):
    """Tables of the host's configurations that are not part of this run."""
    own = {mode.configuration for mode in CAMPAIGN.modes_of_host(wildcards.host)}
    tables = tidy_tables_of_other_configurations(
        Path(RESULTS), wildcards.host, wildcards.configuration
    )
    return [table for table in tables if table.parent.name not in own]


# Snakemake inspects the signature of each function several times for each job. With this attribute,
# Python need not compute the signature again (PEP 362).
for function in (changed_component_files, measurement_priority, measurement_identity):
    function.__signature__ = inspect.signature(function)
