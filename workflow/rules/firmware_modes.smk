# Measures each host in all configurations of the config: set the firmware, measure, next.
from pathlib import Path

from chaosity.campaign.campaign_run import checked_or_exit, use_own_programs
from chaosity.campaign.firmware_modes import FirmwareModes

use_own_programs(ROOT)
FIRMWARE_MODES = checked_or_exit(lambda: FirmwareModes(config))
RESULTS = config["results"]

if workflow.is_main_process and not LINTING:
    FIRMWARE_MODES.write_configuration_files()


wildcard_constraints:
    host="|".join(map(re.escape, FIRMWARE_MODES.host_names)),
    configuration="|".join(map(re.escape, FIRMWARE_MODES.names)),


rule measure_configuration:
    input:
        wanted=f"{RESULTS}/{{host}}/{{configuration}}/wanted.json",
        # In the order of the config. A change of an earlier configuration asks for no new boot.
        before=lambda wildcards: ancient(
            FIRMWARE_MODES.earlier_finished_files(wildcards.host, wildcards.configuration)
        ),
    output:
        touch(f"{RESULTS}/{{host}}/{{configuration}}/measured.txt"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/configuration.log",
    params:
        inventory=config["inventory"],
        config=f"{RESULTS}/{{host}}/{{configuration}}/config.yaml",
    shell:
        # Set the firmware and the host, then run the workflow for this host in this configuration.
        "{{"
        " ansible-playbook --inventory {params.inventory:q} {ROOT:q}/firmware.yml"
        " --limit {wildcards.host:q} --extra-vars firmware_mode={wildcards.configuration:q}"
        " && ansible-playbook --inventory {params.inventory:q} {ROOT:q}/configure.yml"
        " --limit {wildcards.host:q};"
        " }} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }};"
        " snakemake --snakefile {ROOT:q}/workflow/Snakefile --workflow-profile {ROOT:q}/profiles/default"
        " --configfile {params.config:q}"


rule compare_configurations:
    input:
        lambda wildcards: [
            FIRMWARE_MODES.finished_file(wildcards.host, name) for name in FIRMWARE_MODES.names
        ],
    output:
        touch(f"{RESULTS}/{{host}}/compared.txt"),
    log:
        f"{RESULTS}/{{host}}/compared.log",
    shell:
        # The report of the first configuration is older than the measurements of the last.
        "chaosity reports --results {RESULTS:q} --anew {wildcards.host:q} > {log:q} 2>&1"
