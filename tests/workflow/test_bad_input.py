"""A clear error before any job, naming file, key and what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from chaosity.campaign.campaign import Campaign
from chaosity.documents.config import read_config
from chaosity.documents.shipped_documents import ROOT
from chaosity.errors import UserError
from inventories import SHIPPED_TOPOLOGIES, simulated_host
from workflow_folder import Workflow


def test_a_wrong_config_ends_snakemake_with_one_sentence(workflow: Workflow):
    workflow.config.update({"replicate": 2})
    done = workflow.snakemake("--dry-run")
    assert done.returncode == 2
    assert "config, the document: unknown key 'replicate'; did you mean repl" in done.stdout
    assert "Traceback" not in done.stdout


MODES = {"configurations": ["nps1", "nps4"]}
CLOSED_PORT = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
SIMULATED = simulated_host("epyc_9575f", "epyc_9575f_nps1")
OF_MODE = {"chaosity_topology": str(SHIPPED_TOPOLOGIES / "epyc_9575f_{configuration}.xml")}
# What the config and the variables of the host are, and the sentence.
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"experiments": ["gpu"]}, {}, "unknown experiment 'gpu'; allowed: bandwidth_scaling"),
    ({"benchmarks": {"memory_bandwidth": "strem"}}, {}, "unknown benchmark 'strem'"),
    ({"hosts": ["milan"]}, {}, "unknown host 'milan'; allowed: localhost"),
    ({"inventory": "none.yml"}, {}, "none.yml: the inventory does not exist"),
    ({}, {"chaosity_topolgy": "live"}, "did you mean chaosity_topology"),
    ({}, {"chaosity_topology": "none.xml"}, "none.xml"),
    (MODES, {"chaosity_topology": "a.xml"}, "has no host that can be set to other config"),
    (MODES, {}, "localhost: a reboot of this host into another configuration would end this run"),
    # Before it is booted.
    (MODES, CLOSED_PORT, "host localhost: the host cannot be reached: "),
    (
        {},
        {"chaosity_simulated": SIMULATED["chaosity_simulated"]},
        "a simulated host needs a topology file",
    ),
    ({"configurations": ["nps1"]}, SIMULATED, "is simulated in a single configuration"),
    (
        {},
        {**SIMULATED, **OF_MODE},
        "the topology file depends on the configuration, but no configuration is given",
    ),
    ({"budget": "soon"}, {}, "'soon' is not a duration such as 30m, 2h or 1h30m"),
    ({"budget": "0m"}, {}, "budget is zero"),
    ({"budget": "3s"}, SIMULATED, "measuring each cell of the node matrices once takes about"),
    ({"budget": "1h", "replicates": 5}, {}, "budget and replicates contradict"),
    ({"known_from": ["results"]}, {}, "earlier runs steer only runs with a budget or a precision"),
    ({"precision": "wide"}, {}, "'wide' is not a share such as 2 % or 0.02"),
    ({"precision": 0.02, "replicates": 5}, {}, "precision and replicates contradict"),
]


@pytest.mark.parametrize(
    ("changes", "variables", "sentence"), REFUSED, ids=[sentence[:30] for *_, sentence in REFUSED]
)
def test_a_run_is_refused_when_its_files_are_read(
    workflow: Workflow, changes: dict[str, Any], variables: dict[str, Any], sentence: str
):
    """As workflow/Snakefile and its first rules call it."""
    workflow.host(**variables)
    results = workflow.folder / "results"
    files = {"inventory": workflow.config["inventory"], "results": str(results)}
    config: dict[str, Any] = {**read_config(), **files, **changes}
    with pytest.raises(UserError, match=re.escape(sentence)):
        Campaign(config, root=ROOT)
    assert not [*results.glob("*/*/points")]


@pytest.mark.thorough
def test_a_topology_file_is_planned_whole_and_not_measured(workflow: Workflow, root: Path):
    workflow.host("planned", chaosity_topology=str(root / "tests/data/machines/fleet.xml"))
    workflow.config["experiments"] = ["memory_bandwidth", "interference"]
    counts = workflow.counts()
    assert counts["measure"] > 20
    assert counts["report"] == 1
    done = workflow.snakemake()
    assert done.returncode != 0
    assert "the host can be planned but not measured" in done.stdout
    assert not workflow.records()


@pytest.mark.thorough
def test_a_host_without_limit_is_refused(workflow: Workflow):
    done = workflow.snakemake("--resources", "measuring_localhost=2")
    assert done.returncode != 0
    assert "several measurements could run on host" in done.stdout
