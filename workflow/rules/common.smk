# This file contains what all rules use: the config, the hosts of the run, and functions that return
# inputs and parameters of rules.
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

# Only the process that a person starts discovers hosts. This process writes what it discovered into
# files, and processes of jobs read these files.
CAMPAIGN = call_or_exit_on_user_error(
    lambda: Campaign(config, root=ROOT, command_line=COMMAND_LINE)
)
call_or_exit_on_user_error(
    lambda: CAMPAIGN.allow_one_measurement_per_host(
        workflow.global_resources, workflow.register_resource
    )
)
# The Slurm jobs of the run; None unless the config has `transport: slurm`.
SLURM = None
if CAMPAIGN.config["transport"] == "slurm" and CAMPAIGN.modes:
    SLURM = call_or_exit_on_user_error(
        lambda: CampaignSlurmJobs(CAMPAIGN, repeats=COMMAND_LINE.repeats_measurements)
    )
CAMPAIGN.needed_jobs = lambda: workflow.dag.needrun_jobs()
RESULTS = config["results"]
# For each host with several configurations: a file that exists after these configurations were
# compared.
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
    """Return the host in a configuration; if it is not booted yet, Snakemake calls this later."""
    mode = CAMPAIGN.mode(wildcards.host, wildcards.configuration)
    if not mode.has_plan:
        checkpoints.discover.get(host=mode.host, configuration=mode.configuration)
        CAMPAIGN.plan_discovered(mode)
    return mode


def discovery(wildcards):
    """Return no input file, but make a job wait until its host is booted and discovered."""
    mode_of(wildcards)
    return []


def report_before_boot(wildcards):
    """Return the report that must exist before the boot into a configuration, if any."""
    before = CAMPAIGN.mode(wildcards.host, wildcards.configuration).before
    return [ancient(f"{before.folder}/report.html")] if before else []


def mode_with_all_rounds(wildcards):
    """Return the host in a configuration; with a budget, only after all rounds were chosen."""
    mode = mode_of(wildcards)
    if mode.rounds:
        number = mode.rounds.first_choice
        while not is_last_choice(mode, number):
            number += 1
    return mode


def is_last_choice(mode, number):
    """Return whether choice `number` of rounds is the last; Snakemake first makes this choice."""
    checkpoints.choose_round.get(host=mode.host, configuration=mode.configuration, number=number)
    return mode.add_chosen_round(number)


def planned_point(wildcards):
    """Return the planned point of the record that the wildcards name."""
    return mode_of(wildcards).planned_point(wildcards.experiment, wildcards.point)


def changed_component_files(wildcards):
    """Return the files of a point's components that changed after its record was written."""
    return mode_of(wildcards).changed_component_files(
        wildcards.experiment, wildcards.point, wildcards.replicate
    )


def slurm_batch_file(wildcards):
    """Return the file of a measurement's batch, which never makes Snakemake measure again."""
    return ancient(SLURM.batch_file(mode_of(wildcards), wildcards))


def measurement_priority(wildcards):
    """Return the priority of a measurement: an earlier position in the random order is higher."""
    if SLURM and not CAMPAIGN.is_main:
        # A failed measurement must not stop the other measurements of its batch. Snakemake (9.27)
        # does not pass --keep-going to the processes that it starts in a Slurm job, and these
        # processes read no profile. `measurement_priority` is the first function that Snakemake
        # calls in these processes after it has set its options.
        workflow.execution_settings.keep_going = True
    return -planned_point(wildcards)["orders"][int(wildcards.replicate) - 1]


def measurement_identity(wildcards):
    """Return a point's definition and number of failures; if one changes, Snakemake measures."""
    mode, names = mode_of(wildcards), (wildcards.experiment, wildcards.point)
    return [
        mode.planned_point(*names)["definition"],
        mode.failed_attempts(*names, wildcards.replicate),
    ]


def records(wildcards):
    """Return all records of a host in a configuration; with a budget, the records of all rounds."""
    return mode_with_all_rounds(wildcards).record_paths()


def lost_records(wildcards):
    """Return the records of a host that are missing although the tidy table exists."""
    return mode_of(wildcards).lost_record_paths()


def of_each_mode(function):
    """Return an input function for each mode; it calls `function` with the names of the mode."""

    def of(mode):
        names = SimpleNamespace(host=mode.host, configuration=mode.configuration)
        return lambda _: function(names)

    return [of(mode) for mode in CAMPAIGN.modes.values()]


def prediction_files(wildcards):
    """Return the file of predictions if the budget of a host leaves out points, else no file."""
    return mode_with_all_rounds(wildcards).prediction_files()


def records_before_choice(wildcards):
    """Return the records of all rounds before a choice of the next round."""
    mode, number = mode_of(wildcards), int(wildcards.number)
    if number > mode.rounds.first_choice:
        is_last_choice(mode, number - 1)
    return mode.records_before_choice(number)


def inputs_of_choice(wildcards):
    """Return the inputs of a choice of the next round, except the records."""
    return CAMPAIGN.inputs_of_choice(mode_of(wildcards), int(wildcards.number))


def content_of_plan(wildcards):
    """Return the content of plan.json without the points, so that a change starts a rule again."""
    return mode_with_all_rounds(wildcards).plan.plan_json_text()


def topology_digest(wildcards):
    """Return a digest of hwloc's description of a host's topology."""
    return mode_of(wildcards).topology_digest()


def tables_of_other_runs(wildcards):
    """Return the tables of those configurations of the host that this run does not measure."""
    own = {mode.configuration for mode in CAMPAIGN.modes_of_host(wildcards.host)}
    tables = tidy_tables_of_other_configurations(
        Path(RESULTS), wildcards.host, wildcards.configuration
    )
    return [table for table in tables if table.parent.name not in own]


# Snakemake inspects the signature of each function several times for each job. If a function has
# the attribute `__signature__`, Python need not compute the signature again (PEP 362).
for function in (changed_component_files, measurement_priority, measurement_identity):
    function.__signature__ = inspect.signature(function)
