"""slurm.yml leaves out the hosts that have no machine; nothing is installed here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from playbooks import play


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("dpkg"), reason="the role slurm supports only Debian's family")
def test_the_controller_is_the_first_host_that_has_a_machine(root: Path, tmp_path: Path) -> None:
    topology = str(root / "templates/machines/topologies/xeon_8358.xml")
    hosts = {
        "imagined": {"chaosity_topology": topology, "chaosity_simulated": "xeon_8358"},
        "planned": {"chaosity_topology": topology, "ansible_host": "host.invalid"},
        # The role refuses this name before it changes anything, and says it.
        "real": {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "slurm_node_name": "controller: {{ slurm_controller }}",
        },
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    outcome = play(root, "-i", tmp_path / "hosts.yml", playbook="tests/slurm/slurm.yml")
    assert outcome.status != 0
    assert outcome.says("slurm_node_name of real is controller: real; use only letters"), (
        outcome.said
    )
