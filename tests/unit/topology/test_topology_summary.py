"""The summary of a topology on a terminal with 100 columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaosity.cli.topology import short_cpu_list, topology_command, unusable_part_sentences
from chaosity.topology.topology_discovery import discover_topology
from chaosity.topology.topology_json import topology_to_json

OWN = Path(__file__).resolve().parents[2] / "data/topologies"


@pytest.fixture
def shown(monkeypatch):
    """Runs the command and returns what it printed."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> str:
        return CliRunner().invoke(topology_command, arguments, catch_exceptions=False).stdout

    return run


@pytest.mark.parametrize("path", sorted(OWN.glob("*.xml")), ids=lambda path: path.stem)
def test_the_summary_fits_on_100_columns(shown, path):
    lines = shown(str(path)).splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" not in "".join(lines)


def test_json_is_the_whole_topology(shown):
    path = str(OWN / "devices.xml")
    assert json.loads(shown(path, "--json")) == topology_to_json(discover_topology(path))


def test_this_machine_is_the_default(shown):
    values = json.loads(shown("--json"))
    assert values["kind"] == "live"
    assert values["pus"] >= 1
    assert f"{values['usable']['pus']} PU" in shown()


def test_unknown_nodes_are_shown_as_unknown(shown):
    text = shown(str(OWN / "devices.xml"))
    row = next(line for line in text.splitlines() if "nvme4n1" in line)
    assert row.rstrip().endswith("unknown")
    assert "1 on node 0" in text  # the NVMe function without a block device
    assert "display only" in text


def test_restrictions_in_plain_words():
    sentences = list(unusable_part_sentences(discover_topology(str(OWN / "disallowed.xml"))))
    assert sentences == [
        "CPU 4 is offline.",
        "CPUs 2-3 are forbidden by cgroup /job7.",
        "The memory of node 0 is forbidden by cgroup /job7.",
    ]


def test_long_lists_of_processing_units_are_cut():
    assert short_cpu_list(range(0, 8)) == "0-7"
    assert short_cpu_list(range(0, 80, 4)) == "0,4,8,12,16,... (20)"
