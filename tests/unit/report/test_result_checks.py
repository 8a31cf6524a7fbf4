from __future__ import annotations

import re
from dataclasses import replace

from report_inputs import record_summaries, run_of, system_document

from chaosity.anomalies.anomaly_results import Findings
from chaosity.records.record_format import make_check
from chaosity.report.problems import check_results
from chaosity.topology.topology_model import topology_from_json
from machines import measured_host

NOTHING_FOUND = Findings(None, "", "", None, (), (), None, None)


def checks(system=None, topology=None, tidy=None, runs=()):
    found = measured_host("one_node")
    return {
        check.name: check
        for check in check_results(
            run_of(
                found.tidy() if tidy is None else tidy,
                topology=topology_from_json({**found.topology(), **(topology or {})}),
                system_facts=system_document(**(system or {})),
                record_summaries=runs,
                figures=(),
                findings=NOTHING_FOUND,
            )
        )
    }


def test_restrictions_of_the_machine_are_reported():
    restrictions = {
        "missing_cpus": "8-11",
        "disallowed_cpus": "8-11",
        "offline_cpus": "",
        "cgroup": "/slurm/job1",
    }
    check = checks(topology={"restricted": True, "restrictions": restrictions})[
        "Processors and nodes"
    ]
    assert check.severity == "warning"
    assert check.text.endswith("disallowed cpus 8-11, cgroup /slurm/job1")


def test_a_check_that_failed_and_that_was_unknown_is_reported_once():
    first, *others = record_summaries(measured_host("one_node").tidy())
    unknown = make_check("memory: precision", None, "too short", decisive=False)
    runs = [replace(first, checks=(unknown,)), *others]
    check = checks(runs=runs)["Precision"]
    text = check.text
    assert check.severity == "warning"
    assert text.startswith("not met in 33 % of 30 records, for example ±1.71 %")
    assert text.endswith("; could not be determined in 3.3 % of 30 records, for example too short")


def with_clocks(*clocks, source="APERF and MPERF"):
    """Return the checks of a run; the loads on all cores of node 0, 1, ... had these clocks."""
    tidy = measured_host("fleet").tidy()
    of_node = dict(enumerate(clocks))
    hertz = tidy["initiator_nodes"].map(
        lambda nodes: of_node.get(int(nodes)) if nodes.isdigit() else None
    )
    run = record_summaries(tidy)[0]
    said = {"hertz": clocks[0], "source": source} if clocks else {"hertz": None, "reason": "no PMU"}
    tidy = tidy.assign(clock_hertz=hertz.astype("Float64"))
    return checks(tidy=tidy, runs=[replace(run, clocks=(said,))])["Clock under load"]


def test_equal_clocks_are_shown_for_each_node_with_their_number():
    check = with_clocks(3.1e9, 3.08e9)
    assert check.severity == "ok"
    assert re.match(r"median 3.10 GHz on node 0 \(n = \d+\) and 3.08 GHz on node 1", check.text)
    assert check.text.endswith("from APERF and MPERF")


def test_a_node_with_a_lower_clock_is_named():
    check = with_clocks(3.0e9, 2.4e9)
    assert check.severity == "warning"
    assert check.text.startswith("20 % lower on node 1 than on node 0: median 3.00 GHz on node 0")


def test_an_unknown_clock_has_its_reason_and_older_records_no_line():
    assert with_clocks().text == "unknown: no PMU"
    assert "Clock under load" not in checks()


def test_a_simulated_machine_has_no_settings_to_check():
    found = checks(
        {"hypervisor": None}, tidy=measured_host("one_node").tidy().assign(origin="simulated")
    )
    assert "Virtual machine" not in found
    assert "Completeness" in found
