"""The machines that the inventory of the lab describes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from virtual_lab.machine_folder import complete_description

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def described() -> dict[str, dict[str, Any]]:
    """The complete descriptions of the inventory's machines, by name."""
    hosts = yaml.safe_load((ROOT / "tests/lab/inventory/hosts.yml").read_text())["all"]["hosts"]
    return {
        name: complete_description(
            {
                **facts["virtual_lab_machine"],
                "name": name,
                "ssh_port": facts["ansible_port"],
                "image": "/cache/image",
            }
        )
        for name, facts in hosts.items()
    }
