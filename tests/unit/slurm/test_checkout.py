"""The checkout in which Slurm's tests run, since those are not run at every change."""

from __future__ import annotations

from chaosity.documents.config import read_config
from slurm_workflow import Checkout
from workflow_folder import SHORT


def test_its_config_is_the_projects_with_short_times(root, tmp_path):
    checkout = Checkout(root, tmp_path)
    long = {"relative_precision": None, "min_seconds": 1, "max_seconds": 1}
    checkout.configure(stopping={"memory_bandwidth": long})
    config = read_config(tmp_path / "config/config.yaml")
    assert config["stopping"] == {**read_config()["stopping"], **SHORT, "memory_bandwidth": long}
    assert config["replicates"] == 1
