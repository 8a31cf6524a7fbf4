"""Slurm's health check finds a real drive that became slow, by real measurements."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaosity.store.tidy_table_parquet import read_parquet_table
from playbooks import Outcome, play
from slurm_nodes import (
    CONFIGURATION,
    SETTINGS,
    is_drained,
    seen,
    traces_of_monitor,
    wait_for,
    wait_for_checks,
)
from slurm_workflow import INVENTORY, Checkout, command
from throttled_drive import ThrottledDrive, throttled_drive

pytestmark = pytest.mark.slurm

NODE = "nodea"
HEALTHY, SLOW = 200_000_000, 40_000_000
# Every start of the program checks the node. A check of a slow drive takes about 10 s.
OFTEN = {"monitor_interval_seconds": 1, "monitor_slurm_interval_seconds": 20}


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[ThrottledDrive]:
    with throttled_drive(tmp_path, HEALTHY) as found:
        yield found


@pytest.fixture
def mapped(checkout: Checkout, drive: ThrottledDrive) -> Path:
    """``results/HOST/CONFIGURATION`` of a node whose map has one value: the drive's bandwidth.

    The node is measured through Slurm, as `snakemake --profile cluster` does.
    """
    variables = {"ansible_connection": "local", "chaosity_extra_drives": [str(drive.device)]}
    inventory = {"all": {"vars": variables, "hosts": {NODE: {}}}}
    (checkout.folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    checkout.configure(experiments=["storage_bandwidth"], replicates=3)
    done = checkout.run()
    assert done.returncode == 0, done.stdout
    [folder] = checkout.folder.glob(f"results/{NODE}/*/")
    [*values] = read_parquet_table(folder / "measurements.parquet").value
    # A start without queue reads a little more than the limit.
    assert len(values) == 3 and all(HEALTHY < value < 1.3 * HEALTHY for value in values), values
    return folder


class Monitor:
    """The role on the node."""

    def __init__(self, root: Path, mapped: Path) -> None:
        self.root, self.results = root, mapped.parent.parent

    def play(self, **extra: Any) -> Outcome:
        variables = {"monitor_start": "slurm", "monitor_results": str(self.results), **extra}
        arguments = ("-i", INVENTORY, "--limit", NODE)
        outcome = play(self.root, *arguments, playbook="monitor.yml", extra=variables)
        assert outcome.status == 0, outcome.said
        return outcome


@pytest.fixture
def monitor(root: Path, mapped: Path) -> Iterator[Monitor]:
    role = Monitor(root, mapped)
    yield role
    role.play(monitor_state="absent")
    if is_drained(NODE):
        command("scontrol", "update", f"nodename={NODE}", "state=resume")


def stop_counters(folder: Path) -> None:
    """Show the check counters of processor time that stand still, as on a quiet machine.

    While other programs work, a loss is never a fault. This machine belongs to others too; what is
    measured here is the drive.
    """
    counters = folder / "stat"
    shutil.copyfile("/proc/stat", counters)
    path = SETTINGS / f"{NODE}.json"
    settings = json.loads(path.read_text())
    script = 'mount --bind "$0" /proc/stat && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, str(counters), *settings["command"]]
    path.write_text(json.dumps(settings | {"command": words}))


def wait_for_status(status: int) -> dict[str, Any]:
    """Wait for a further check with this exit status; one that a job ended has another."""

    def checked() -> dict[str, Any] | None:
        state = wait_for_checks(NODE)
        return state if state["status"] == status else None

    found = wait_for(checked)
    assert found
    return found


def test_a_slow_drive_drains_the_node_and_its_repair_resumes_it(
    monitor: Monitor, drive: ThrottledDrive, mapped: Path, tmp_path: Path
) -> None:
    assert traces_of_monitor() == []
    before = CONFIGURATION.read_text()
    monitor.play(monitor_action="drain", monitor_resume=True, **OFTEN)
    stop_counters(tmp_path)
    state = wait_for_status(0)
    assert f"{NODE}: fine: none of 1 value is worse than in the map." in state["output"]
    assert not is_drained(NODE) and seen(NODE, "Comment") == ""

    drive.limit(SLOW)
    wait_for_status(2)
    wait_for(lambda: is_drained(NODE))
    name = f"disk-{drive.device.name}"
    assert re.match(
        rf"chaosity: node_problem: {name}: (7\d|8\d) % worse than in the map, "
        r"4\d\.\d MB/s instead of 2\d\d MB/s, 3 measured",
        seen(NODE, "Reason"),
    ), seen(NODE, "Reason")
    # Slurm gives the node no job, and the check goes on.
    refused = command("srun", "--immediate=5", f"--nodelist={NODE}", "true", timeout=60)
    assert refused.returncode != 0
    state = wait_for_status(2)
    assert "look at the health and the link of the drive" in state["output"]

    drive.limit(HEALTHY)
    wait_for_status(0)
    wait_for(lambda: not is_drained(NODE))
    assert seen(NODE, "State").startswith("IDLE") and seen(NODE, "Comment") == ""
    assert command("srun", f"--nodelist={NODE}", "true", timeout=120).returncode == 0
    assert "yes" in (mapped / "checks.csv").read_text()

    monitor.play(monitor_state="absent")
    assert CONFIGURATION.read_text() == before
    assert traces_of_monitor() == []
    assert monitor.play(monitor_state="absent").count("changed") == 0
