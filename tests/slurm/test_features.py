"""Slurm takes the exported features, from scontrol and from slurm.conf, and jobs ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broken_runs import run_program
from table_rows import whole_map

pytestmark = pytest.mark.slurm

CONFIG = Path("/etc/slurm/slurm.conf")
EPYC = Path(__file__).resolve().parents[1] / "data/topologies/epyc-7413-2s-nps4-30drives.xml"


@pytest.fixture
def exported(cluster: None, tmp_path: Path) -> Iterator[list[str]]:
    """The lines of the file; Slurm's configuration is put back after the test."""
    done = run_program("chaosity", "export", "slurm", str(whole_map(EPYC, tmp_path, host="nodea")))
    assert done.returncode == 0, done.stdout
    before = CONFIG.read_text()
    yield done.stdout.splitlines()
    CONFIG.write_text(before)
    assert run_program("scontrol", "reconfigure").returncode == 0
    assert run_program("scontrol", "update", "NodeName=nodea", "AvailableFeatures=").returncode == 0


def check_that_jobs_can_ask(features: str) -> None:
    """A feature of the host is found by a job, on this node alone; a faster one is refused."""
    shown = run_program("scontrol", "show", "node", "nodea").stdout
    assert f"AvailableFeatures={features}\n" in shown and f"ActiveFeatures={features}\n" in shown
    job = ("srun", "--immediate=60", "printenv", "SLURMD_NODENAME")
    done = run_program(
        job[0], "--constraint=nps4&local_memory_ge_20GBps&any_memory_le_200ns", *job[1:]
    )
    assert (done.returncode, done.stdout.strip()) == (0, "nodea")
    done = run_program(job[0], "--constraint=local_memory_ge_50GBps", *job[1:])
    assert done.returncode != 0 and "feature" in done.stdout


def test_scontrol_takes_the_features(exported: list[str]) -> None:
    [update] = [line.removeprefix("# ") for line in exported if line.startswith("# scontrol ")]
    done = run_program(*update.split())
    assert done.returncode == 0, done.stdout
    check_that_jobs_can_ask(update.rpartition("=")[2])


def test_slurm_conf_takes_the_features(exported: list[str]) -> None:
    name, feature = exported[-1].split()
    text = CONFIG.read_text()
    assert text.count(f"{name} ") == 1
    CONFIG.write_text(text.replace(f"{name} ", f"{name} {feature} "))
    done = run_program("scontrol", "reconfigure")
    assert done.returncode == 0, done.stdout
    check_that_jobs_can_ask(feature.partition("=")[2])
