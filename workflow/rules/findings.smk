# Finds anomalies of the host, and exports results for other programs.


rule anomalies:
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
    output:
        report(
            f"{RESULTS}/{{host}}/{{configuration}}/findings.json",
            category="Findings",
            labels={"host": "{host}", "configuration": "{configuration}", "content": "findings"},
        ),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/findings.log",
    shell:
        # The command also reads the files of the topology and of the components in the folder of
        # the table, for example which nodes share a package. These files are no inputs, since the
        # table changes whenever one of them changes.
        "chaosity anomalies {input.table:q} --json > {output:q} 2> {log:q}"


rule export:
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
    output:
        # The file notes.txt says which exports are missing in this folder, and why.
        f"{RESULTS}/{{host}}/{{configuration}}/exports/notes.txt",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/exports.log",
    params:
        folder=lambda wildcards: f"{RESULTS}/{wildcards.host}/{wildcards.configuration}",
    shell:
        "chaosity export all {params.folder:q} --output {params.folder:q}/exports 2> {log:q}"
