"""A clear error before any job, naming file, key and what is allowed."""

from __future__ import annotations

import pytest


def thorough(*values):
    """A case that `make test` leaves out: unit tests check the same error without Snakemake."""
    return pytest.param(*values, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"replicate": 2}, "config, the document: unknown key 'replicate'; did you mean repl"),
        thorough({"experiments": ["gpu"]}, "unknown experiment 'gpu'; allowed: bandwidth_scaling"),
        thorough({"benchmarks": {"memory_bandwidth": "strem"}}, "unknown benchmark 'strem'"),
        thorough({"hosts": ["milan"]}, "unknown host 'milan'; allowed: localhost"),
        thorough({"inventory": "none.yml"}, "none.yml: the inventory does not exist"),
    ],
)
def test_wrong_config(workflow, config, words):
    workflow.config.update(config)
    done = workflow.snakemake("--dry-run")
    assert done.returncode != 0
    assert words in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"chaosity_topolgy": "live"}, "did you mean chaosity_topology"),
        ({"chaosity_topology": "none.xml"}, "none.xml"),
        ({"chaosity_topology": "test.yaml"}, "test.yaml"),
    ],
)
@pytest.mark.thorough
def test_wrong_host(workflow, variables, words):
    workflow.host(**variables)
    done = workflow.snakemake("--dry-run")
    assert done.returncode != 0
    assert words in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.thorough
def test_a_topology_file_is_planned_whole_and_not_measured(workflow, root):
    xml = str(root / "tests/data/topologies/epyc-7413-2s-nps4-30drives.xml")
    workflow.host("milan", chaosity_topology=xml)
    workflow.config["experiments"] = ["memory_bandwidth", "interference"]
    counts = workflow.counts()
    assert counts["measure"] > 300
    assert counts["report"] == 1
    done = workflow.snakemake()
    assert done.returncode != 0
    assert "the host can be planned but not measured" in done.stdout
    assert not list((workflow.folder / "results").glob("**/rep*.json"))


@pytest.mark.thorough
def test_a_host_without_limit_is_refused(workflow):
    done = workflow.snakemake("--resources", "measuring_localhost=2")
    assert done.returncode != 0
    assert "several measurements could run on host" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"chaosity_topology": "elsewhere.xml"}, "has no host that can be set to other config"),
        ({}, "host localhost: a reboot of this host into another configuration would end this run"),
    ],
)
def test_hosts_that_cannot_be_set_to_a_configuration(workflow, variables, words):
    workflow.config["configurations"] = ["nps1", "nps4"]
    workflow.host(**variables)
    done = workflow.snakemake("--dry-run")
    assert done.returncode != 0
    assert words in done.stdout
