# Records become one long table in SI units.


rule tidy:
    input:
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        records=records_of,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    shell:
        "chaosity tidy {input.plan:q} --output {output:q} 2> {log:q}"
