"""Open the source of a topology: a live machine, an hwloc XML file, or a captured /sys.

A captured /sys is a directory, or a tarball that hwloc-gather-topology made.
"""

from __future__ import annotations

import bz2
import fcntl
import gzip
import io
import json
import lzma
import os
import platform
import shutil
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from lxml import etree

from chaosity.errors import UserError, malformed_as_user_error
from chaosity.runner import describe_host
from chaosity.runner.memory_module_table import MemoryModule, read_memory_modules
from chaosity.topology import run_lstopo
from chaosity.topology.sysfs_reader import NO_KERNEL_FILES, SysfsReader

LIVE = "live"

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BROKEN = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
# A large host's capture has about 25,000 files, which use a page of memory each. /dev/shm of a
# container has only 64 MiB.
_ENOUGH_FREE_BYTES = 2**30
# Such a capture has 40 MB in its tarball. A tarball beyond these limits is no capture of a machine.
_MOST_TAR_BYTES = 2**28
_MOST_TAR_MEMBERS = 250_000
_COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
# Name of the folder of an unpacked tarball, and the age from which nobody is about to lock it.
_FOLDER_PREFIX, _NEW_SECONDS = "chaosity-description-", 60.0
_REMEDY = "capture /sys with `hwloc-gather-topology NAME`"


@dataclass(frozen=True)
class TopologySource:
    """An opened source of a topology: hwloc's XML, and the kernel's files if there are any."""

    name: str  # name of the file or directory, or "live"
    kind: str  # live, xml or sysfs
    xml: etree._Element  # hwloc's XML, format 2
    # Reader of the source's /sys and /proc; without any file for an XML.
    sysfs: SysfsReader = NO_KERNEL_FILES
    architecture: str | None = None  # architecture of a live machine, such as x86_64
    memory_modules: str | None = None  # output of dmidecode on a live machine
    # OpenCL devices of a live machine; None if nobody listed them.
    opencl: list[describe_host.ListedOpenclDevice] | None = None
    # Memory modules in the SMBIOS table of a live machine, or why they are unknown.
    module_table: list[MemoryModule] | str = "the source has no speed of memory modules"


@contextmanager
def open_topology_source(name: str) -> Iterator[TopologySource]:
    """Open `live`, an hwloc XML file, or a directory or tarball with a captured /sys.

    A tarball can also be the description that the runner made of a live host
    (runner/describe_host.py). A tarball is unpacked into a directory that is deleted after use.

    Raises:
        UserError: the source cannot be read, or hwloc is missing or too old for it.
    """
    path = Path(name)
    if name == LIVE:
        xml, machine = run_lstopo.run_lstopo("this machine"), platform.machine()
        modules, opencl = describe_host.read_dmidecode_output(), describe_host.list_opencl_devices()
        devices, sysfs = opencl["devices"] if opencl else None, SysfsReader(Path("/"))
        table = read_memory_modules()
        yield TopologySource(name, LIVE, xml, sysfs, machine, modules, devices, table)
    elif path.is_dir():
        yield _open_capture(name, _find_capture_root(path.resolve(), path))
    elif path.exists() and _is_tarball(path):
        with unpacked_tarball(path) as top:
            facts = top / describe_host.FACTS_MEMBER
            yield _open_description(name, top) if facts.exists() else _open_capture(name, top)
    else:
        yield TopologySource(name, "xml", run_lstopo.read_hwloc_xml_as_format_2(path))


def _open_capture(name: str, root: Path) -> TopologySource:
    xml = run_lstopo.run_lstopo(name, capture=root)
    return TopologySource(name, "sysfs", xml, SysfsReader(root))


def _open_description(name: str, root: Path) -> TopologySource:
    facts = json.loads((root / describe_host.FACTS_MEMBER).read_text(encoding="utf-8"))
    json.dumps(facts, ensure_ascii=False).encode()  # half a character would fit into no file
    xml = run_lstopo.read_xml_root_element(root / describe_host.TOPOLOGY_MEMBER)
    printed = (
        facts["memory_modules"],
        facts.get("opencl_devices"),
        facts.get("module_table", "an older runner described the host"),
    )
    return TopologySource(name, LIVE, xml, SysfsReader(root), facts["architecture"], *printed)


def described_facts(path: Path) -> dict[str, Any]:
    """Return the facts in a host's description that are in neither hwloc's XML nor /sys.

    Raises:
        UserError: the file is no description.
    """
    what = "the description of the host is broken"
    with malformed_as_user_error(what, str(path)), open_tarball(path) as archive:
        member = archive.extractfile(describe_host.FACTS_MEMBER)
        return dict(json.load(member)) if member else {}


@contextmanager
def open_tarball(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a tarball of another machine, whose size is bounded before anything is unpacked.

    It is decompressed as a whole, because tarfile itself reads headers of any length.

    Raises:
        UserError: the tarball is broken, cannot be read, or is too large.
    """
    too_large = UserError(
        f"the tarball has more than {_MOST_TAR_BYTES // 2**20} MiB or {_MOST_TAR_MEMBERS} files",
        str(path),
        _REMEDY,
    )
    try:
        with path.open("rb") as file:
            start = file.read(6)
            opener = next((_COMPRESSED[m] for m in _COMPRESSED if start.startswith(m)), None)
        with opener(path) if opener else path.open("rb") as stream:
            content = stream.read(_MOST_TAR_BYTES + 1)
        if len(content) > _MOST_TAR_BYTES:
            raise too_large
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            # A sparse member has a size of its own, whatever the size of the file.
            sizes = [member.size for member in archive]
            if len(sizes) > _MOST_TAR_MEMBERS or sum(sizes) > _MOST_TAR_BYTES:
                raise too_large
            yield archive
    except (OSError, *_BROKEN) as error:
        if isinstance(error, OSError) and error.errno is not None:  # None: broken data in bz2
            raise UserError(f"the tarball is unreadable: {error.strerror}", str(path)) from None
        raise UserError(f"the tarball is broken: {error}", str(path), _REMEDY) from None


def _is_tarball(path: Path) -> bool:
    """Return whether a file is a tarball by its name or content; a broken one counts too."""
    if path.name.lower().endswith(_TAR_SUFFIXES):
        return True
    try:
        return path.is_file() and tarfile.is_tarfile(path)
    except (OSError, *_BROKEN):
        return False


@contextmanager
def unpacked_tarball(path: Path) -> Iterator[Path]:
    """Unpack a tarball into a temporary directory, which is deleted after the context.

    Yields:
        The directory that has `sys`.

    Raises:
        UserError: the tarball is broken, cannot be unpacked, or has no captured /sys.
    """
    parent = _fast_directory() or Path(tempfile.gettempdir())
    _remove_folders_of_killed_processes(parent)
    with (
        tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX, dir=parent) as folder,
        _locked_folder(Path(folder)),
    ):
        with open_tarball(path) as archive:
            _unpack(archive, Path(folder).resolve())
        yield _find_capture_root(Path(folder), path)


@contextmanager
def _locked_folder(folder: Path) -> Iterator[bool]:
    """Lock a folder while a block runs; yield whether no other process has locked it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
        except BlockingIOError:
            locked = False
        yield locked
    finally:
        os.close(handle)


def _remove_folders_of_killed_processes(parent: Path) -> None:
    """Remove the folders of this user that nobody uses: killed processes leave them behind."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError):  # another process has just removed it, or made something else
            status = folder.lstat()
            # A folder that was just made may not be locked yet.
            if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _NEW_SECONDS:
                with _locked_folder(folder) as unused:
                    if unused:
                        shutil.rmtree(folder)


def _fast_directory() -> Path | None:
    """Return a folder in memory, which is fast for many small files; None if TMPDIR is set."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK):
        return None
    return memory if shutil.disk_usage(memory).free > _ENOUGH_FREE_BYTES else None


def _unpack(archive: tarfile.TarFile, top: Path) -> None:
    """Write a tarball's directories, files and symbolic links below `top`, and nothing else.

    tarfile's own filter `data` does the same, but Python 3.11.2 of Debian 12 lacks it. Links are
    written last, so that no file can be written through a link. Links to places outside the capture
    are left out, because they would show files of this machine.
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
    """Return the path with links resolved; unlike Path.resolve, accept links in a circle."""
    return Path(os.path.realpath(path))


def _find_capture_root(folder: Path, source: Path) -> Path:
    """Return the directory that has `sys`: the folder itself, a child of it, or its parent."""
    children = [item for item in sorted(folder.iterdir()) if item.is_dir()]
    for root in (folder, *children):
        if (root / "sys/devices/system").is_dir():
            return root
    if folder.name == "sys" and (folder / "devices/system").is_dir():
        return folder.parent
    raise UserError("sys/devices/system of a captured /sys is missing", str(source), _REMEDY)
