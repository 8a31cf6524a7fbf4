"""What the makers' files promise: each mode, with names that can be compared and values as text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from chaosity.documents.checked_yaml import read_yaml
from chaosity.documents.config import Mode
from chaosity.documents.shipped_documents import ROOT

VARS = ROOT / "roles/firmware/vars"
MAKERS = sorted(path.stem for path in VARS.glob("*.yml") if path.stem != "main")
MODES = {"nps0", "nps1", "nps2", "nps4", "snc1", "snc2", "snc4"}
# HPE's reference lists no value for it.
WITHOUT_NPS0 = {"hpe"}


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((VARS / f"{name}.yml").read_text())


def maker_of(manufacturer: str) -> list[str]:
    """Makers whose pattern fits a BMC's word, as the role compares them."""
    makers = read("main")["__firmware_makers"]
    return [name for name, form in makers.items() if re.match(form, manufacturer, re.IGNORECASE)]


def test_a_maker_is_known_just_where_there_is_a_file() -> None:
    assert set(read("main")["__firmware_makers"]) == set(MAKERS)


@pytest.mark.parametrize(
    ("manufacturer", "maker"),
    [
        ("AMD", "ami"),
        ("AMD Corporation", "ami"),
        ("ASRockRack", "ami"),
        ("GIGABYTE", "ami"),
        ("Giga Computing", "ami"),
        ("Dell Inc.", "dell"),
        ("HPE", "hpe"),
        ("HP", "hpe"),
        ("Hewlett Packard Enterprise", "hpe"),
        ("Lenovo", "lenovo"),
        ("Supermicro", "supermicro"),
        ("Super Micro Computer, Inc.", "supermicro"),
    ],
)
def test_a_bmcs_word_means_one_maker(manufacturer: str, maker: str) -> None:
    assert maker_of(manufacturer) == [maker]


def test_an_unknown_word_means_none() -> None:
    assert maker_of("Contoso") == []


@pytest.mark.parametrize("maker", MAKERS)
def test_a_makers_file_has_every_mode(maker: str) -> None:
    attributes = read(maker)["__firmware_attributes"]
    missing = {"nps0"} if maker in WITHOUT_NPS0 else set()
    assert set().union(*(attribute["values"] for attribute in attributes)) == MODES - missing
    for attribute in attributes:
        re.compile(attribute["name"])
        for spellings in attribute["values"].values():
            assert spellings
            assert all(isinstance(spelling, str) for spelling in spellings), spellings


def test_the_config_accepts_exactly_the_modes_that_the_role_can_set() -> None:
    modes = read("main")["__firmware_modes"]
    assert set(modes) == MODES
    assert list(get_args(Mode)) == modes


def test_the_role_sees_the_packages_of_each_node(tmp_path: Path) -> None:
    """The role's shell lines read files like those of /sys: CPU 2 is off, node 1 has no memory."""
    units = {0: (0, 0), 1: (0, 0), 2: (0, None), 3: (0, 1), 4: (1, 1), 5: (2, 1)}
    for unit, (node, package) in units.items():
        folder = tmp_path / f"node{node}/cpu{unit}"
        (folder / "topology").mkdir(parents=True)
        if package is not None:
            (folder / "topology/physical_package_id").write_text(f"{package}\n")
    (tmp_path / "node3").mkdir()  # memory without processing units
    for node, kib in enumerate((1024, 0, 1024, 1024)):
        (tmp_path / f"node{node}/meminfo").write_text(f"Node {node} MemTotal:     {kib} kB\n")
    [task] = read_yaml(ROOT / "roles/firmware/tasks/read_nodes_with_boot_id.yml")
    script = task["ansible.builtin.shell"].replace("/sys/devices/system/node", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["0 1", "1"]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_setting_is_not_meant_by_two_entries(maker: str) -> None:
    """Two modes of one setting never share a value, and one name has one entry."""
    for attribute in read(maker)["__firmware_attributes"]:
        values = [value for spellings in attribute["values"].values() for value in spellings]
        assert len(values) == len(set(values)), attribute["name"]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_makers_file_says_what_it_was_tried_on(maker: str) -> None:
    tried = read(maker)["__firmware_tried_on"]
    text = " ".join((VARS / f"{maker}.yml").read_text().split())
    assert f"Tried on: {'lab' if tried == ['lab'] else 'nothing yet'}" in text
