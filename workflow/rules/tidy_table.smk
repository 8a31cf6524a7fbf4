# Makes the tidy table from the current records, and a second table from records that were measured
# before a component changed.


rule tidy:
    input:
        records=records,
    output:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    params:
        # The plan is no input, since a dry run does not write plan.json. If the content of the plan
        # changes, Snakemake makes the table again.
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        content=content_of_plan,
    shell:
        "chaosity tidy {params.plan:q} --output {output.table:q} --history {output.history:q}"
        " 2> {log:q}"


rule predict:
    # This rule predicts values of the points that a budget left out. If the plan is complete, this
    # rule does not run.
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
