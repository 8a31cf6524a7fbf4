# Records become one long table in SI units, and earlier ones a table of what a repair changed.


rule tidy:
    input:
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        records=records_of,
    output:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    shell:
        "chaosity tidy {input.plan:q} --output {output.table:q} --history {output.history:q}"
        " 2> {log:q}"
