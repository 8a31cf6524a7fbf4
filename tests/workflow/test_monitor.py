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
import yaml

from playbooks import NOBODY, Outcome, play
from simulated_map import simulate_maps

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def results(root: Path, tmp_path_factory: Any) -> Path:
    """Results with the map of the host `mapped`."""
    [folder] = simulate_maps(root, tmp_path_factory.mktemp("maps"), "mapped")
    return folder.parent.parent


@pytest.fixture
def monitor(root: Path, results: Path, tmp_path: Path) -> Any:
    """Runs monitor.yml for one host, which is this machine."""

    def run(host: str = "mapped", **extra: Any) -> Outcome:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        }
        document = {"all": {"hosts": {host: variables}}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(document))
        extra = {"monitor_results": str(results), **extra}
        return play(root, "-i", tmp_path / "hosts.yml", playbook="monitor.yml", extra=extra)

    return run


def refused(outcome: Outcome, *sentences: str) -> bool:
    """Whether the play ended with these sentences and had changed nothing."""
    assert outcome.status != 0 and outcome.count("changed") == 0, outcome.said
    assert outcome.says(*sentences), outcome.said
    return True


def test_wrong_variables_are_refused_by_name(monitor: Any) -> None:
    assert refused(monitor(monitor_stat="absent"), "an unknown variable: monitor_stat.")
    assert refused(monitor(monitor_start="cron"), "monitor_start", "systemd, slurm")
    assert refused(
        monitor(monitor_start="slurm", monitor_seconds=55),
        "monitor_seconds of mapped is 55; give at least 2, and with Slurm at most 50",
    )
    assert refused(
        monitor(monitor_textfile_directory="metrics"),
        "monitor_textfile_directory of mapped is 'metrics'; give a full path.",
    )


@pytest.mark.skipif(Path("/run/systemd/system").exists(), reason="this machine runs systemd")
def test_a_machine_without_systemd_gets_the_command_for_its_own_scheduler(
    monitor: Any, root: Path, results: Path
) -> None:
    assert refused(
        monitor(),
        "localhost, which is to run the check of mapped, does not run systemd.",
        f"{root}/.venv/bin/chaosity check {results}/mapped/CONFIGURATION",
    )


@pytest.mark.skipif(bool(shutil.which("scontrol")), reason="this machine has Slurm")
def test_a_host_without_slurm_is_refused(monitor: Any) -> None:
    assert refused(monitor(monitor_start="slurm"), "mapped has no command scontrol in PATH")


# The map is validated after the machine; this variable outranks what the role finds there.
WITH_SYSTEMD = {"__monitor_systemd": {"stat": {"exists": True}}}


@pytest.mark.skipif(
    Path("/run/systemd/system").exists() or not shutil.which("systemd-analyze"),
    reason="this machine runs systemd, or lacks systemd-analyze",
)
def test_the_unit_starts_the_check_and_systemd_accepts_it(
    monitor: Any, root: Path, results: Path, tmp_path: Path
) -> None:
    [folder] = (results / "mapped").glob("*/")
    more = {
        "monitor_textfile_directory": str(tmp_path),
        "monitor_ignore_load": True,
        "monitor_seconds": 1800,
    }
    # The units are written to another folder and verified; no systemd is here to start them.
    outcome = monitor(**WITH_SYSTEMD, **more, __monitor_units=str(tmp_path))
    assert outcome.count("failed") == 1
    assert outcome.says("[monitor : Start the timer]"), outcome.said
    unit = (tmp_path / "chaosity-check-mapped.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert shlex.split(command) == [
        *(f"{root}/.venv/bin/chaosity", "check", str(folder), "--seconds", "1800", "--ignore-load"),
        *("--textfile", f"{tmp_path}/chaosity_mapped.prom"),
    ]
    # systemd does not end a check before its time.
    [limit] = re.findall(r"^TimeoutStartSec=(\d+)$", unit, re.MULTILINE)
    assert int(limit) > 1800


def test_a_host_without_a_map_is_refused(monitor: Any, results: Path) -> None:
    assert refused(
        monitor("unmapped", **WITH_SYSTEMD), f"{results}/unmapped has no map of the host."
    )


def test_several_maps_need_a_choice(monitor: Any, results: Path, tmp_path: Path) -> None:
    [first] = (results / "mapped").glob("*/")
    shutil.copytree(results / "mapped", tmp_path / "results/mapped")
    shutil.copytree(first, tmp_path / "results/mapped/other")
    mine = {"monitor_results": str(tmp_path / "results"), **WITH_SYSTEMD}
    maps = f"mapped has maps of {', '.join(sorted([first.name, 'other']))},"
    assert refused(monitor(**mine), maps, "Set it to one of them")
    assert refused(monitor(**mine, monitor_configuration="nps9"), maps, "nps9")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a check as another user")
def test_users_who_cannot_check_are_refused(monitor: Any, tmp_path: Path, results: Path) -> None:
    assert refused(
        monitor(**WITH_SYSTEMD, monitor_user="no-such-user"),
        "localhost has no user 'no-such-user', who is to check mapped.",
    )
    # The results are in a folder that only its owner may enter.
    assert refused(
        monitor(**WITH_SYSTEMD, monitor_user="nobody"), "nobody cannot check mapped on localhost:"
    )
    # The program's folder belongs to somebody else, who could change what root runs.
    (tmp_path / "project").mkdir()
    os.chown(tmp_path / "project", NOBODY, NOBODY)
    assert refused(
        monitor(
            **{"monitor_folder": str(tmp_path / "project"), "monitor_user": "root"},
            **WITH_SYSTEMD,
        ),
        f"is to run as root, and others may change {tmp_path / 'project'} on localhost.",
    )
