"""Host state for real: this machine's kernel is set, read back and put back."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import playbooks
from inventories import THIS_MACHINE, write_inventory
from playbooks import WITHOUT_ROOT, Outcome

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root sets a kernel's knobs"),
]

DEFRAG = Path("/sys/kernel/mm/transparent_hugepage/defrag")
BALANCING = Path("/proc/sys/kernel/numa_balancing")
PAGES = Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages")
KNOBS = (DEFRAG, BALANCING, PAGES)
CLOCKS = Path("/sys/devices/system/cpu/cpufreq")
# Starts the module as Ansible does on a host, where it dies when the host's connection does.
START = """
import runpy, sys
import ansible.module_utils
ansible.module_utils.__path__.append(sys.argv.pop(1))
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""

configure = functools.partial(playbooks.play, playbook="playbooks/configure.yml")


def restore(root: Path, extra: dict[str, Any]) -> Outcome:
    """Restore what was saved, as a user types it."""
    return configure(root, "-e", "host_state_restore=true", extra=extra)


def reading() -> list[str]:
    return [knob.read_text() for knob in KNOBS]


@pytest.fixture(scope="module")
def wanted() -> dict[str, Any]:
    """Other values than this machine has, and few pages, so that nobody else goes short."""
    missing = [str(knob) for knob in KNOBS if not knob.exists()]
    if missing:
        pytest.skip(f"this kernel has no {', '.join(missing)}")
    return {
        "host_state_transparent_huge_pages_defrag": (
            "defer" if "[defer]" not in DEFRAG.read_text() else "never"
        ),
        "host_state_numa_balancing": 0 if int(BALANCING.read_text()) else 1,
        "host_state_huge_pages": {"0": {"2M": int(PAGES.read_text()) + 4}},
    }


@pytest.fixture
def extra(root: Path, wanted: dict[str, Any], tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The same, saved in a folder of the test's own, and given back whatever the test does."""
    before = reading()
    file = tmp_path / "saved" / "host_state.json"
    yield {**wanted, "host_state_file": str(file)}
    if file.exists():
        restore(root, extra={"host_state_file": str(file)})
    assert reading() == before


def test_what_is_set_is_read_back_and_given_back(root: Path, extra: dict[str, Any]) -> None:
    before, file = reading(), Path(extra["host_state_file"])

    first = configure(root, extra=extra)
    assert (first.status, first.count("changed")) == (0, 1), first.said
    defrag, balancing, pages = reading()
    assert f"[{extra['host_state_transparent_huge_pages_defrag']}]" in defrag
    assert int(balancing) == extra["host_state_numa_balancing"]
    assert int(pages) == extra["host_state_huge_pages"]["0"]["2M"]

    back = restore(root, extra={"host_state_file": str(file)})
    assert (back.status, back.count("changed")) == (0, 1), back.said
    assert reading() == before
    assert not file.parent.exists()


@pytest.mark.thorough
def test_killed_in_the_middle_it_can_be_given_back(root: Path, extra: dict[str, Any]) -> None:
    before, file = reading(), Path(extra["host_state_file"])
    role = root / "roles/host_state"
    asked = {
        "settings": {
            name.removeprefix("host_state_"): value
            for name, value in extra.items()
            if name != "host_state_file"
        },
        "state_file": str(file),
        "host": "localhost",
    }
    module = subprocess.Popen(
        [sys.executable, "-c", START, role / "module_utils", role / "library/host_state.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    module.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": asked}).encode())
    module.stdin.close()
    limit = time.monotonic() + 20
    while not file.exists() and module.poll() is None and time.monotonic() < limit:
        pass
    time.sleep(0.005)
    module.send_signal(signal.SIGKILL)
    said = module.stdout.read()
    module.stdout.close()
    module.wait()
    # What was there before is on the disk, whole, whatever was written since.
    saved = json.loads(file.read_text())["values"] if file.exists() else said
    assert len(saved) == len(KNOBS), said
    back = restore(root, extra={"host_state_file": str(file)})
    assert back.status == 0, back.said
    assert reading() == before


# Host by host: what its inventory says, and the sentence that has to come.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "lacking": ({"host_state_governor": "no-such-governor"}, "lacking: host_state_governor: "),
    "variable": ({"host_state_governer": "x"}, "an unknown variable: host_state_governer"),
    "type": ({"host_state_turbo": "perhaps"}, "argument 'host_state_turbo' is of type str"),
    "relative": ({"host_state_file": "here"}, "relative: host_state_file is here; give a full"),
    "memory": ({"host_state_huge_pages": {"0": {"1G": 99999}}}, "of huge pages are requested"),
}


@pytest.mark.thorough
def test_bad_input_is_refused_by_name_and_other_hosts_go_on(
    root: Path, extra: dict[str, Any], tmp_path: Path
) -> None:
    before = reading()
    hosts = {
        name: {**THIS_MACHINE, "host_state_file": str(tmp_path / name), **given}
        for name, (given, _) in REFUSED.items()
    }
    inventory = write_inventory(tmp_path / "hosts.yml", hosts)
    refused = configure(root, "-i", inventory)
    refused.check_refused({name: [sentence] for name, (_, sentence) in REFUSED.items()})
    assert reading() == before
    write_inventory(inventory, {"lacking": hosts["lacking"], "good": {**THIS_MACHINE, **extra}})
    outcome = configure(root, "-i", inventory)
    assert (outcome.count("failed"), outcome.count("changed")) == (1, 1), outcome.said
    assert int(BALANCING.read_text()) == extra["host_state_numa_balancing"]


@pytest.mark.thorough
def test_idle_states_are_switched_off_and_given_back(root: Path, tmp_path: Path) -> None:
    states = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpuidle/state[0-9]*"))
    deeper = [state / "disable" for state in states if int((state / "latency").read_text())]
    if not deeper:
        pytest.skip("no CPU of this machine has an idle state with an exit latency")
    before = [file.read_text() for file in deeper]
    where = {"host_state_file": str(tmp_path / "saved" / "host_state.json")}
    try:
        outcome = configure(root, extra={**where, "host_state_idle_latency_us": 0})
        assert outcome.status == 0, outcome.said
        assert {int(file.read_text()) for file in deeper} == {1}
    finally:
        restore(root, extra=where)
    assert [file.read_text() for file in deeper] == before


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, Any]:
    """Clocks of a machine that has them, as files, for roles on one that has none."""
    folder = tmp_path / "host"
    for name, text in {
        f"{CLOCKS}/boost": "1",
        f"{CLOCKS}/policy0/affected_cpus": "0 1",
        f"{CLOCKS}/policy0/scaling_available_governors": "performance schedutil",
        f"{CLOCKS}/policy0/scaling_governor": "schedutil",
        "/proc/sys/kernel/random/boot_id": "this",
    }.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "tmp").mkdir()
    return {
        "__host_state_root": str(folder),
        "host_state_file": str(folder / "saved.json"),
        "host_state_governor": "performance",
        # As it comes from a command line.
        "host_state_turbo": "false",
    }


def clocks(elsewhere: dict[str, Any]) -> tuple[str, str]:
    folder = Path(elsewhere["__host_state_root"]) / str(CLOCKS).lstrip("/")
    return (folder / "policy0/scaling_governor").read_text(), (folder / "boost").read_text()


def without_root(root: Path, *arguments: str, extra: dict[str, Any]) -> Outcome:
    """Run configure.yml as a user without rights."""
    if subprocess.run([*WITHOUT_ROOT, "true"], check=False).returncode:
        pytest.skip("this sandbox does not let root become somebody else")
    home = f"/tmp/.ansible-of-{os.getpid()}"
    # Nobody has no home, where Ansible would keep what it works with.
    places = dict.fromkeys(("ANSIBLE_HOME", "ANSIBLE_REMOTE_TEMP", "ANSIBLE_LOCAL_TEMP"), home)
    try:
        return configure(
            root, *arguments, extra=extra, before=WITHOUT_ROOT, environment={**places, "HOME": home}
        )
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.thorough
def test_without_root_a_trial_answers(root: Path, elsewhere: dict[str, Any]) -> None:
    trial = without_root(root, "--check", extra=elsewhere)
    assert (trial.status, trial.count("changed")) == (0, 1), trial.said
    assert clocks(elsewhere) == ("schedutil", "1")


@pytest.mark.thorough
def test_without_root_it_says_how_to_get_it(root: Path, elsewhere: dict[str, Any]) -> None:
    sudo = shutil.which("sudo")
    if sudo and not subprocess.run([*WITHOUT_ROOT, sudo, "-n", "true"], check=False).returncode:
        pytest.skip("sudo lets anybody in here")
    outcome = without_root(root, extra=elsewhere)
    assert outcome.status != 0
    assert outcome.says("Settings of localhost need root, and nothing was changed"), outcome.said
    assert clocks(elsewhere) == ("schedutil", "1")
