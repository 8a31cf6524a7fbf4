"""A real Slurm with two nodes on this machine, and checkouts to run the workflow in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broken_runs import run_program
from slurm_workflow import Checkout, play


@pytest.fixture(scope="session")
def cluster(root: Path) -> Iterator[None]:
    """The cluster, set up by the role; taken away again unless it was there before."""
    if os.geteuid() != 0:
        pytest.skip("Slurm's daemons on this machine need root")
    if not shutil.which("dpkg"):
        pytest.skip("the role slurm knows Debian's family alone")
    there = Path("/etc/slurm/slurm.conf").exists()
    try:
        done = play(root)
        assert done.status == 0, done.said
        yield
    finally:  # also after Ctrl-C while it is set up
        if not there:
            done = play(root, "-e", "slurm_state=absent")
            assert done.status == 0, done.said


@pytest.fixture
def checkout(root: Path, tmp_path: Path, cluster: None) -> Checkout:
    """A checkout of its own for a test."""
    return Checkout(root, tmp_path)


@pytest.fixture
def drain() -> Iterator[Callable[[str, str], None]]:
    """Drains nodes, and resumes them after the test."""
    drained = []

    def do(node: str, reason: str) -> None:
        state = ["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"]
        assert run_program(*state).returncode == 0
        drained.append(node)

    yield do
    for node in drained:
        run_program("scontrol", "update", f"nodename={node}", "state=resume")
