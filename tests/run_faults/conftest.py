"""A simulated host whose results are made once; each test breaks a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broken_runs import SIMULATED_HOST, ResultsFolder, simulate_records
from workflow_folder import Workflow


def over_simulated_host(workflow: Workflow) -> Workflow:
    workflow.host("sim", **SIMULATED_HOST)
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 8}}
    return workflow


@pytest.fixture
def simulated(workflow: Workflow) -> Workflow:
    """A workflow over a simulated host with eight points."""
    return over_simulated_host(workflow)


@pytest.fixture(scope="session")
def finished(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the simulated host, with plan and points; no test may change them."""
    workflow = over_simulated_host(Workflow(root, tmp_path_factory.mktemp("finished")))
    simulate_records(workflow)
    return workflow.folder / "results"


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> ResultsFolder:
    """A copy of the records of the simulated host."""
    shutil.copytree(finished, tmp_path / "copy" / "results")
    return ResultsFolder(tmp_path / "copy" / "results")
