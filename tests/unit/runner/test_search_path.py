"""Folders in which the runner searches for programs, and which root does not use."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from chaosity.errors import UserError
from chaosity.runner.__main__ import folder_that_others_may_write, put_tools_folder_first_in_path


def test_a_relative_tools_folder_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.chdir(tmp_path)
    put_tools_folder_first_in_path(Path("kernels"))
    assert os.environ["PATH"] == f"{tmp_path}/kernels:/usr/bin"


def test_hosts_that_share_a_folder_run_their_own_builds(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    for build in ("built-here", "built-elsewhere"):
        (tmp_path / build).mkdir()
        (tmp_path / build / "chaosity-latency").touch(mode=0o755)
    (tmp_path / "chaosity-latency").symlink_to("built-elsewhere/chaosity-latency")
    (tmp_path / f"on-{os.uname().nodename}").symlink_to("built-here")
    put_tools_folder_first_in_path(tmp_path)
    found = shutil.which("chaosity-latency")
    assert found is not None
    assert Path(found).resolve() == tmp_path / "built-here/chaosity-latency"


@pytest.fixture
def safe() -> Path:
    """A folder in which only root may write."""
    return Path("/usr/bin")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
@pytest.mark.parametrize("change", ["owner", "group", "everyone", "folder above"])
def test_root_by_sudo_uses_no_folder_that_others_may_write(tmp_path, monkeypatch, safe, change):
    tmp_path.chmod(0o755)
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o755)
    assert folder_that_others_may_write(folder) is None  # below /tmp, where the sticky bit protects
    monkeypatch.setenv("PATH", f"{folder}:{safe}")
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setattr(sys, "argv", ["chaosity-run"])
    put_tools_folder_first_in_path(None)
    assert os.environ["PATH"] == f"{folder}:{safe}"
    changed = tmp_path if change == "folder above" else folder
    if change == "owner":
        os.chown(folder, 1000, 1000)
    else:
        changed.chmod(0o775 if change == "group" else 0o777)
    put_tools_folder_first_in_path(None)
    assert os.environ["PATH"] == str(safe)
    with pytest.raises(UserError, match="users other than root may change the programs"):
        put_tools_folder_first_in_path(folder)
    monkeypatch.delenv("SUDO_UID")  # a root who logs in decides alone
    put_tools_folder_first_in_path(folder)
    assert os.environ["PATH"] == f"{folder}:{safe}"
