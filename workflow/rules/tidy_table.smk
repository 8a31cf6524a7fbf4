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
