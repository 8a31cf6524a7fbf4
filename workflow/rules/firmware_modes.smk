# Takes each host through the configurations of the config: set the firmware, measure, go on.
from pathlib import Path

from chaosity.campaign.campaign_plans import checked_or_exit, use_own_programs
from chaosity.campaign.firmware_modes import FirmwareModes

use_own_programs(Path(workflow.basedir))
CONFIGURATIONS = checked_or_exit(lambda: FirmwareModes(config))
RESULTS = config["results"]
ROOT = workflow.basedir

if workflow.is_main_process:
    CONFIGURATIONS.write()


wildcard_constraints:
    host="|".join(map(re.escape, CONFIGURATIONS.hosts)),
    configuration="|".join(map(re.escape, CONFIGURATIONS.names)),


rule measure_configuration:
    input:
        wanted=f"{RESULTS}/{{host}}/{{configuration}}/wanted.json",
        # In this order, but a host is not booted again because of an earlier configuration.
        before=lambda wildcards: ancient(
            CONFIGURATIONS.before(wildcards.host, wildcards.configuration)
        ),
    output:
        touch(f"{RESULTS}/{{host}}/{{configuration}}/measured.txt"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/configuration.log",
    params:
        inventory=config["inventory"],
        config=f"{RESULTS}/{{host}}/{{configuration}}/config.yaml",
    shell:
        # The workflow for one host that is now in this configuration, by itself.
        "{{"
        " ansible-playbook --inventory {params.inventory:q} {ROOT:q}/firmware.yml"
        " --limit {wildcards.host:q} --extra-vars firmware_mode={wildcards.configuration:q}"
        " && ansible-playbook --inventory {params.inventory:q} {ROOT:q}/configure.yml"
        " --limit {wildcards.host:q};"
        " }} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }};"
        " snakemake --snakefile {ROOT:q}/Snakefile --workflow-profile {ROOT:q}/profiles/default"
        " --configfile {params.config:q}"


rule compare_configurations:
    input:
        lambda wildcards: [
            CONFIGURATIONS.done(wildcards.host, name) for name in CONFIGURATIONS.names
        ],
    output:
        touch(f"{RESULTS}/{{host}}/compared.txt"),
    log:
        f"{RESULTS}/{{host}}/compared.log",
    shell:
        # The report of the first was made before the last was measured.
        "chaosity reports --results {RESULTS:q} --anew {wildcards.host:q} > {log:q} 2>&1"
