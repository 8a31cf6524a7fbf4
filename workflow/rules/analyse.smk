# What is wrong with the host, and what other programs can use of what was measured.


rule anomalies:
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/findings.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/findings.log",
    shell:
        # Topology and components beside the table say which nodes share a package and which drives
        # are of one model; what changes in them changes the table too.
        "chaosity anomalies {input.table:q} --json > {output:q} 2> {log:q}"


rule export:
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        topology=f"{RESULTS}/{{host}}/{{configuration}}/topology.xml",
    output:
        # Which of topology.xml, weights.json and placement.json lie beside it, and why others do not.
        f"{RESULTS}/{{host}}/{{configuration}}/exports/notes.txt",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/exports.log",
    params:
        folder=lambda wildcards: f"{RESULTS}/{wildcards.host}/{wildcards.configuration}",
    shell:
        "chaosity export all {params.folder:q} --output {params.folder:q}/exports 2> {log:q}"
