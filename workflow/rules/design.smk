# Points of every experiment, in order: what to measure.


rule design:
    output:
        directory(f"{RESULTS}/{{host}}/{{configuration}}/points"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/points.log",
    params:
        plan=lambda wildcards: CAMPAIGN.plans[wildcards.host].digest,
    run:
        CAMPAIGN.plans[wildcards.host].write(Path(output[0]))
