"""Descriptions of simulated machines, right and wrong, and the topologies that ship with them."""

from __future__ import annotations

import runpy
import shutil
from datetime import date

import pytest
from lxml import etree
from machine_by_hand import TODAY, TOPOLOGY

from chaosity.errors import UserError
from chaosity.simulation.machine_description import current_faults, read_machine_description
from machines import SHIPPED_MACHINES, shipped_machine, shipped_topology

HEAD = "simulated_machine: bad\ndescription: for a test\nsources: [this test]\n"
BODY = """memory: {core_bytes_per_second: 1.0e+10, package_bytes_per_second: 1.0e+11}
latency_ns: {l1: 1, l2: 4, l3: 15, same_node: 100}
"""
# Faults, and words of what is wrong.
WRONG_FAULTS = {
    "slow_dram, node: 0": "'slow_dram' is not allowed",
    "slow_node, node: 0": "slow_node needs the key 'remaining'",
    "slow_node, node: 9, remaining: 0.5": "the topology has no node 9",
    "slow_node, node: 0, remaining: 0.5, core: 1": "unknown key 'core' of the fault slow_node",
    "slow_node, node: 0, remaining: 0.5, since: '2026-13-01'": (
        "faults.0.since: 2026-13-01 is not a date"
    ),
    "slow_drive, drive: nvme0, remaining: 0.5": "the topology has no drive nvme0",
    "slow_drive, drive: drive-0000-01-00-0, remaining: 0.5": (
        "faults.0: the fault slow_drive needs drives, but the description has none"
    ),
    "slow_link, from_package: 0, to_package: 1, remaining: 0.5": (
        "slow_link needs the capacity links.package_to_package_bytes_per_second"
    ),
    "waiting_l3_domains, l3_domains: [99], wait_ns: 75, from_bytes: 1": (
        "the topology has no L3 domain 99"
    ),
}
GPU = "devices: {memory_bytes_per_second: 1, link_bytes_per_second: 1, memory_node: 9}"
WRONG = [
    (HEAD, "the key 'memory' is missing"),
    (HEAD + BODY.replace("1.0e+11", "-1"), "package_bytes_per_second"),
    (HEAD + BODY + GPU, "the topology has no node 9"),
    (HEAD + BODY + "seed: 2026-13-01", "is not YAML: month must be in 1..12"),
    (HEAD + BODY + "based_on: bad", "unknown machine 'bad'"),
    (HEAD + BODY + "based_on: nothing", "unknown machine 'nothing'"),
    (HEAD + BODY + "cores: 7", "unknown key 'cores'"),
    (HEAD.replace("bad", "other") + BODY, "the file's name requires 'bad'"),
    *((f"{HEAD}{BODY}faults: [{{fault: {own}}}]", words) for own, words in WRONG_FAULTS.items()),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_description_is_refused_in_one_sentence(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_machine_description(path, TOPOLOGY)
    assert words in str(error.value)
    assert "bad.yaml" in str(error.value)


def test_a_date_may_be_written_without_quotes(tmp_path):
    path = tmp_path / "bad.yaml"
    fault = "{fault: slow_node, node: 0, remaining: 0.5, since: 2026-11-22}"
    path.write_text(HEAD + BODY + f"faults: [{fault}]")
    read = read_machine_description(path, TOPOLOGY)
    assert read["faults"][0]["since"] == "2026-11-22"
    assert current_faults(read, "host", date(2026, 11, 21)) == []
    assert current_faults(read, "host", TODAY) == read["faults"]


def test_descriptions_that_are_based_on_each_other_are_refused(tmp_path):
    for name, base in (("bad", "other"), ("other", "bad")):
        text = HEAD.replace("bad", name) + BODY + f"based_on: {base}"
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(UserError, match="unknown machine 'bad'"):
        read_machine_description(tmp_path / "bad.yaml", TOPOLOGY)


def test_a_description_in_any_folder_is_based_on_a_machine_that_ships(tmp_path):
    name = "desktop"
    topology = shipped_topology(name)
    mine = tmp_path / "bad.yaml"
    mine.write_text(HEAD + f"based_on: {name}\nseed: 7\n")
    wanted = {**shipped_machine(name, topology), "seed": 7}
    found = read_machine_description(mine, topology)
    assert found["seed"] == 7
    assert (found["memory"], found["latency_ns"]) == (wanted["memory"], wanted["latency_ns"])
    # A description beside the file is preferred.
    (tmp_path / f"{name}.yaml").write_text(HEAD.replace("bad", name) + BODY)
    assert read_machine_description(mine, topology)["latency_ns"]["l1"] == 1


FOLDER = SHIPPED_MACHINES / "topologies"


@pytest.mark.skipif(shutil.which("lstopo-no-graphics") is None, reason="hwloc is not installed")
def test_files_follow_from_the_table():
    program = runpy.run_path(str(FOLDER / "make_topologies.py"))
    assert {path.stem for path in FOLDER.glob("*.xml")} == set(program["MACHINES"])
    for name in (
        "epyc_7413_nps4",
        "desktop",
        "apple_m1_pro",
        "epyc_9554_cxl",
        "xeon_max_9480_snc4",
    ):
        made = program["make_topology"](program["MACHINES"][name])
        etree.indent(made)
        stored = etree.parse(FOLDER / f"{name}.xml").getroot()
        assert [contents(each) for each in made.iter()] == [
            contents(each) for each in stored.iter()
        ]


def contents(element: etree._Element) -> tuple[dict[str, str], str]:
    """The attributes of an element and its text, such as the entries of the SLIT."""
    return dict(element.attrib), (element.text or "").strip()
