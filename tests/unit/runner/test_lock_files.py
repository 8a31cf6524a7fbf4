"""Lock files that other users may have replaced, and locks in a private /tmp."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaosity.errors import MeasurementError, UserError
from chaosity.runner import point_measurement
from chaosity.runner.lock_files import MEASURING, lock_file_path, open_lock_file
from playbooks import NOBODY

HOLDER = """
import fcntl, pathlib, sys, time
from chaosity.runner.lock_files import MEASURING, lock_file_path, open_lock_file, try_to_lock
print(try_to_lock(open_lock_file(lock_file_path(MEASURING, pathlib.Path(sys.argv[1])))), flush=True)
time.sleep(float(sys.argv[2]))
"""


def make_directory(path: Path) -> None:
    """Make a directory in the place of a lock."""
    path.mkdir()


def make_link(path: Path) -> None:
    """Make a symbolic link to another file."""
    (path.parent / "other").write_text("kept")
    path.symlink_to(path.parent / "other")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "the lock must be a regular file"),
        (make_directory, "the lock must be a regular file"),
        (make_link, "the lock cannot be opened: Too many levels of symbolic links"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], what: str
):
    path = tmp_path / "chaosity-measuring.lock"
    make(path)
    began = time.monotonic()
    with pytest.raises(UserError, match=what) as refused:
        open_lock_file(path)
    assert time.monotonic() - began < 5  # a FIFO without a writer would never open
    assert "delete it, or run provision.yml as root" in str(refused.value)


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_a_lock_is_readable_for_everyone_whatever_the_umask_is(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        os.close(open_lock_file(tmp_path / "lock"))
    finally:
        os.umask(before)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes a file that another user may not read")
def test_who_may_not_lock_is_reported_what_root_sets():
    drop = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\nprint("
    with tempfile.TemporaryDirectory() as folder:  # in pytest's folders, root is alone
        Path(folder).chmod(0o755)
        made = Path(folder) / "run/chaosity/measuring.lock"
        made.parent.mkdir(parents=True)
        made.touch(mode=0o640)
        _, errors = hold(Path(folder), 0, HOLDER.replace("print(", drop)).communicate(timeout=60)
    assert "this user may not open the lock" in errors
    assert "ask to join the group that runner_lock_group of the inventory names" in errors


def hold(root: Path, seconds: float, code: str = HOLDER) -> subprocess.Popen[str]:
    """Start a process that takes the measuring lock below a folder and keeps it."""
    command = [sys.executable, "-c", code, str(root), str(seconds)]
    return subprocess.Popen(command, text=True, stdout=-1, stderr=-1)


def test_the_holder_of_a_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "tmp").mkdir()
    holder = hold(tmp_path, 60)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    monkeypatch.setattr(point_measurement, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(
        point_measurement.lock_files, "lock_file_path", lambda name: lock_file_path(name, tmp_path)
    )
    try:
        with pytest.raises(MeasurementError) as failed, point_measurement.hold_host_lock():
            pass
    finally:
        holder.kill()
        holder.wait()
    program, user = Path(sys.executable).name, Path("/proc/self").owner()
    path = tmp_path / "tmp/chaosity-measuring.lock"
    assert str(failed.value) == (
        f"process {holder.pid} ({program}) of user {user} held {path} for 0.1 s"
    )


def test_a_lock_of_provisioning_is_preferred(tmp_path: Path):
    assert lock_file_path(MEASURING, tmp_path) == tmp_path / "tmp/chaosity-measuring.lock"
    made = tmp_path / "run/chaosity/measuring.lock"
    made.parent.mkdir(parents=True)
    made.touch()
    assert lock_file_path(MEASURING, tmp_path) == made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a private /tmp")
def test_runners_with_a_private_tmp_exclude_each_other_by_the_lock_of_provisioning(tmp_path: Path):
    made = tmp_path / "run/chaosity/measuring.lock"
    made.parent.mkdir(parents=True)
    made.touch()
    private = f"mount -t tmpfs none {tmp_path}/tmp"
    (tmp_path / "tmp").mkdir()
    answers = []
    holder = hold(tmp_path, 60)
    assert holder.stdout is not None
    answers.append(holder.stdout.readline())
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "0"]
    inside = ["unshare", "--mount", "sh", "-c", f'{private} && exec "$@"', "sh", *command]
    answers.append(subprocess.run(inside, text=True, capture_output=True, check=True).stdout)
    holder.kill()
    holder.wait()
    answers.append(subprocess.run(inside, text=True, capture_output=True, check=True).stdout)
    assert answers == ["True\n", "False\n", "True\n"]
