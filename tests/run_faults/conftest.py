"""A simulated host whose results are made once; each test breaks a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broken_runs import SIMULATED_HOST, ResultsFolder, chaosity
from workflow_folder import Workflow


@pytest.fixture
def simulated(workflow: Workflow) -> Workflow:
    """A workflow over a simulated host with eight points."""
    workflow.host("sim", **SIMULATED_HOST)
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 8}}
    return workflow


@pytest.fixture(scope="session")
def finished(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of the simulated host, with plan and points; no test may change them."""
    workflow = Workflow(root, tmp_path_factory.mktemp("finished"))
    workflow.host("sim", **SIMULATED_HOST)
    workflow.config |= {"experiments": ["memory_bandwidth"], "sample": {"memory_bandwidth": 8}}
    workflow.command()  # writes the config
    done = chaosity("simulate", "--config", "test.yaml", folder=workflow.folder)
    assert done.returncode == 0, done.stdout
    return workflow.folder / "results"


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> ResultsFolder:
    """A copy of the records of the simulated host."""
    shutil.copytree(finished, tmp_path / "copy" / "results")
    return ResultsFolder(tmp_path / "copy" / "results")
