"""monitor.yml refuses what cannot work, before it installs anything.

tests/slurm/test_slurm_monitor.py installs the health check program.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from inventories import THIS_MACHINE, write_inventory
from machines import configuration_folder, simulated
from playbooks import NOBODY, Outcome, play

pytestmark = pytest.mark.thorough


SYSTEMD_RUNS = Path("/run/systemd/system").exists()
# The map is validated after the machine; this variable outranks what the role finds there.
WITH_SYSTEMD = {"__monitor_systemd": {"stat": {"exists": True}}}


class Monitor:
    """Runs monitor.yml for hosts that are this machine, each with a map, below a folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.results = root, folder, folder / "results"
        self.map = configuration_folder(simulated("one_node", ["memory_bandwidth"]))
        self.playbook = root / "playbooks/monitor.yml"

    def play(self, hosts: dict[str, dict[str, Any]], **extra: Any) -> Outcome:
        """Run the playbook for these hosts with their variables."""
        usual = {
            **THIS_MACHINE,
            "monitor_results": str(self.results),
            "monitor_folder": str(self.root),
        }
        for host in hosts:
            shutil.copytree(self.map.parent, self.results / host, dirs_exist_ok=True)
        given = {host: usual | own for host, own in hosts.items()}
        inventory = write_inventory(self.folder / "hosts.yml", given)
        return play(self.root, "-i", inventory, playbook=str(self.playbook), extra=extra)

    def check_refused(
        self, cases: dict[str, tuple[dict[str, Any], list[str]]], **extra: Any
    ) -> None:
        """See that each host is refused with its sentences, before anything is changed on it."""
        outcome = self.play({host: own for host, (own, _) in cases.items()}, **extra)
        outcome.check_refused({host: sentences for host, (_, sentences) in cases.items()})
        assert outcome.count("changed") == 0


@pytest.fixture
def monitor(root: Path, tmp_path: Path) -> Monitor:
    return Monitor(root, tmp_path)


def test_wrong_variables_and_machines_are_refused_by_name(monitor: Monitor, root: Path) -> None:
    cases: dict[str, tuple[dict[str, Any], list[str]]] = {
        "spelling": ({"monitor_stat": "absent"}, ["an unknown variable: monitor_stat."]),
        "start": ({"monitor_start": "cron"}, ["monitor_start", "systemd, slurm"]),
        "seconds": (
            {"monitor_start": "slurm", "monitor_seconds": 55},
            ["monitor_seconds of seconds is 55; give at least 2, and with Slurm at most 50"],
        ),
        "path": (
            {"monitor_textfile_directory": "metrics"},
            ["monitor_textfile_directory of path is 'metrics'; give a full path."],
        ),
    }
    if not SYSTEMD_RUNS:
        command = f"{root}/.venv/bin/chaosity check {monitor.results}/bare/CONFIGURATION"
        sentence = "localhost, which is to run the check of bare, does not run systemd."
        cases["bare"] = ({}, [sentence, command])
    if not shutil.which("scontrol"):
        cases["no-slurm"] = ({"monitor_start": "slurm"}, ["no-slurm has no command scontrol in"])
    monitor.check_refused(cases)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a check as another user")
def test_wrong_maps_and_users_are_refused_by_name(monitor: Monitor) -> None:
    project = monitor.folder / "project"
    project.mkdir()
    # The program's folder belongs to somebody else, who could change what root runs.
    os.chown(project, NOBODY, NOBODY)
    of_root = {"monitor_user": "root", "monitor_folder": str(project)}
    others = f"is to run as root, and others may change {project} on localhost."
    for host in ("several", "chosen"):
        shutil.copytree(monitor.map, monitor.results / host / "other", dirs_exist_ok=True)
    nowhere = monitor.folder / "nowhere"
    choice = f"has maps of {', '.join(sorted([monitor.map.name, 'other']))},"
    cases: dict[str, tuple[dict[str, Any], list[str]]] = {
        "unmapped": ({"monitor_results": str(nowhere)}, [f"{nowhere}/unmapped has no map of the"]),
        "several": ({}, [f"several {choice}", "Set it to one of them"]),
        "chosen": ({"monitor_configuration": "nps9"}, [f"chosen {choice}", "'nps9'"]),
        "nobodys": (
            {"monitor_user": "no-such-user"},
            ["localhost has no user 'no-such-user', who"],
        ),
        # The results are in a folder that only its owner may enter.
        "closed": ({"monitor_user": "nobody"}, ["nobody cannot check closed on localhost:"]),
        "open": (of_root, [others]),
    }
    monitor.check_refused(cases, **WITH_SYSTEMD)


@pytest.mark.skipif(
    SYSTEMD_RUNS or not shutil.which("systemd-analyze"),
    reason="this machine runs systemd, or lacks systemd-analyze",
)
def test_the_unit_starts_the_check_and_systemd_accepts_it(
    monitor: Monitor, root: Path, tmp_path: Path
) -> None:
    more = {
        "monitor_textfile_directory": str(tmp_path),
        "monitor_ignore_load": True,
        "monitor_seconds": 1800,
    }
    # The units are written to another folder and verified; no systemd is here to start them.
    outcome = monitor.play({"mapped": more}, **WITH_SYSTEMD, __monitor_units=str(tmp_path))
    assert outcome.count("failed") == 1
    assert outcome.says("[monitor : Start the timer]"), outcome.said
    unit = (tmp_path / "chaosity-check-mapped.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    folder = monitor.results / "mapped" / monitor.map.name
    assert shlex.split(command) == [
        *(f"{root}/.venv/bin/chaosity", "check", str(folder), "--seconds", "1800", "--ignore-load"),
        *("--textfile", f"{tmp_path}/chaosity_mapped.prom"),
    ]
    # systemd does not end a check before its time.
    [limit] = re.findall(r"^TimeoutStartSec=(\d+)$", unit, re.MULTILINE)
    assert int(limit) > 1800


@pytest.mark.skipif(
    SYSTEMD_RUNS or not shutil.which("systemd-analyze"),
    reason="this machine runs systemd, or lacks systemd-analyze",
)
def test_a_host_that_is_down_or_has_no_map_is_reported_and_the_other_hosts_go_on(
    monitor: Monitor, tmp_path: Path
) -> None:
    # Nothing listens at this port.
    down = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    hosts: dict[str, dict[str, Any]] = {
        "a-down": {**down, "monitor_machine": "a-down"},
        "b-unmapped": {"monitor_results": str(tmp_path / "nowhere")},
        "c-fine": {},
    }
    outcome = monitor.play(hosts, **WITH_SYSTEMD, __monitor_units=str(tmp_path))
    assert outcome.status != 0
    assert re.search(r"^a-down .* unreachable=1 ", outcome.said, re.MULTILINE), outcome.said
    assert outcome.says("nowhere/b-unmapped has no map of the host.")
    # The last host fails only at the start of its timer, because no systemd runs here.
    assert outcome.says("[monitor : Start the timer]"), outcome.said
    assert [path.name for path in sorted(tmp_path.glob("chaosity-check-*"))] == [
        "chaosity-check-c-fine.service",
        "chaosity-check-c-fine.timer",
    ]
