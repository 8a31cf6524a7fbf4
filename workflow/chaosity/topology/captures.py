"""A captured /sys: a directory, or a tarball as hwloc-gather-topology and others make it."""

from __future__ import annotations

import lzma
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chaosity.errors import UserError

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_REMEDY = "capture one with `hwloc-gather-topology NAME`"


def is_tarball(path: Path) -> bool:
    """Whether to read `path` as a tarball: by its name, so that a broken one is called broken."""
    return path.name.lower().endswith(_TAR_SUFFIXES) or (path.is_file() and _opens(path))


def _opens(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The unpacked tarball's top, in a temporary directory that goes with the context."""
    with tempfile.TemporaryDirectory(prefix="chaosity-") as folder:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(folder, filter=_harmless)
        except FileNotFoundError:
            raise UserError("does not exist", str(path), _REMEDY) from None
        except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise UserError(f"is a broken tarball: {error}", str(path), _REMEDY) from None
        yield capture_root(Path(folder), path)


def _harmless(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Leaves out what the data filter refuses (devices, links that lead outside).

    A captured /sys is full of symbolic links, and one that leads out of it says nothing anyway.
    """
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


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
