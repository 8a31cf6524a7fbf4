# Records become one long table in SI units.


rule tidy:
    input:
        points=f"{RESULTS}/{{host}}/{{configuration}}/points",
        records=records_of,
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/tidy.log",
    shell:
        "chaosity tidy {input.points:q} --output {output:q} 2> {log:q}"
