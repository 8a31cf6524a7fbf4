# Measures each host in all configurations of the config: set the firmware, measure, next.
from pathlib import Path

from chaosity.campaign.hosts_and_plans_of_run import (
    call_or_exit_on_user_error,
    put_own_programs_first_in_path,
)
from chaosity.campaign.configuration_campaign import ConfigurationCampaign

put_own_programs_first_in_path(ROOT)
CONFIGURATIONS = call_or_exit_on_user_error(lambda: ConfigurationCampaign(config))
RESULTS = config["results"]

if workflow.is_main_process and not LINTING:
    call_or_exit_on_user_error(CONFIGURATIONS.write_configuration_files)


wildcard_constraints:
    host="|".join(map(re.escape, CONFIGURATIONS.hosts)),
    configuration="|".join(map(re.escape, CONFIGURATIONS.names)),


rule measure_configuration:
    input:
        wanted=f"{RESULTS}/{{host}}/{{configuration}}/wanted.json",
        # In the order of the config. A change of an earlier configuration asks for no new boot.
        before=lambda wildcards: ancient(
            CONFIGURATIONS.previous_finished_file(wildcards.host, wildcards.configuration)
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
        # The playbooks skip simulated hosts.
        "{{ ansible-playbook --inventory {params.inventory:q} {ROOT:q}/firmware.yml"
        " --limit {wildcards.host:q} --extra-vars firmware_mode={wildcards.configuration:q}"
        " && ansible-playbook --inventory {params.inventory:q} {ROOT:q}/configure.yml"
        " --limit {wildcards.host:q};"
        " }} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }};"
        " snakemake --snakefile {ROOT:q}/workflow/Snakefile --workflow-profile {ROOT:q}/profiles/default"
        " --configfile {params.config:q}"


rule compare_configurations:
    input:
        lambda wildcards: [
            CONFIGURATIONS.finished_file(wildcards.host, name) for name in CONFIGURATIONS.names
        ],
    output:
        touch(f"{RESULTS}/{{host}}/compared.txt"),
    log:
        f"{RESULTS}/{{host}}/compared.log",
    shell:
        # The report of the first configuration is older than the measurements of the last.
        "chaosity reports --results {RESULTS:q} --anew {wildcards.host:q} > {log:q} 2>&1"
