"""Kernel settings are put back, whoever is killed: real processes, files of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_files import WEIGHTS, Kernel

from chaosity.errors import UserError
from chaosity.runner import linux_settings
from wait_until_true import wait_until

SLEEP = ("--", "sleep", "60")


def changed(kernel: Kernel) -> subprocess.Popen[str]:
    """A run that has changed the setting."""
    run = kernel.start(*SLEEP)
    wait_until(lambda: kernel.balancing == "0")
    wait_until(lambda: sleeping(run.pid))
    return run


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def sleeping(pid: int) -> int | None:
    return next((one for one in children(pid) if name(one) == "sleep"), None)


def guardian(pid: int) -> int:
    return wait_until(lambda: next((one for one in children(pid) if os.getsid(one) == one), None))


def test_settings_are_restored_after_a_crash_and_set_before(kernel):
    setting = kernel.root / linux_settings.NUMA_BALANCING
    done = kernel.run("--", "sh", "-c", f"cat {setting}; kill -SEGV $$")
    assert (done.returncode, done.stdout.strip()) == (128 + signal.SIGSEGV, "0")
    assert (kernel.balancing, kernel.left) == ("1", False)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGHUP"])
def test_settings_are_restored_and_the_program_ends_after_any_signal(kernel, how):
    run = changed(kernel)
    program = sleeping(run.pid)
    assert kernel.left
    run.send_signal(getattr(signal, how))
    run.wait(10)
    wait_until(lambda: not kernel.left)
    assert kernel.balancing == "1"
    wait_until(lambda: name(program) != "sleep")


def test_after_a_killed_guardian_the_run_restores_the_settings(kernel):
    run = changed(kernel)
    os.kill(guardian(run.pid), signal.SIGKILL)
    run.terminate()
    run.wait(10)
    assert (kernel.balancing, kernel.left) == ("1", False)


def both_killed(kernel: Kernel) -> None:
    run = changed(kernel)
    watching = guardian(run.pid)
    os.kill(watching, signal.SIGKILL)
    run.kill()
    run.wait(10)
    wait_until(lambda: not name(watching))  # with it goes its hold on the lock
    assert (kernel.balancing, kernel.left) == ("0", True)


def test_the_next_run_restores_settings_after_both_were_killed(kernel, tmp_path):
    both_killed(kernel)
    copies = [Path(shutil.copytree(kernel.root, tmp_path / name)) for name in ("one", "other")]
    done = kernel.run("--", "true", policy="autonuma")  # which wants what was there before
    assert done.returncode == 0, done.stderr
    assert (kernel.balancing, kernel.left) == ("1", False)
    for copy, boot, balancing in zip(copies, ("this boot", "another boot"), "10", strict=True):
        kernel.root = copy
        kernel.set(linux_settings.BOOT_ID, boot)
        linux_settings.restore_leftover_kernel_settings(copy)  # as the runner does
        assert (kernel.balancing, kernel.left) == (balancing, False)


def test_a_second_run_is_refused_and_settings_of_a_running_program_are_not_leftovers(kernel):
    run = changed(kernel)
    linux_settings.restore_leftover_kernel_settings(kernel.root)
    assert (kernel.balancing, kernel.left) == ("0", True)
    done = kernel.run("--", "true", policy="autonuma")
    assert done.returncode == 2
    assert "holds numa_balancing, which apply to the whole machine" in done.stderr
    assert f"process {run.pid} (" in done.stderr
    assert done.stderr.count("\n") == 1
    run.terminate()
    run.wait(10)
    assert kernel.balancing == "1"


def test_two_runs_without_changes_run_at_the_same_time(kernel):
    kernel.set(linux_settings.NUMA_BALANCING, "0")
    run = kernel.start(*SLEEP)
    wait_until(lambda: sleeping(run.pid))
    done = kernel.run("--", "sh", "-c", "exit 6")
    assert done.returncode == 6, done.stderr
    assert kernel.run("--", "true", policy="autonuma").returncode == 2
    run.terminate()
    run.wait(10)


def test_weights_are_set_and_the_automatic_mode_is_restored_last(kernel):
    wanted = {f"{WEIGHTS}0": "3"}
    with linux_settings.hold_kernel_settings(wanted, kernel.root) as held:
        assert kernel.get(f"{WEIGHTS}0") == "3"
        kernel.set(f"{linux_settings.WEIGHTS}/auto", "false")  # as the kernel does by itself
        held.change_kernel_settings({f"{WEIGHTS}0": "5"})
        assert held.former_and_present_values()[f"{WEIGHTS}0"] == {"was": "7", "is": "5"}
        document = json.loads((kernel.root / linux_settings.FORMER_VALUES).read_text())
        assert list(document["former"]) == [f"{WEIGHTS}0", f"{linux_settings.WEIGHTS}/auto"]
    assert (kernel.get(f"{WEIGHTS}0"), kernel.get(f"{linux_settings.WEIGHTS}/auto")) == (
        "7",
        "true",
    )


def test_after_a_killed_run_the_automatic_mode_is_restored_after_the_weights(kernel, monkeypatch):
    """The kernel ends the automatic mode at each written weight."""
    former = {f"{linux_settings.WEIGHTS}/auto": "yes", f"{WEIGHTS}0": "5"}
    document = {"boot_id": kernel.get(linux_settings.BOOT_ID), "former": former}
    kernel.set(linux_settings.FORMER_VALUES, json.dumps(document))
    written, opened = [], os.open

    def note(path, flags, *mode):
        written.extend([Path(path).name] if flags & os.O_WRONLY else [])
        return opened(path, flags, *mode)

    monkeypatch.setattr(linux_settings.os, "open", note)
    linux_settings.restore_leftover_kernel_settings(kernel.root)
    assert written == ["node0", "auto"]


def test_weights_varied_by_a_search_are_guarded_from_the_start(kernel):
    wanted = {f"{WEIGHTS}0": "7"}
    with linux_settings.hold_kernel_settings(wanted, kernel.root, [*wanted]) as held:
        held.change_kernel_settings({f"{WEIGHTS}0": "9"})
        assert kernel.left
    assert kernel.get(f"{WEIGHTS}0") == "7"


def test_a_kernel_without_the_setting_is_named(kernel):
    with (
        pytest.raises(UserError, match="this kernel lacks the setting"),
        linux_settings.hold_kernel_settings({f"{WEIGHTS}9": "3"}, kernel.root),
    ):
        pytest.fail("it held")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_root_the_setting_is_named_before_anything_runs(kernel, tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.name.startswith(("pytest-", "popen-")):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    (kernel.root / "tmp").chmod(0o1777)
    script = (
        "import os, sys\n"
        "from chaosity.place.__main__ import main\n"
        "os.setuid(65534)\n"
        "main(sys.argv[1:])\n"
    )
    arguments = kernel.arguments("--", "echo", "it ran")
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "numa_balancing: the setting is 1 and must be 0, but this user may not" in done.stderr
    assert kernel.balancing == "1"
