# Turns records into one long table in SI units, and earlier records into a table of former values.


rule tidy:
    input:
        records=records,
    output:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    params:
        # No input, since a dry run does not write it. Another plan asks for another table.
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        content=content_of_plan,
    shell:
        "chaosity tidy {params.plan:q} --output {output.table:q} --history {output.history:q}"
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
