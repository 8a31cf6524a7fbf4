"""The runs of the single hosts share one reading of the inventory, unless hosts are rebooted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from chaosity.campaign.runs_of_hosts import runs_of_hosts
from chaosity.documents.check_config import read_config
from chaosity.documents.shipped_documents import CONFIG, ROOT
from chaosity.hosts import ansible_inventory

VARIABLE = ansible_inventory._SHARED_ANSWER_VARIABLE


@pytest.mark.parametrize(("configurations", "shared"), [([], True), (["nps1", "nps2"], False)])
def test_only_runs_without_reboots_share_the_inventory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configurations: list[str], shared: bool
):
    monkeypatch.setenv(VARIABLE, "")
    topology = str(ROOT / "templates/machines/topologies/epyc_7413_{configuration}.xml")
    host = {
        "chaosity_topology": topology,
        "chaosity_simulated": str(ROOT / "templates/machines/epyc_7413.yaml"),
    }
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"a": host, "b": host}}}))
    own = {"inventory": str(inventory), "results": str(tmp_path), "configurations": configurations}
    runs = runs_of_hosts({**read_config(CONFIG), **own}, ROOT)
    assert runs is not None
    runs.prepare()
    assert len(runs.runs) == 2 * max(1, len(configurations))
    assert bool(os.environ[VARIABLE]) is shared
