"""The check of every night, which the role `monitor` installs on a machine that runs systemd.

The machine is the host itself, with a copy of the project, its environment and the results in the
same folders as here. It reaches itself over SSH at the address that the lab's inventory names. The
read limits of its drives are the truth that the check has to tell.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator
from os.path import normpath
from pathlib import Path
from typing import Any

import pytest

import playbooks
from lab_machines import FIFTH, FULL, Lab, Machine
from lab_workflow import Pipeline, good
from virtual_lab import replace_or_slow_drive
from wait_until_true import wait_until

pytestmark = pytest.mark.lab

HOST = "small"
SLOW, HEALTHY = "NV-0-0", "NV-1-0"
UNIT = f"chaosity-check-{HOST}"
UNIT_FILES = [f"/etc/systemd/system/{UNIT}.{kind}" for kind in ("service", "timer")]
TIMER_LINK = f"/etc/systemd/system/timers.target.wants/{UNIT}.timer"
METRICS = "/var/lib/prometheus/node-exporter"
TEXTFILE = f"{METRICS}/chaosity_{HOST}.prom"
ANOTHER_PORT = "/etc/ssh/sshd_config.d/another_port.conf"
FINE = f"{HOST}: fine: none of 2 values is worse than in the map."
# An emulated processor needs minutes for a check, nearly all of them to start Python.
SECONDS_OF_CHECK = 600
VARIABLES = {
    "monitor_machine": HOST,
    "monitor_calendar": "minutely",
    "monitor_random_delay": "0",
    "monitor_seconds": SECONDS_OF_CHECK,
    "monitor_textfile_directory": METRICS,
}


def environment_files(root: Path) -> Iterator[Path]:
    """Yield what a check needs of this environment: Python, and what a run needs of uv.lock."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "export", "--frozen", "--quiet", "--no-emit-project", "--no-hashes"]
    lock = subprocess.check_output(command, cwd=root, text=True)
    needed = {"chaosity", *re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)}
    for package in importlib.metadata.distributions():
        if re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower() in needed:
            yield from (Path(normpath(package.locate_file(f))) for f in package.files or ())
    yield Path(sys.prefix, "pyvenv.cfg")
    yield Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"test", "site-packages", "dist-packages"}
    yield from (path for path in library.iterdir() if path.name not in skipped)
    folder, name = sysconfig.get_config_vars("LIBDIR", "INSTSONAME")
    yield Path(folder, name)


def copy(machine: Machine, paths: Iterable[Path]) -> None:
    """Copy files and folders to the same paths of a machine."""
    # Not resolved: links are copied as links.
    existing = {Path(*path.parts[1:]) for path in paths if path.exists()}
    with tempfile.NamedTemporaryFile("w") as names:
        names.write("\0".join(map(str, sorted(existing))))
        names.flush()
        command = ["tar", "--create", "--directory=/", "--null", f"--files-from={names.name}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as archive:
            answer = machine.ssh("tar --extract --directory=/", stdin=archive.stdout)
    assert (archive.returncode, answer.returncode) == (0, 0), answer.stderr


class Monitor:
    """The role `monitor` with the small host's map, and the unit that it installs there.

    Args:
        lab: with the host.
        machine: the host, which runs systemd and the check of itself.
        map: the host's map here.
    """

    def __init__(self, lab: Lab, machine: Machine, map: Pipeline) -> None:
        self.lab, self.machine, self.map = lab, machine, map
        self.configuration = map.path(f"{HOST}/*/plan.json").parent

    def play(self, **extra: Any) -> playbooks.Outcome:
        """Play monitor.yml, which must succeed."""
        variables = {**VARIABLES, "monitor_results": str(self.configuration.parent.parent), **extra}
        return self.lab.playbook("--limit", HOST, playbook="playbooks/monitor.yml", **variables)

    def next_check(self) -> str:
        """Wait until a check that begins from now on has ended; return what the journal has of it.

        Not the unit's state, because the timer soon starts the next check, which overwrites it.
        """
        shown = self.machine.says("journalctl --lines=0 --show-cursor")
        cursor = shlex.quote(shown.partition("-- cursor: ")[2].strip())

        def ended() -> str:
            journal = self.machine.says(
                f"journalctl --unit={UNIT} --after-cursor={cursor} --output=cat"
            )
            own = journal.partition(f"Starting {UNIT}.service")[2]
            if not re.search(r"^(Finished|Failed to start) ", own, re.MULTILINE):
                time.sleep(3)
                return ""
            return own

        said = wait_until(ended, seconds=2 * SECONDS_OF_CHECK)
        print(said)
        return said

    def next_check_that_says(self, text: str, tries: int = 3) -> str:
        """Return what the journal has of the next check that says this.

        A busy computer may starve the emulated host, so that a drive does not reach its limit.
        """
        for _ in range(tries):
            if text in (said := self.next_check()):
                return said
        raise AssertionError(said)

    def status_for_node_exporter(self) -> int:
        """Return the status in the text file, whose time must be that of a check just ended."""
        gauges = dict(
            re.findall(
                r'^chaosity_check_(\w+)\{host="small"\} (\S+)$',
                self.machine.says("cat", TEXTFILE),
                re.MULTILINE,
            )
        )
        age = float(self.machine.says("date +%s")) - float(gauges["end_timestamp_seconds"])
        assert -1 <= age < 120, age
        return int(float(gauges["status"]))

    def left(self) -> list[str]:
        """Return what the machine has of the role: files, and units that systemd knows."""
        files = self.machine.ssh("ls -d", *UNIT_FILES, TIMER_LINK, TEXTFILE).stdout.split()
        units = self.machine.says("systemctl list-units --all --plain --no-legend", f"'{UNIT}.*'")
        return [*files, *units.splitlines()]


@pytest.fixture(scope="module")
def monitor(lab: Lab, provisioned: Machine, root: Path, tmp_path_factory: Any) -> Iterator[Monitor]:
    """The host measured, and with all that it needs to check itself; as it was afterwards."""
    pipeline = Pipeline(root, tmp_path_factory.mktemp("monitor"), HOST)
    pipeline.config |= {"experiments": ["storage_sample"], "sample": {}, "replicates": 3}
    pipeline.run_and_try_again()
    # The system drive has no limit that it reaches here, so its values scatter.
    for path in pipeline.folder.glob(f"results/{HOST}/*/points/*/*+unknowndrives.json"):
        path.unlink()
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split("\0")[:-1]
    keys = [provisioned.folder.parent / name for name in ("id_ed25519", "known_hosts")]
    copy(provisioned, [root / path for path in tracked])
    copy(provisioned, [*keys, pipeline.folder / "results"])
    copy(provisioned, environment_files(root))
    links = [shlex.quote(str(path)) for path in Path(sys.prefix).glob("bin/python*")]
    python = shlex.quote(str(Path(sys.executable).resolve()))
    provisioned.says(
        f"""set -e
        for link in {" ".join(links)}; do ln --force --symbolic {python} $link; done
        mkdir --parents {METRICS}
        printf 'Port 22\\nPort {provisioned.port}\\n' > {ANOTHER_PORT}
        systemctl reload ssh"""
    )
    found = Monitor(lab, provisioned, pipeline)
    yield found
    replace_or_slow_drive.limit_read_rate(provisioned.folder, SLOW, FULL)
    found.play(monitor_state="absent")
    folders = [root, pipeline.folder, METRICS]
    provisioned.says("rm --recursive", *map(shlex.quote, map(str, [*folders, ANOTHER_PORT])))
    provisioned.says("systemctl reload ssh")


def test_the_map_has_the_limits_of_the_drives(monitor: Monitor) -> None:
    storage = monitor.map.storage(HOST)
    assert all(map(good, monitor.map.all_records()))
    for serial in (SLOW, HEALTHY):  # a busy computer emulates drives that miss their limit
        assert 0.8 * FULL < storage[(serial,)] < 1.05 * FULL


def test_the_timer_starts_checks_that_find_the_host_fine(monitor: Monitor) -> None:
    assert monitor.left() == []
    assert monitor.play().count("changed") > 0
    assert monitor.machine.says("systemctl is-enabled", f"{UNIT}.timer") == "enabled\n"
    monitor.next_check_that_says(FINE)
    assert monitor.status_for_node_exporter() == 0


def test_a_slow_drive_is_named_and_fails_the_unit(monitor: Monitor) -> None:
    replace_or_slow_drive.limit_read_rate(monitor.machine.folder, SLOW, FIFTH)
    drive = monitor.map.component(HOST, SLOW)
    said = monitor.next_check_that_says(f"{HOST}: fault [node_problem] {drive}: ")
    [loss] = re.findall(rf"{drive}: (\d+) % worse than in the map, (?:9|1\d)\.\d+ MB/s", said)
    assert int(loss) == pytest.approx(80, abs=5)
    assert "Main process exited, code=exited, status=2" in said
    assert monitor.status_for_node_exporter() == 2


def test_after_the_repair_the_next_check_says_fine(monitor: Monitor) -> None:
    replace_or_slow_drive.limit_read_rate(monitor.machine.folder, SLOW, FULL)
    monitor.next_check_that_says(FINE)
    assert monitor.status_for_node_exporter() == 0


def test_a_second_play_changes_nothing(monitor: Monitor) -> None:
    assert monitor.play().count("changed") == 0


def test_absent_removes_all_but_the_results_of_checks(monitor: Monitor) -> None:
    assert len(monitor.left()) == 6  # four files, the service and the timer
    assert monitor.play(monitor_state="absent").count("changed") > 0
    assert monitor.left() == []
    table = monitor.machine.says("cat", str(monitor.configuration / "checks.csv"))
    assert len(table.splitlines()) >= 1 + 3 * 2  # three checks of two drives
    assert monitor.machine.says("ls", str(monitor.configuration / "checks")).count(".json.gz") >= 3
    assert monitor.play(monitor_state="absent").count("changed") == 0
