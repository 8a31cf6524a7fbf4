# Turns records into one long table in SI units, and earlier records into a table of former values.


rule tidy:
    input:
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        records=host_records,
    output:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    shell:
        "chaosity tidy {input.plan:q} --output {output.table:q} --history {output.history:q}"
        " 2> {log:q}"


rule predict:
    # What a budget left out. Of a complete plan, nothing is predicted and the rule does not run.
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        unmeasured=f"{RESULTS}/{{host}}/{{configuration}}/unmeasured.parquet",
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/predictions.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/predictions.log",
    params:
        folder=lambda wildcards: f"{RESULTS}/{wildcards.host}/{wildcards.configuration}",
    shell:
        "chaosity predict {params.folder:q} > {log:q} 2>&1"
