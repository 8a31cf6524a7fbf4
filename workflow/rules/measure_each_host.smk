# Measures each host, in each configuration of the config, in a run of its own of the other rules.
import shlex

from chaosity.result_folders import summary_files
from chaosity.hosts.ansible_programs import ansible_command
from chaosity.campaign.hosts_and_plans_of_run import call_or_exit_on_user_error
from chaosity.transport.own_programs import put_own_programs_first_in_path

put_own_programs_first_in_path(ROOT)
RESULTS = config["results"]
if workflow.is_main_process:
    runs_itself = RUNS.take_options(sys.argv[1:], workflow)
    call_or_exit_on_user_error(RUNS.prepare)
    if runs_itself:
        sys.exit(RUNS.run_each_host())
    if "runs_of_hosts" not in workflow.global_resources:
        workflow.register_resource("runs_of_hosts", RUNS.runs_at_once)
PLAYBOOK = (
    shlex.join(call_or_exit_on_user_error(lambda: ansible_command("ansible-playbook")))
    if config["configurations"]
    else ""
)
# Set the firmware and the host, before the run in a configuration. The playbooks skip simulated
# hosts.
SET_CONFIGURATION = (
    f"{{{{ {PLAYBOOK} --inventory {shlex.quote(config['inventory'])} {shlex.quote(str(ROOT))}/firmware.yml"
    " --limit {params.host:q} --extra-vars firmware_mode={params.configuration:q}"
    f" && {PLAYBOOK} --inventory {shlex.quote(config['inventory'])} {shlex.quote(str(ROOT))}/configure.yml"
    " --limit {params.host:q};"
    " }} > {log:q} 2>&1 || {{ cat {log:q} >&2; exit 1; }}; "
    if config["configurations"]
    else ""
)


wildcard_constraints:
    run="|".join(map(re.escape, RUNS.runs)),


localrules:
    all,
    compare_configurations,
    measure_host,
    overview_of_hosts,


rule measure_host:
    input:
        # In the order of the config. A change of an earlier configuration asks for no new boot.
        before=lambda wildcards: ancient(RUNS.finished_before(wildcards.run)),
    output:
        touch(f"{RESULTS}/{{run}}/measured.txt"),
    log:
        f"{RESULTS}/{{run}}/run.log",
    threads: lambda wildcards: RUNS.threads(wildcards.run)
    resources:
        runs_of_hosts=1,
    params:
        host=lambda wildcards: RUNS.runs[wildcards.run].host.name,
        configuration=lambda wildcards: RUNS.runs[wildcards.run].configuration,
    message:
        "{wildcards.run}"
    shell:
        # The run ends soon after this process, $PPID. Options are no parameter: a run that is
        # finished is not repeated with others.
        (
            SET_CONFIGURATION
            + "chaosity host {RESULTS:q}/{wildcards.run:q}/run_config.yaml --workflow {ROOT:q}"
            f" --below $PPID -- {shlex.join(RUNS.snakemake_arguments)}"
        )


rule compare_configurations:
    input:
        lambda wildcards: RUNS.finished_files(wildcards.host),
    output:
        touch(f"{RESULTS}/{{host}}/compared.txt"),
    log:
        f"{RESULTS}/{{host}}/compared.log",
    params:
        # Another selection of configurations asks for another comparison.
        configurations=config["configurations"],
    shell:
        # The report of the first configuration is older than the measurements of the last.
        "chaosity reports --results {RESULTS:q} --anew {wildcards.host:q} > {log:q} 2>&1"


rule overview_of_hosts:
    input:
        [RUNS.finished_files(host) for host in RUNS.hosts],
    output:
        f"{RESULTS}/index.html",
    log:
        f"{RESULTS}/index.log",
    params:
        hosts=list(RUNS.hosts),
    shell:
        "chaosity overview {RESULTS:q}/*/*/summary.json --output {output:q} > {log:q} 2>&1"


onerror:
    if len(RUNS.hosts) > 1 and summary_files(Path(RESULTS)):
        shell(
            "chaosity overview {RESULTS:q}/*/*/summary.json --output {RESULTS:q}/index.html >&2"
        )
