# Writes the drawing of the topology, the report with its figures, and the page of all hosts.
from chaosity.result_folders import read_skipped_host


rule draw_topology:
    input:
        discovery,
    output:
        report(
            f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
            category="Reports",
            labels={"host": "{host}", "configuration": "{configuration}", "content": "topology"},
        ),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/topology.log",
    resources:
        **CAMPAIGN.measurement_resources,  # lstopo would disturb a measurement on the host
    params:
        # The topology file is no input, since a dry run does not write it. If the content of the
        # topology file changes, Snakemake draws the topology again.
        xml=f"{RESULTS}/{{host}}/{{configuration}}/topology.xml",
        content=topology_digest,
        without_lstopo=f"{ROOT}/templates/report/topology_without_lstopo.svg",
    shell:
        # If lstopo is missing, the SVG file is a picture that says how to get a drawing.
        "if command -v lstopo > {log:q};"
        " then lstopo --input {params.xml:q} --of svg --no-legend --force {output:q} 2> {log:q}"
        # On a full disk, lstopo (2.9) writes a part of the drawing and exits with 0.
        " && {{ tail -n 1 {output:q} | grep --quiet '</svg>'"
        " || {{ echo 'chaosity: '{output:q}': lstopo wrote only a part of the drawing' > {log:q}; exit 1; }}; }};"
        " else cp {params.without_lstopo:q} {output:q}; fi"


rule report:
    input:
        table=f"{RESULTS}/{{host}}/{{configuration}}/measurements.parquet",
        history=f"{RESULTS}/{{host}}/{{configuration}}/history.parquet",
        findings=f"{RESULTS}/{{host}}/{{configuration}}/findings.json",
        drawing=f"{RESULTS}/{{host}}/{{configuration}}/topology.svg",
        predictions=prediction_files,
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
        plan=f"{RESULTS}/{{host}}/{{configuration}}/plan.json",
        # No rule makes these tables, since this run does not measure their configurations.
        beside=lambda wildcards: [f"--beside={table}" for table in tables_of_other_runs(wildcards)],
        # If the table of another configuration changes, Snakemake writes the report again.
        beside_changed=lambda wildcards: modification_times_ns(tables_of_other_runs(wildcards)),
        left_out=lambda wildcards: str(read_skipped_host(Path(RESULTS) / wildcards.host)),
    shell:
        "mkdir -p {output.figures:q}; "
        "chaosity report {params.plan:q} --table {input.table:q} --history {input.history:q}"
        " --findings {input.findings:q} --drawing {input.drawing:q} {params.beside:q} --output {output.html:q}"
        " > {output.terminal:q} 2> {log:q}"


rule overview:
    input:
        summaries=[f"{mode.folder}/summary.json" for mode in CAMPAIGN.modes.values()],
        compared=[ancient(file) for file in COMPARED],
    output:
        report(f"{RESULTS}/index.html", category="Reports", labels={"content": "overview"}),
    log:
        f"{RESULTS}/index.log",
    params:
        # If other hosts are selected, Snakemake writes the page of all hosts again.
        hosts=list(CAMPAIGN.hosts),
        # No rule makes these summaries, since their hosts and configurations are not part of this
        # run.
        others=lambda wildcards, input: [
            str(path)
            for path in summary_files_of_all_hosts(Path(RESULTS))
            if str(path) not in input.summaries
        ],
        others_changed=lambda wildcards, input: modification_times_ns(
            path
            for path in summary_files_of_all_hosts(Path(RESULTS))
            if str(path) not in input.summaries
        ),
        left_out=[str(one) for one in skipped_hosts(Path(RESULTS))],
    shell:
        "chaosity overview {input.summaries:q} {params.others:q} --output {output:q} > {log:q} 2>&1"


onerror:
    if SLURM:
        SLURM.stop_job_watch()
    # The reports show the finished measurements, and say which measurements are missing.
    for mode in CAMPAIGN.modes.values():
        folder = mode.folder
        if not mode.has_plan:
            continue
        beside = [
            f"--beside={table}"
            for table in tidy_tables_of_other_configurations(
                Path(RESULTS), mode.host, mode.configuration
            )
        ]
        for predictions in mode.prediction_files():
            shell(
                "{{ chaosity tidy {folder:q}/plan.json --output {folder:q}/measurements.parquet"
                " --history {folder:q}/history.parquet && chaosity predict {folder:q}; }}"
                " > {folder:q}/predictions.log 2>&1 || true"
            )
        shell(
            "chaosity report {folder:q}/plan.json {beside:q} --output {folder:q}/report.html"
            " | tee {folder:q}/summary.txt >&2"
        )
    if HAS_OVERVIEW:
        found = summary_files_of_all_hosts(Path(RESULTS))
        shell("chaosity overview {found:q} --output {RESULTS:q}/index.html >&2")
