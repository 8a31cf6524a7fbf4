# One immutable record per point and replicate.


rule measure:
    input:
        components_of,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.log",
    priority: order_of
    group:
        # Through Slurm, measurements of one host share a job.
        CLUSTER.batch_of if CLUSTER else None
    threads: CAMPAIGN.slots
    resources:
        **CAMPAIGN.resources,
        **CLUSTER.resources if CLUSTER else {},
    params:
        # The point's file is no input: its content is the definition and its place in the order,
        # and only the definition asks for a new measurement. So does one more failure than before.
        identity=identity_of,
        point=f"{RESULTS}/{{host}}/{{configuration}}/points/{{experiment}}/{{point}}.json",
    shell:
        # How the host is reached stands in its file, which is no input and no parameter: another way
        # to the same host asks for no new measurement.
        f"chaosity-measure {RESULTS}/{{wildcards.host}}/host.json"
        " {params.point:q} --replicate {wildcards.replicate:q} --record {output:q} 2> {log:q}"
