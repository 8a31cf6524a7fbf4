# Measures each host within a budget, round after round: choose measurements, take them, next round.

from chaosity.records.atomic_writes_and_record_files import utc_now_text


localrules:
    all,
    measure_in_rounds,


rule measure_in_rounds:
    output:
        touch(f"{RESULTS}/{{host}}/{{configuration}}/rounds.txt"),
    log:
        f"{RESULTS}/{{host}}/{{configuration}}/rounds.log",
    threads: CAMPAIGN.measurement_threads
    params:
        config=f"{RESULTS}/{{host}}/{{configuration}}/budget_config.yaml",
        root=str(ROOT),
        following=lambda wildcards: CAMPAIGN.rounds[wildcards.host].describe_next_round(),
        # Every run looks whether a component has changed, or time of the budget is left.
        asked_at=utc_now_text(),
    message:
        "{params.following}"
    shell:
        "chaosity rounds {params.config:q} --workflow {params.root:q}"


onstart:
    call_or_exit_on_user_error(CAMPAIGN.write_budget_configs)


onsuccess:
    call_or_exit_on_user_error(CAMPAIGN.check_no_host_was_skipped)
