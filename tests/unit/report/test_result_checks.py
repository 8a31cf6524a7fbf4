from __future__ import annotations

import re
from dataclasses import replace

import pytest
from lxml import etree
from report_inputs import record_summaries, run_of, system_document

from chaosity.anomalies.anomaly_results import Findings
from chaosity.records.record_types import make_check
from chaosity.report.facts import host_state_section, machine_section
from chaosity.report.html import render_page
from chaosity.report.problems import SEVERITIES, check_results
from chaosity.topology.topology_model import topology_from_json
from machines import measured_host, shipped_topology

NOTHING_FOUND = Findings(None, "", "", None, (), (), None, None)


def checks(system=None, topology=None, tidy=None, runs=()):
    found = measured_host("one_node")
    return {
        check.name: check
        for check in check_results(
            run_of(
                found.tidy() if tidy is None else tidy,
                topology=topology_from_json({**found.topology(), **(topology or {})}),
                system=system_document(**(system or {})),
                summaries=runs,
                figures=(),
                found=NOTHING_FOUND,
            )
        )
    }


@pytest.mark.parametrize(
    ("system", "name", "severity"),
    [
        ({"frequency": {"governors": ["powersave"]}}, "Clock governor", "warning"),
        ({"frequency": {"governors": ["performance", "powersave"]}}, "Clock governor", "warning"),
        ({"frequency": None}, "Clock governor", "unknown"),
        (
            {"memory_settings": {"transparent_huge_pages": "never"}},
            "Transparent huge pages",
            "warning",
        ),
        ({"memory_settings": None}, "Transparent huge pages", "unknown"),
        ({"memory_settings": {"numa_balancing": "1"}}, "NUMA balancing", "warning"),
        ({"hypervisor": True}, "Virtual machine", "warning"),
        ({"hypervisor": None}, "Virtual machine", "unknown"),
        ({}, "Virtual machine", "ok"),
    ],
)
def test_settings_that_affect_values_are_reported(system, name, severity):
    check = checks(system)[name]
    assert check.severity == severity
    assert bool(check.advice) == (severity == "warning")


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


def test_checks_are_sorted_by_severity():
    severities = [check.severity for check in checks({"hypervisor": True}).values()]
    assert severities == sorted(severities, key=SEVERITIES.index)


def test_checks_of_records_are_counted():
    tidy = measured_host("one_node").tidy()
    check = checks(runs=record_summaries(tidy))["Precision"]
    assert check.text.startswith("not met in 33 % of 30 records, for example ±1.71 %")


def test_a_check_that_failed_and_that_was_unknown_is_reported_once():
    first, *others = record_summaries(measured_host("one_node").tidy())
    unknown = make_check("memory: precision", None, "too short", decisive=False)
    runs = [replace(first, checks=(unknown,)), *others]
    check = checks(runs=runs)["Precision"]
    text = check.text
    assert check.severity == "warning"
    assert text.startswith("not met in 33 % of 30 records, for example ±1.71 %")
    assert text.endswith("; could not be determined in 3.3 % of 30 records, for example too short")


def test_experiments_with_a_single_replicate_are_named():
    whole = measured_host("one_node").tidy()
    once = whole[(whole["experiment"] != "interference") | (whole["replicate"] == 1)]
    assert "Replicates" not in checks(tidy=whole)
    assert "every point of interference was" in checks(tidy=once)["Replicates"].text
    assert "every point was" in checks(tidy=whole[whole["replicate"] == 1])["Replicates"].text


def test_the_table_of_nodes_of_the_papers_server():
    topology = shipped_topology("epyc_7413_nps4")
    data = machine_section(run_of(topology=topology, system={}))
    page = etree.HTML(render_page("machine_section.html.j2", data=data))
    cells = page.xpath("//tbody/tr[5]/td")
    assert [cell.text or "" for cell in cells] == ["4", "1", "48-59", "32 GiB", "DRAM", "3"]


def test_host_state_has_units_and_unknown_values():
    groups = host_state_section(run_of(system=system_document(), summaries=()))
    assert groups["General"]["cpu flags"] == "40 values, see the component file"
    assert groups["General"]["huge page pools"] == "node 0 page 2 MiB pages 0"
    assert groups["General"]["hypervisor"] == "no"
    assert groups["Frequency"]["upper limits"] == "3.63 GHz"
    assert groups["Firmware"]["product vendor"] == "unknown"
    assert "Tools" not in groups


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


def test_a_missing_drive_is_a_note():
    tidy = measured_host("one_node").tidy()
    check = checks(tidy=tidy[tidy["load"] == "memory"])["Drives"]
    assert check.severity == "note"


def test_machine_facts_of_the_papers_server():
    topology = shipped_topology("epyc_7413_nps4")
    system = system_document()
    facts = machine_section(run_of(topology=topology, system=system))["facts"]
    assert facts["Structure"].startswith("2 packages, 8 memory nodes, 48 cores")
    assert facts["Memory"] == "256 GiB"
    assert facts["Memory modules"].startswith("peak unknown: ")
    assert facts["Drives"] == "30 x Simulated NVMe drive, 2.00 TB"
