# One record for each point and replicate. Records are never changed.


# These rules take seconds and measure nothing, so they run locally.
localrules:
    all,
    anomalies,
    draw_topology,
    export,
    host_results,
    measurements,
    overview,
    predict,
    report,
    tidy,


rule measure:
    input:
        # Most points have no changed component, so Snakemake follows no inputs of their measurements.
        changed_component_files,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.log",
    priority: measurement_priority
    group:
        # With Slurm, measurements of one host share a job.
        SLURM.batch_name if SLURM else None
    threads: CAMPAIGN.measurement_threads
    resources:
        **CAMPAIGN.measurement_resources,
        **SLURM.measurement_resources if SLURM else {},
    params:
        # The point's file is not an input, since it also has the place in the order. Only another
        # definition asks for a new measurement, and so does another failed attempt.
        identity=measurement_identity,
        point=f"{RESULTS}/{{host}}/{{configuration}}/points/{{experiment}}/{{point}}.json",
    shell:
        # host.json says how to reach the host. It is neither input nor parameter: another
        # connection to the same host asks for no new measurement.
        f"chaosity-measure {shlex.quote(RESULTS)}/{{wildcards.host:q}}/host.json"
        " {params.point:q} --replicate {wildcards.replicate:q} --record {output:q} 2> {log:q}"


rule host_results:
    # Everything of the hosts, without the overview: a run among those of several hosts.
    input:
        # With the lost records as inputs, they are measured again even if there is a report. All
        # records are inputs of rule `tidy`; more lists of them took a tenth of the time of a dry run.
        [CAMPAIGN.lost_records(host) for host in CAMPAIGN.hosts],
        # All other files, too: Snakemake makes no lost file again that only the report would need.
        [CAMPAIGN.result_files(host) for host in CAMPAIGN.hosts],


rule measurements:
    # All records and nothing else: a round of a run with a budget.
    input:
        all_records,


onstart:
    # Measurements may take days. What exists now is needed until the end, so it is not looked through.
    gc.freeze()
    gc.enable()
    call_or_exit_on_user_error(CAMPAIGN.lock_results_and_write_points)
    if repetitions := CAMPAIGN.repetitions():
        print(f"chaosity: {repetitions}", file=sys.stderr, flush=True)
    if SLURM:
        SLURM.start_job_watch()


onsuccess:
    if SLURM:
        SLURM.stop_job_watch()
