# One immutable record per point and replicate.


rule measure:
    input:
        # Only the point's own definition asks for a new measurement, see params.
        points=ancient(f"{RESULTS}/{{host}}/{{configuration}}/points"),
        components=components_of,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/{{experiment}}/{{point}}/rep{{replicate}}.log",
    priority: order_of
    resources:
        **CAMPAIGN.resources,
        expected_seconds=expected_of,
    params:
        definition=lambda wildcards: point_of(wildcards)["definition"],
        failures=failures_of,
    shell:
        "chaosity-run {input.points:q}/{wildcards.experiment:q}/{wildcards.point:q}.json"
        " --replicate {wildcards.replicate:q} --record {output:q} 2> {log:q}"
