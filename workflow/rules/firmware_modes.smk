# Boots hosts into the configurations of the config, one after the other, and discovers the hosts in
# each configuration.
from chaosity.campaign.host_in_mode import CONFIGURED_FILE, DISCOVERED_FILE


localrules:
    compare_configurations,
    configure,
    discover,
    skipped_host,


# Each run boots a host into a configuration again if measurements in this configuration are
# missing. So a run first removes the outputs of the two rules below. For a dry run, these outputs
# are in a new empty folder.
rule configure:
    # This rule sets the firmware, reboots the host and sets the state of the host.
    input:
        report_before_boot,
    output:
        touch(f"{CAMPAIGN.discovered}/{{host}}/{{configuration}}/{CONFIGURED_FILE}"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/configure.log",
    resources:
        **CAMPAIGN.measurement_resources,  # so that no measurement runs on the host during the boot
    params:
        commands=lambda wildcards: CAMPAIGN.mode(
            wildcards.host, wildcards.configuration
        ).firmware_and_state_commands,
    message:
        "boot {wildcards.host} into {wildcards.configuration}"
    shell:
        "{{ {params.commands[0]:q} && {params.commands[1]:q}; }} > {log:q} 2>&1"
        " || {{ cat {log:q} >&2; exit 1; }}"


checkpoint discover:
    input:
        f"{CAMPAIGN.discovered}/{{host}}/{{configuration}}/{CONFIGURED_FILE}",
    output:
        touch(f"{CAMPAIGN.discovered}/{{host}}/{{configuration}}/{DISCOVERED_FILE}"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/discover.log",
    resources:
        **CAMPAIGN.measurement_resources,
    params:
        config=f"{RESULTS}/{{host}}/run_config.yaml",
    message:
        "discover {wildcards.host} in {wildcards.configuration}"
    shell:
        "chaosity discover {wildcards.host:q} {wildcards.configuration:q} --config {params.config:q}"
        " 2> {log:q}"


rule skipped_host:
    # This rule always fails, so that a run that skipped a host ends with an error.
    output:
        f"{RESULTS}/{{host}}/skipped.txt",
    log:
        f"{RESULTS}/{{host}}/skipped.log",
    priority: -(10**9)
    params:
        reason=lambda wildcards: CAMPAIGN.skipped[wildcards.host],
    message:
        "{wildcards.host} is skipped"
    shell:
        "echo chaosity: {params.reason:q} > {log:q}; exit 1"


rule compare_configurations:
    # The report of the first configuration is written before the last configuration is measured, so
    # all reports of a host are written again at the end.
    input:
        tables=lambda wildcards: [
            f"{mode.folder}/measurements.parquet"
            for mode in CAMPAIGN.modes_of_host(wildcards.host)
        ],
        reports=lambda wildcards: [
            ancient(f"{mode.folder}/report.html")
            for mode in CAMPAIGN.modes_of_host(wildcards.host)
        ],
    output:
        touch(f"{RESULTS}/{{host}}/compared.txt"),
    log:
        f"{RESULTS}/{{host}}/compared.log",
    params:
        results=lambda wildcards: RESULTS,
    shell:
        "chaosity reports --results {params.results:q} --anew {wildcards.host:q} > {log:q} 2>&1"
