"""The lab's machines as fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_machines import Lab, Machine
from lab_workflow import SERVER


@pytest.fixture(scope="session")
def lab(root: Path) -> Iterator[Lab]:
    """The lab, left as it was found."""
    found = Lab(root)
    yield found
    found.down()


@pytest.fixture(scope="session")
def small(lab: Lab) -> Machine:
    """The host with two nodes and two drives."""
    return lab.up("small")


@pytest.fixture(scope="session")
def provisioned(lab: Lab) -> Machine:
    """The host with two nodes and two drives, provisioned."""
    return lab.provisioned("small")


@pytest.fixture(scope="session")
def server(lab: Lab) -> Machine:
    """The paper's server, provisioned."""
    return lab.provisioned(SERVER)


@pytest.fixture(scope="session")
def traps(lab: Lab) -> Machine:
    """The machine of traps, provisioned: a node without units, one without memory, and others."""
    return lab.provisioned("traps")
