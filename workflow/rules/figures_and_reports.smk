# For people: a drawing of the topology, figures, the report, and an overview of all hosts.
from chaosity.result_folders import (
    modification_times_ns,
    other_configuration_tables,
    has_several_hosts_or_configurations,
    skipped_hosts,
    summary_files,
)
from chaosity.transport.skipped_hosts import read_skipped_host


rule draw_topology:
    input:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.xml",
    output:
        report(
            f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
            category="Reports",
            labels={"host": "{host}", "configuration": "{configuration}", "content": "topology"},
        ),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.log",
    resources:
        **CAMPAIGN.measurement_resources,  # drawing during a measurement would disturb it
    params:
        without_lstopo=f"{ROOT}/templates/report/topology_without_lstopo.svg",
    shell:
        # A simulated host needs no tool. Without lstopo, the drawing says how to get one.
        "if command -v lstopo > {log:q};"
        " then lstopo --input {input:q} --of svg --no-legend --force {output:q} 2> {log:q}"
        # On a full disk, lstopo (2.9) writes half a drawing and exits with 0.
        " && {{ tail -n 1 {output:q} | grep --quiet '</svg>'"
        " || {{ echo 'chaosity: '{output:q}': lstopo wrote only a part of the drawing' > {log:q}; exit 1; }}; }};"
        " else cp {params.without_lstopo:q} {output:q}; fi"


rule report:
    input:
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
        findings=f"{RESULTS}/{{host}}/{{configuration}}/findings.json",
        drawing=f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
        predictions=lambda wildcards: CAMPAIGN.prediction_files(wildcards.host),
    output:
        html=report(
            f"{RESULTS}/{{host}}/{{configuration}}/report.html",
            category="Reports",
            labels={"host": "{host}", "configuration": "{configuration}", "content": "report"},
        ),
        terminal=f"{RESULTS}/{{host}}/{{configuration}}/summary.txt",
        summary=f"{RESULTS}/{{host}}/{{configuration}}/summary.json",
        figures=report(
            directory(f"{RESULTS}/{{host}}/{{configuration}}/figures"),
            patterns=["{name}.svg"],
            category="Figures",
            labels={"host": "{host}", "configuration": "{configuration}", "figure": "{name}"},
        ),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/report.log",
    params:
        # Tables of the host's other configurations. As inputs, Snakemake would measure what is
        # missing there, but the host is in another configuration now.
        beside=lambda wildcards: [f"--beside={table}" for table in other_tables(wildcards)],
        # A change of such a table asks for a new report.
        beside_changed=lambda wildcards: modification_times_ns(other_tables(wildcards)),
        left_out=lambda wildcards: str(read_skipped_host(Path(RESULTS) / wildcards.host)),
    shell:
        "mkdir -p {output.figures:q}; "
        "chaosity report {input.plan:q} --table {input.table:q} --history {input.history:q}"
        " --findings {input.findings:q} --drawing {input.drawing:q} {params.beside:q} --output {output.html:q}"
        " > {output.terminal:q} 2> {log:q}"


rule overview:
    input:
        [f"{CAMPAIGN.configuration_folder(host)}/summary.json" for host in CAMPAIGN.hosts],
    output:
        report(f"{RESULTS}/index.html", category="Reports", labels={"content": "overview"}),
    log:
        f"{RESULTS}/index.log",
    params:
        # Another selection of hosts asks for another overview.
        hosts=list(CAMPAIGN.hosts),
        # Hosts and configurations that are not part of this run; no inputs, as above.
        others=lambda wildcards, input: [
            str(path) for path in summary_files(Path(RESULTS)) if str(path) not in input
        ],
        others_changed=lambda wildcards, input: modification_times_ns(
            path for path in summary_files(Path(RESULTS)) if str(path) not in input
        ),
        left_out=[str(one) for one in skipped_hosts(Path(RESULTS))],
    shell:
        "chaosity overview {input:q} {params.others:q} --output {output:q} > {log:q} 2>&1"


onerror:
    if SLURM:
        SLURM.stop_job_watch()
    # The reports show the finished measurements and say what is missing.
    for host in CAMPAIGN.hosts:
        plan = f"{CAMPAIGN.configuration_folder(host)}/plan.json"
        html = f"{CAMPAIGN.configuration_folder(host)}/report.html"
        terminal = f"{CAMPAIGN.configuration_folder(host)}/summary.txt"
        others = other_configuration_tables(
            Path(RESULTS), host, CAMPAIGN.configuration_folder(host).name
        )
        beside = [f"--beside={table}" for table in others]
        for predictions in CAMPAIGN.prediction_files(host):
            folder, table = Path(plan).parent, Path(plan).with_name("measurements.parquet")
            history = table.with_name("history.parquet")
            shell(
                "chaosity tidy {plan:q} --output {table:q} --history {history:q} 2> {folder:q}/predictions.log"
                " && chaosity predict {folder:q} > {folder:q}/predictions.log 2>&1 || true"
            )
        shell("chaosity report {plan:q} {beside:q} --output {html:q} | tee {terminal:q} >&2")
    if has_several_hosts_or_configurations(
        Path(RESULTS), map(CAMPAIGN.configuration_folder, CAMPAIGN.hosts)
    ):
        found = summary_files(Path(RESULTS))
        shell("chaosity overview {found:q} --output {RESULTS:q}/index.html >&2")
