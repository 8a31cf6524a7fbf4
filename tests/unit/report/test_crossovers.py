"""Crossovers of two firmware modes are compared between simulated servers of document 001."""

from __future__ import annotations

import json
from functools import cache

import pytest
from click.testing import CliRunner

from chaosity.cli import chaosity
from chaosity.report.crossovers import compare_crossovers
from chaosity.store.measurements import Measurements
from chaosity.store.tidy_table_parquet import write_parquet_table
from machines import planned

MIXES = ("read100",)
MODES = ("nps1", "nps0")
NAMES = ("before", "after")
FIGURE = "modes_under_load_one_node"


@cache
def in_both_modes():
    """Return the server in two modes, as far as its points are compared."""
    config = {"experiments": ["modes_under_load"], "replicates": 3, "levels": {}}
    names = {"name": "epyc_9575f", "all_points": True}
    hosts = (planned("epyc_9575f", f"epyc_9575f_{mode}", **names, **config) for mode in MODES)
    return [host.where(is_compared) for host in hosts]


def server(share):
    """Return the server with a share of the bandwidth of its memory."""
    return [host.with_memory(share) for host in in_both_modes()]


def is_compared(point):
    traffic = point["factors"]["traffic_of"]
    has_mix = any(f"+{mix}+" in point["point"] for mix in MIXES)
    return traffic == "idle" or (traffic == "one_node" and has_mix)


def tables(server, seed):
    return Measurements.concatenated(host.table(seed) for host in server)


@pytest.fixture(scope="module")
def servers():
    """Return a server with 90 % of its memory bandwidth, and the same server without this fault."""
    return [server(share) for share in (0.9, 1.0)]


def verdicts(left, right):
    found = compare_crossovers(left, right, NAMES)
    return {each.line: each for each in found if each.figure == FIGURE}


def test_the_change_of_the_crossover_after_a_repair_is_found(servers):
    slow, healthy = servers
    found = verdicts(tables(slow, 1), tables(healthy, 2))
    for mix in MIXES:
        ratio = found[mix].ratio
        assert ratio.is_outside_interval(1.0) and ratio.ratio == pytest.approx(0.9, rel=0.03)
        assert "nps1 and nps0 cross at" in found[mix].sentence


def test_equal_servers_have_no_change(servers):
    table = tables(servers[1], 1)
    found = verdicts(table, tables(servers[1], 2))
    assert all("no difference detected, " in found[mix].sentence for mix in MIXES)
    # Points without traffic have no verdict.
    assert not verdicts(table, table.where(load="chase"))


def test_it_is_said_why_crossovers_cannot_be_compared(servers):
    slow, healthy = (tables(server, 1) for server in servers)
    # Without its points of highest traffic, no mode reaches the crossover.
    high = healthy.rows["point"].str.contains(r"share-(?:[6-9]\d|100)$")
    assert high.any()
    sentence = verdicts(slow, healthy.select(~high))["read100"].sentence
    assert "the crossovers cannot be compared. after: no crossover is found" in sentence
    [verdict] = verdicts(slow, healthy.where(configuration="nps1")).values()
    assert "cannot be compared, since before has nps1, nps0 and after has nps1." in verdict.sentence


def test_the_command_compares_two_modes_and_the_modes_of_two_servers(servers, tmp_path):
    for name, server in zip(NAMES, servers, strict=True):
        for host in server:
            rows = host.table(1).rows
            folder = tmp_path / name / str(rows["configuration"].iloc[0])
            folder.mkdir(parents=True)
            write_parquet_table(rows, folder / "measurements.parquet")

    def run(*arguments):
        done = CliRunner().invoke(chaosity, ["compare", *map(str, arguments)])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    title = "Latency by memory traffic of one node, read100"
    modes = run(tmp_path / "after/nps1", tmp_path / "after/nps0")
    assert f"{title}: from 41" in modes
    assert "on, epyc_9575f nps0 (SIMULATED) has a lower latency than epyc_9575f nps1" in modes
    found = json.loads(run(tmp_path / "before", tmp_path / "after", "--json"))
    assert found["matched_by"] == "place"
    [verdict] = [each for each in found["crossovers"] if each["figure"] == FIGURE][:1]
    assert verdict["ratio"]["high"] < 1.0
