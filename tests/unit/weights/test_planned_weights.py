"""What a run plans to place: nothing weighted before it was measured, and the same elsewhere."""

from __future__ import annotations

import json

import pytest
import yaml
from path_measurements import alone, together

from chaosity.campaign.campaign import Campaign, CommandLine
from chaosity.design import host_plan as planning
from chaosity.documents.config import read_config
from chaosity.store.tidy_table_parquet import write_parquet_table
from machines import shipped_topology
from table_rows import table

WEIGHTED = {"canonical", "canonical_contended", "bwap"}
EXPERIMENT = {
    "experiment": "placed",
    "designs": {
        "alone": {
            "loads": {
                "work": {
                    "category": "memory_bandwidth",
                    "kernel": ["triad"],
                    "initiator": {"names": ["nodes0-1"]},
                    "target": {
                        "policies": ["uniform_workers", *sorted(WEIGHTED)],
                        "weights_from": {
                            "canonical": "memory_bandwidth",
                            "canonical_contended": "contended_paths",
                        },
                    },
                }
            }
        }
    },
    "factors": {"policy": {"level": "work.target"}},
}


@pytest.fixture
def campaign(tmp_path, root, monkeypatch):
    """Makes the campaign of a run over a machine that is a file, which can be planned."""
    machine = root / "tests/data/topologies/epyc-7413-2s-nps4-30drives.xml"
    hosts = {"milan": {"chaosity_topology": str(machine)}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    monkeypatch.setattr(planning, "load_experiment", lambda _name: EXPERIMENT)
    config = {
        **read_config(),
        "inventory": str(tmp_path / "hosts.yml"),
        "results": str(tmp_path / "results"),
        "experiments": ["memory_bandwidth"],
    }
    return lambda *words: Campaign(config, root=root, command_line=CommandLine(words))


# The command line of the Snakemake that runs a job elsewhere.
OF_A_JOB = ("--mode", "remote")


def plan(campaign):
    """The plan of the only host."""
    [mode] = campaign.modes.values()
    return mode.plan


def shares(found):
    """Shares of each policy that a campaign plans."""
    points = plan(found).points
    return {p["factors"]["policy"]: p["loads"][0]["target"]["shares"] for p in points}


def test_the_second_run_adds_what_the_first_one_measured(campaign):
    first = campaign()
    folder = next(iter(first.modes.values())).folder
    assert set(shares(first)) == {"uniform_workers"}
    assert not (folder / "weights.json").exists()
    notes = json.loads((folder / "plan.json").read_text())["notes"]
    assert any("memory_bandwidth measures them in this run" in note for note in notes)
    assert any("run contended_paths first" in note for note in notes)
    write_parquet_table(table(alone(), together([0, 1])), folder / "measurements.parquet")
    assert set(shares(campaign(*OF_A_JOB))) == {"uniform_workers"}  # a job computes nothing
    second = campaign()
    assert set(shares(second)) == {"uniform_workers", *WEIGHTED}
    assert json.loads((folder / "plan.json").read_text())["notes"] == []
    # A job elsewhere reads what was kept, and knows the same points.
    (folder / "measurements.parquet").unlink()
    elsewhere = campaign(*OF_A_JOB)
    assert plan(elsewhere).points_fingerprint == plan(second).points_fingerprint


@pytest.mark.thorough
def test_a_matrix_that_was_measured_again_asks_for_no_placement(campaign):
    folder = next(iter(campaign().modes.values())).folder
    digests = []
    for value in (10e9, 10.3e9, 2e9):  # of every worker from node 7
        rows = [{**one, "value": value} if one["target"] == "node7" else one for one in alone()]
        write_parquet_table(table(rows), folder / "measurements.parquet")
        digests.append(plan(campaign()).points_fingerprint)
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("machine", ["opteron_6272", "xeon_e5_4620", "xeon_8358"])
def test_the_first_run_measures_the_weights_of_all_workers_that_the_second_places(machine):
    topology = shipped_topology(machine)
    host = planning.PlannedHost(machine, "nps", topology)
    asked = set()

    def weights(name, workers):
        """Equal shares of all nodes."""
        asked.add((name, tuple(workers)))
        return {node.os_index: 1.0 / len(topology.nodes) for node in topology.nodes}

    config = {**read_config(), "experiments": ["contended_paths", "page_placement"]}
    points = planning.plan_host(host, config, weights=weights).points
    measured = {
        tuple(sorted(node for load in point["loads"] for node in load["initiator"]["nodes"]))
        for point in points
        if point["experiment"] == "contended_paths"
    }
    workers = {nodes for name, nodes in asked if name == "canonical_contended"}
    assert len(workers) > 2
    assert workers <= measured
