"""A captured /sys: a directory, or a tarball as hwloc-gather-topology and others make it."""

from __future__ import annotations

import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from chaosity.errors import UserError

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
# A large host's capture is some 25,000 files, of a page each in memory; containers have 64 MiB.
_PLENTY_BYTES = 2**30
_REMEDY = "capture one with `hwloc-gather-topology NAME`"


def is_tarball(path: Path) -> bool:
    """Whether to read `path` as a tarball: by its name, so that a broken one is called broken."""
    return path.name.lower().endswith(_TAR_SUFFIXES) or (path.is_file() and _opens(path))


def _opens(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, *_BROKEN):
        return False


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The unpacked tarball's top, in a temporary directory that goes with the context.

    Raises:
        UserError: when the tarball is broken, cannot be unpacked, or holds no captured /sys.
    """
    with tempfile.TemporaryDirectory(prefix="chaosity-", dir=_quick_folder()) as folder:
        try:
            with tarfile.open(path) as archive:
                _unpack(archive, Path(folder).resolve())
        except _BROKEN as error:
            raise UserError(f"is a broken tarball: {error}", str(path), _REMEDY) from None
        except OSError as error:
            if error.errno is None:  # how bz2 reports broken data
                raise UserError(f"is a broken tarball: {error}", str(path), _REMEDY) from None
            raise UserError(f"cannot be unpacked: {error.strerror}", str(path)) from None
        yield capture_root(Path(folder), path)


def _quick_folder() -> Path | None:
    """Where thousands of tiny files are made fastest: in memory, unless the user says where."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return None
    return memory if shutil.disk_usage(memory).free > _PLENTY_BYTES else None


def _unpack(archive: tarfile.TarFile, top: Path) -> None:
    """Writes a tarball's directories, files and symbolic links below `top`, and nothing else.

    tarfile's own `data` filter would do, but Python 3.11.2 of Debian 12 does not have it yet.
    Links come last, so that no file can be written through one, and those that lead out of the
    capture are left out: they would show files of this machine.
    """
    links: list[tuple[Path, str]] = []
    for member in archive:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            continue
        path = top / name
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            links.append((path, member.linkname))
        elif member.isfile() and (content := archive.extractfile(member)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
    for path, target in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _real(path.parent) == path.parent and not os.path.lexists(path):
            path.symlink_to(target)
    for path, _ in links:
        if path.is_symlink() and not _real(path).is_relative_to(top):
            path.unlink()


def _real(path: Path) -> Path:
    """Where a path leads; unlike Path.resolve it answers for links that lead in a circle too."""
    return Path(os.path.realpath(path))


def capture_root(folder: Path, source: Path) -> Path:
    """The directory that holds `sys`: the folder itself, its one child, or its parent.

    Raises:
        UserError: when nowhere there is a sys/devices/system.
    """
    children = [item for item in sorted(folder.iterdir()) if item.is_dir()]
    for root in (folder, *children):
        if (root / "sys/devices/system").is_dir():
            return root
    if folder.name == "sys" and (folder / "devices/system").is_dir():
        return folder.parent
    raise UserError("has no sys/devices/system, so it is no captured /sys", str(source), _REMEDY)
