"""slurm.yml leaves out the hosts that have no machine; nothing is installed here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from inventories import THIS_MACHINE, simulated_host, write_inventory
from playbooks import play


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("dpkg"), reason="the role slurm supports only Debian's family")
def test_the_controller_is_the_first_host_that_has_a_machine(root: Path, tmp_path: Path) -> None:
    simulated = simulated_host("xeon_8358")
    hosts = {
        "imagined": simulated,
        "planned": {
            "chaosity_topology": simulated["chaosity_topology"],
            "ansible_host": "host.invalid",
        },
        # The role refuses this name before it changes anything, and says it.
        "real": {**THIS_MACHINE, "slurm_node_name": "controller: {{ slurm_controller }}"},
    }
    inventory = write_inventory(tmp_path / "hosts.yml", hosts)
    outcome = play(root, "-i", inventory, playbook="tests/slurm/slurm.yml")
    assert outcome.status != 0
    assert outcome.says("slurm_node_name of real is controller: real; use only letters"), (
        outcome.said
    )
