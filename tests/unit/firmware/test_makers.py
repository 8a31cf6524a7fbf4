"""What the makers' files promise: each mode, with names that can be compared and values as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

VARS = Path(__file__).resolve().parents[3] / "roles/firmware/vars"
MAKERS = sorted(path.stem for path in VARS.glob("*.yml") if path.stem != "main")
MODES = {"nps1", "nps2", "nps4", "snc1", "snc2", "snc4"}


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
    assert set().union(*(attribute["values"] for attribute in attributes)) == MODES
    for attribute in attributes:
        re.compile(attribute["name"])
        for spellings in attribute["values"].values():
            assert spellings
            assert all(isinstance(spelling, str) for spelling in spellings), spellings


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
