"""Builds the disk that all machines of the lab start from, and the kernel that boots it.

Debian's smallest system plus ``image/packages.txt`` and the files below ``image/overlay``, written
into a partition without mounting anything. Needs root, for debootstrap changes its root folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from virtual_lab.errors import LabError

SUITE = "trixie"
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The partition is found by this wherever the drive turns up; kernel names change from boot to boot.
DISK_LABEL = "c4a05174"
ROOT_PARTITION = f"PARTUUID={DISK_LABEL}-01"
# Sparse: what is never written takes no space.
DISK_BYTES = 4 * 2**30
PARTITION_START = 2**20

_RECIPE = Path(__file__).resolve().parent.parent / "image"
# Parts of a system that works unattended, which a machine of minutes does not need.
_MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "irqbalance.service",
    "nvmf-autoconnect.service",
    "proc-sys-fs-binfmt_misc.automount",
    "systemd-binfmt.service",
    "systemd-network-generator.service",
    "systemd-networkd-wait-online.service",
    # The console is a file: nobody logs in there.
    "serial-getty@ttyS0.service",
)
_ENABLED = ("systemd-networkd.service", "lab-identity.service", "ssh.service")
_BALLAST = ("usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man", "var/cache/apt")


def packages() -> list[str]:
    """The packages of the recipe."""
    lines = (_RECIPE / "packages.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def image_name() -> str:
    """Name of the image, which changes with the recipe but not with Debian's updates."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(path for path in _RECIPE.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(_RECIPE)}\0".encode() + path.read_bytes() + b"\0")
    return f"{SUITE}-amd64-{digest.hexdigest()[:12]}"


def build_image(cache: Path) -> Path:
    """Build the image unless the cache has it.

    Args:
        cache: folder for images.

    Returns:
        Folder with ``root.img`` and ``vmlinuz``. It appears under its name when it is whole.

    Raises:
        LabError: a step failed.
    """
    final = cache / image_name()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache):
        if not final.exists():
            # Nobody else is building, so these are left from builds that were interrupted.
            for leftover in cache.glob(".building-*"):
                shutil.rmtree(leftover)
            with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as building:
                _build(Path(building))
                (Path(building) / "whole").rename(final)
    return final


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(building: Path) -> None:
    tree, whole = building / "tree", building / "whole"
    whole.mkdir()
    _debootstrap(tree, building / "debootstrap.log")
    shutil.copytree(_RECIPE / "overlay", tree, dirs_exist_ok=True)
    _run(["chroot", tree, "systemctl", "--quiet", "enable", *_ENABLED])
    _run(["chroot", tree, "systemctl", "--quiet", "mask", *_MASKED])
    _trim(tree)
    [kernel] = (tree / "boot").glob("vmlinuz-*")
    shutil.copy2(kernel, whole / "vmlinuz")
    # The kernel is given to QEMU by itself, and has what it needs to find the root built in.
    for file in (tree / "boot").iterdir():
        file.unlink()
    _write_disk(tree, whole / "root.img")


def _debootstrap(tree: Path, log: Path) -> None:
    command = [
        # It mounts /proc and /sys; in a name space of its own none of that can outlive it.
        *("unshare", "--mount"),
        *("debootstrap", "--variant=minbase", "--force-check-gpg", f"--keyring={KEYRING}"),
        *(f"--include={','.join(packages())}", SUITE, str(tree), MIRROR),
    ]
    with log.open("w") as output:
        status = subprocess.run(
            command, stdout=output, stderr=output, env=_environment(), check=False
        ).returncode
    if status:
        # The folder goes; the words are what is left of it.
        last = "; ".join(log.read_text().splitlines()[-3:])
        raise LabError(f"debootstrap could not make the lab's image: {last}")


def _trim(tree: Path) -> None:
    """Take out what machines must not share and what only takes space."""
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    # Empty, and not absent: an absent one would make systemd ask questions at the first boot.
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/hostname").unlink(missing_ok=True)
    (tree / "etc/fstab").write_text(f"{ROOT_PARTITION} / ext4 defaults 0 1\n")
    for folder in _BALLAST:
        shutil.rmtree(tree / folder, ignore_errors=True)
        (tree / folder).mkdir(parents=True)
    for listing in (tree / "var/lib/apt/lists").glob("*_*"):
        listing.unlink()


def _write_disk(tree: Path, disk: Path) -> None:
    """Put a folder into the one partition of a new disk, without mounting it."""
    with disk.open("wb") as file:
        os.truncate(file.fileno(), DISK_BYTES)
    table = f"label: dos\nlabel-id: 0x{DISK_LABEL}\nstart={PARTITION_START // 512}, type=83\n"
    _run(["sfdisk", "--quiet", disk], table)
    size = f"{(DISK_BYTES - PARTITION_START) // 1024}k"
    offset = f"offset={PARTITION_START}"
    _run(["mkfs.ext4", "-q", "-F", "-L", "lab", "-E", offset, "-d", tree, disk, size])


def _environment() -> dict[str, str]:
    # Some of these programs stand where only root looks.
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}


def _run(command: list[str | Path], given: str = "") -> None:
    answer = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, env=_environment()
    )
    if answer.returncode:
        said = " ".join((answer.stderr or answer.stdout).split())
        raise LabError(f"{command[0]} failed while making the lab's image: {said}")
