# What a person looks at: the topology as hwloc draws it, figures, the report.


rule draw_topology:
    input:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.xml",
    output:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.log",
    resources:
        **CAMPAIGN.resources,  # drawing beside a measurement would disturb it
    shell:
        "lstopo --input {input:q} --of svg --no-legend --force {output:q} 2> {log:q}"


rule report:
    input:
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        drawing=f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
    output:
        html=f"{RESULTS}/{{host}}/{{configuration}}/report.html",
        summary=f"{RESULTS}/{{host}}/{{configuration}}/summary.txt",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/report.log",
    shell:
        "chaosity report {input.plan:q} --table {input.table:q} --drawing {input.drawing:q}"
        " --output {output.html:q}"
        " > {output.summary:q} 2> {log:q}"


onerror:
    # What was measured is shown even so; the report says what is missing.
    for host in CAMPAIGN.hosts:
        plan = f"{CAMPAIGN.folder(host)}/plan.json"
        html = f"{CAMPAIGN.folder(host)}/report.html"
        summary = f"{CAMPAIGN.folder(host)}/summary.txt"
        shell("chaosity report {plan:q} --output {html:q} | tee {summary:q} >&2")
