"""The health check program of the role monitor, started by a real Slurm with two nodes.

The hosts of the maps are simulated, so that one of them can get a fault and be repaired.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broken_runs import BIN, run_program
from playbooks import NOBODY, Outcome, play
from simulated_map import set_faults, simulate_maps, slow_node
from slurm_nodes import (
    CONFIGURATION,
    PROGRAM,
    SETTINGS,
    is_drained,
    last_check,
    seen,
    traces_of_monitor,
    wait_for,
    wait_for_checks,
)
from slurm_workflow import HOSTS, INVENTORY

pytestmark = pytest.mark.slurm

# Slurm starts the program every ten seconds, and every check is due.
OFTEN = {"monitor_interval_seconds": 1, "monitor_slurm_interval_seconds": 10}


class Monitor:
    """The role on both nodes, with the maps of two simulated hosts."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.nodea, self.nodeb = simulate_maps(root, folder, *HOSTS)

    def play(self, **extra: Any) -> Outcome:
        variables = {
            "monitor_start": "slurm",
            "monitor_results": str(self.nodea.parent.parent),
            **OFTEN,
            **extra,
        }
        return play(self.root, "-i", INVENTORY, playbook="playbooks/monitor.yml", extra=variables)

    def install(self, **extra: Any) -> None:
        outcome = self.play(**extra)
        assert outcome.status == 0, outcome.said


@pytest.fixture(scope="module")
def before(cluster: None) -> str:
    """Slurm's configuration before anything was installed."""
    return CONFIGURATION.read_text()


@pytest.fixture(scope="module")
def maps(root: Path, before: str) -> Iterator[Monitor]:
    # Other users may not enter pytest's folders.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        found = Monitor(root, Path(folder))
        yield found
        outcome = found.play(monitor_state="absent")
        assert outcome.status == 0, outcome.said


@pytest.fixture
def monitor(maps: Monitor) -> Iterator[Monitor]:
    """The role, with healthy hosts; what a test installs stays until the next test."""
    yield maps
    for folder in (maps.nodea, maps.nodeb):
        set_faults(folder)
    # A check that saw the fault may still run, and drain its node.
    for node in HOSTS:
        while (last_check(node) or {}).get("status") == 2:
            wait_for_checks(node)
    for node in filter(is_drained, HOSTS):
        run_program("scontrol", "update", f"nodename={node}", "state=resume")


def test_a_fault_drains_the_node_and_a_repair_resumes_it(monitor: Monitor) -> None:
    monitor.install(monitor_action="drain", monitor_resume=True)
    for node in HOSTS:
        state = wait_for_checks(node)
        assert state["status"] == 0, state
        assert f"{node}: fine: none of" in state["output"]
        assert not is_drained(node) and seen(node, "Comment") == ""
    set_faults(monitor.nodea, slow_node(1, 0.8))
    wait_for(lambda: is_drained("nodea"))
    assert re.match(
        r"chaosity: node_problem: node1: (19|2\d) % worse than in the map, .* GB/s instead of",
        seen("nodea", "Reason"),
    )
    wait_for_checks("nodeb")
    assert not is_drained("nodeb")
    # The check goes on while the node is drained.
    set_faults(monitor.nodea)
    wait_for(lambda: not is_drained("nodea"))
    assert seen("nodea", "State").startswith("IDLE")  # a busy machine adds NOT_RESPONDING
    assert (monitor.nodea / "checks.csv").read_text().count("\n") > 10


def test_without_resume_a_node_stays_drained_as_does_one_that_somebody_else_drained(
    monitor: Monitor, drain: Any
) -> None:
    drain("nodea", "bad fan, see ticket 7")
    run_program("scontrol", "update", "nodename=nodea", "comment=rack 3")
    try:
        set_faults(monitor.nodea, slow_node(1, 0.8))
        set_faults(monitor.nodeb, slow_node(1, 0.8))
        monitor.install(monitor_action="drain")
        wait_for(lambda: is_drained("nodeb"))
        set_faults(monitor.nodeb)
        for node, status in (("nodea", 2), ("nodeb", 0)):
            while wait_for_checks(node)["status"] != status:
                pass
            wait_for_checks(node)
            assert is_drained(node)
        assert seen("nodeb", "Reason").startswith("chaosity: node_problem: node1: ")
        assert seen("nodea", "Reason") == "bad fan, see ticket 7"
        assert seen("nodea", "Comment") == "rack 3"
    finally:
        run_program("scontrol", "update", "nodename=nodea", "comment=")


def test_without_drain_a_fault_is_a_comment_that_ends_with_the_fault_or_the_role(
    monitor: Monitor,
) -> None:
    monitor.install()
    set_faults(monitor.nodeb, slow_node(0, 0.5))
    wait_for(lambda: seen("nodeb", "Comment"))
    assert seen("nodeb", "Comment").startswith("chaosity: node_problem: node0: ")
    assert not is_drained("nodeb")
    set_faults(monitor.nodeb)
    wait_for(lambda: not seen("nodeb", "Comment"))
    set_faults(monitor.nodeb, slow_node(0, 0.5))
    wait_for(lambda: seen("nodeb", "Comment"))
    outcome = monitor.play(monitor_state="absent")
    assert outcome.status == 0, outcome.said
    assert seen("nodeb", "Comment") == ""


def test_the_check_runs_as_the_owner_of_the_results(monitor: Monitor) -> None:
    started = run_program("runuser", "-u", "nobody", "--", str(BIN / "chaosity"), "--help")
    if started.returncode:
        pytest.skip("other users may not start the Python of this environment")
    for path in (monitor.nodeb.parent, *monitor.nodeb.parent.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    earlier = list((monitor.nodeb / "checks").glob("*"))
    monitor.install()
    assert json.loads((SETTINGS / "nodeb.json").read_text())["user"] == "nobody"
    assert json.loads((SETTINGS / "nodea.json").read_text())["user"] == "root"
    state = wait_for_checks("nodeb", 2)
    assert state["status"] == 0, state
    new = set((monitor.nodeb / "checks").glob("*")) - set(earlier)
    assert {path.stat().st_uid for path in new} == {NOBODY}
    for path in (monitor.nodeb.parent, *monitor.nodeb.parent.rglob("*")):
        os.chown(path, 0, 0)


def test_a_busy_node_is_not_checked_and_a_job_ends_a_check(monitor: Monitor) -> None:
    monitor.install(monitor_interval_seconds=86400)
    wait_for(lambda: last_check("nodea"))
    done = run_program(
        "srun", "--nodelist=nodea", str(PROGRAM), "--node=nodea", "--now", timeout=60
    )
    assert "nodea: not checked: a job uses the node" in done.stdout
    # A check that takes long enough for a job to start.
    path = SETTINGS / "nodea.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["sleep", "50"]}))
    monitored = run_program(
        *("sh", "-c", '"$@" & sleep 3; "$@"; srun --nodelist=nodea sleep 6; wait $!', "sh"),
        *(str(PROGRAM), "--node=nodea", "--now"),
        timeout=60,
    )
    assert "nodea: not checked: another check of the node runs" in monitored.stdout
    assert "nodea: not checked: a job started on the node" in monitored.stdout
    state = last_check("nodea")
    assert state and state["status"] == 3
    assert run_program("pgrep", "-f", "sleep 50").returncode == 1


def test_a_second_run_changes_nothing_and_nothing_is_left(monitor: Monitor, before: str) -> None:
    collector = monitor.nodea.parent.parent / "node_exporter"
    collector.mkdir()
    monitor.install(monitor_textfile_directory=str(collector))
    assert "HealthCheckProgram=/usr/local/sbin/chaosity-monitor" in CONFIGURATION.read_text()
    assert monitor.play(monitor_textfile_directory=str(collector)).count("changed") == 0
    (collector / "chaosity_nodea.prom").touch()  # a check may have written it already
    again = play(monitor.root, "-i", INVENTORY, playbook="tests/slurm/slurm.yml")
    assert (again.status, again.count("changed")) == (0, 0), again.said
    for path in (PROGRAM, *SETTINGS.iterdir(), SETTINGS):
        status = path.stat()
        assert (status.st_uid, status.st_mode & 0o022) == (0, 0), path
    outcome = monitor.play(monitor_state="absent")
    assert outcome.status == 0, outcome.said
    assert CONFIGURATION.read_text() == before
    assert traces_of_monitor() == []
    assert [*collector.iterdir()] == []
    assert monitor.play(monitor_state="absent").count("changed") == 0


def test_the_removal_ends_a_check_that_runs(monitor: Monitor) -> None:
    monitor.install(monitor_interval_seconds=86400)
    wait_for(lambda: last_check("nodea"))
    path = SETTINGS / "nodea.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"command": ["sleep", "45"]}))
    with subprocess.Popen([PROGRAM, "--node=nodea", "--now"]) as running:
        wait_for(lambda: run_program("pgrep", "-f", "sleep 45").returncode == 0)
        outcome = monitor.play(monitor_state="absent")
        assert outcome.status == 0, outcome.said
        assert running.wait(5) == 3
    assert run_program("pgrep", "-f", "sleep 45").returncode == 1
    assert traces_of_monitor() == []


def test_another_health_check_program_is_not_replaced(monitor: Monitor, before: str) -> None:
    theirs = f"{before}HealthCheckProgram=/usr/sbin/nhc\n"
    CONFIGURATION.write_text(theirs)
    try:
        outcome = monitor.play()
        assert outcome.status != 0
        assert outcome.says("has a health check already: HealthCheckProgram=/usr/sbin/nhc.")
        assert CONFIGURATION.read_text() == theirs
        assert not PROGRAM.exists()
        # Then that program calls this one.
        monitor.install(monitor_slurm_configuration="")
        assert CONFIGURATION.read_text() == theirs
        done = run_program(str(PROGRAM), "--node=nodeb", "--now", timeout=120)
        assert "nodeb: fine: none of" in done.stdout
    finally:
        CONFIGURATION.write_text(before)


def test_a_host_that_was_measured_over_ssh_is_refused(monitor: Monitor) -> None:
    path = monitor.nodea.parent / "host.json"
    kept = path.read_text()
    path.write_text(json.dumps(json.loads(kept) | {"transport": {"kind": "ssh"}}))
    try:
        outcome = monitor.play()
        assert outcome.status != 0
        assert outcome.says("nodea was measured over SSH, so it is checked from this machine.")
        assert outcome.count("changed") == 0
    finally:
        path.write_text(kept)
