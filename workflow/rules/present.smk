# What a person looks at: the topology as hwloc draws it, figures, the report, all hosts on a page.
from chaosity.store import (
    modification_times,
    skipped_hosts,
    read_skipped_host,
    several_configurations,
    summary_files,
    other_configuration_tables,
)


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
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
        findings=f"{RESULTS}/{{host}}/{{configuration}}/findings.json",
        drawing=f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
    output:
        html=f"{RESULTS}/{{host}}/{{configuration}}/report.html",
        terminal=f"{RESULTS}/{{host}}/{{configuration}}/summary.txt",
        summary=f"{RESULTS}/{{host}}/{{configuration}}/summary.json",
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/report.log",
    params:
        # The host's other configurations, as far as they were measured. No inputs: Snakemake would
        # then measure what is missing there, on a host that is in another configuration now.
        beside=lambda wildcards: [f"--beside={table}" for table in beside_of(wildcards)],
        # Asks for a new report when one of these changes.
        beside_changed=lambda wildcards: modification_times(beside_of(wildcards)),
        left_out=lambda wildcards: str(read_skipped_host(Path(RESULTS) / wildcards.host)),
    shell:
        "chaosity report {input.plan:q} --table {input.table:q} --history {input.history:q}"
        " --findings {input.findings:q} --drawing {input.drawing:q} {params.beside:q} --output {output.html:q}"
        " > {output.terminal:q} 2> {log:q}"


rule overview:
    input:
        [f"{CAMPAIGN.folder(host)}/summary.json" for host in CAMPAIGN.hosts],
    output:
        f"{RESULTS}/index.html",
    log:
        f"{RESULTS}/index.log",
    params:
        # Hosts and configurations that this run is not about; no inputs, as above.
        others=lambda wildcards, input: [
            str(path) for path in summary_files(Path(RESULTS)) if str(path) not in input
        ],
        others_changed=lambda wildcards, input: modification_times(
            path for path in summary_files(Path(RESULTS)) if str(path) not in input
        ),
        left_out=[str(one) for one in skipped_hosts(Path(RESULTS))],
    shell:
        "chaosity overview {input:q} {params.others:q} --output {output:q} > {log:q} 2>&1"


onerror:
    if CLUSTER:
        CLUSTER.end()
    # What was measured is shown even so; the reports say what is missing.
    for host in CAMPAIGN.hosts:
        plan = f"{CAMPAIGN.folder(host)}/plan.json"
        html = f"{CAMPAIGN.folder(host)}/report.html"
        terminal = f"{CAMPAIGN.folder(host)}/summary.txt"
        others = other_configuration_tables(Path(RESULTS), host, CAMPAIGN.folder(host).name)
        beside = [f"--beside={table}" for table in others]
        shell("chaosity report {plan:q} {beside:q} --output {html:q} | tee {terminal:q} >&2")
    if several_configurations(Path(RESULTS), map(CAMPAIGN.folder, CAMPAIGN.hosts)):
        found = summary_files(Path(RESULTS))
        shell("chaosity overview {found:q} --output {RESULTS:q}/index.html >&2")
