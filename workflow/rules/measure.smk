# Makes one record for each point and replicate; a record never changes.
from snakemake.exceptions import WorkflowError

from chaosity.campaign.slurm_jobs import BATCHES_FOLDER


# The rules in this list take seconds and measure nothing, so they run on this machine.
localrules:
    all,
    anomalies,
    choose_round,
    draw_topology,
    export,
    measurements,
    overview,
    predict,
    report,
    tidy,


rule measure:
    input:
        # Most points have no changed component, so Snakemake need not check input files of these
        # points.
        changed_components=changed_component_files,
        slurm_batch=slurm_batch_file if SLURM else [],
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.log",
    priority: measurement_priority
    group:
        "measurements" if SLURM else None
    threads: CAMPAIGN.measurement_threads
    resources:
        **CAMPAIGN.measurement_resources,
        **SLURM.measurement_resources if SLURM else {},
    params:
        # The file of the point is no input, since it also contains the position in the random
        # order. Only another definition of the point, or one more failed attempt, makes Snakemake
        # measure again.
        identity=measurement_identity,
        point=f"{RESULTS}/{{host}}/{{configuration}}/points/{{experiment}}/{{point}}.json",
    shell:
        # host.json says how to reach the host. The file is neither input nor parameter, since
        # another connection to the same host is no reason to measure again. $PPID is the process of
        # Snakemake. If the process of Snakemake is killed, the measurement ends.
        f"chaosity-measure {shlex.quote(RESULTS)}/{{wildcards.host:q}}/host.json"
        " {params.point:q} --replicate {wildcards.replicate:q} --record {output:q}"
        " --below $PPID 2> {log:q}"


if SLURM:

    # All batches enter the queue at once, so that their waiting times overlap. Measurements of a
    # host still run one at a time: no other job runs on the node of a job, and the resources below
    # limit the measurements within a job.
    resource_scopes:
        **dict.fromkeys(CAMPAIGN.measurement_resources, "local"),

    rule open_slurm_batch:
        # The measurements of a batch have the file of the batch as input. So Snakemake puts these
        # measurements and the job that makes this file into one group.
        output:
            touch(f"{RESULTS}/{{host}}/{{configuration}}/{BATCHES_FOLDER}/{{batch}}"),
        log:
            f"{RESULTS}/{{host}}/{{configuration}}/{BATCHES_FOLDER}/{{batch}}.log",
        wildcard_constraints:
            batch=r"[^/]+",
        group:
            "measurements"
        resources:
            **SLURM.batch_resources,


checkpoint choose_round:
    input:
        records_before_choice,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/rounds/{{number}}.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/choose_round{{number}}.log",
    wildcard_constraints:
        number=r"\d+",
    params:
        budget=inputs_of_choice,
        config=f"{RESULTS}/{{host}}/run_config.yaml",
        folder=f"{RESULTS}/{{host}}/{{configuration}}",
    message:
        "choose round {wildcards.number} of {wildcards.host}"
    shell:
        "chaosity next-round {params.folder:q} {wildcards.number:q} --config {params.config:q}"
        " 2> {log:q} && cat {log:q} >&2"


onstart:
    # Measurements may take days. Objects that exist at the start of the measurements are needed
    # until the end, so the garbage collector need not examine these objects.
    gc.freeze()
    gc.enable()
    call_or_exit_on_user_error(CAMPAIGN.lock_results_and_write_points)
    call_or_exit_on_user_error(CAMPAIGN.share_inventory)
    if repetitions := CAMPAIGN.repeated_measurements_text():
        print(f"chaosity: {repetitions}", file=sys.stderr, flush=True)
    if SLURM:
        SLURM.start_job_watch()


onsuccess:
    if SLURM:
        SLURM.stop_job_watch()
    if CAMPAIGN.skipped:  # with --until, the rule skipped_host does not run
        raise WorkflowError(f"skipped hosts: {', '.join(CAMPAIGN.skipped)}")
