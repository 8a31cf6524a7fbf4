"""Errors for users, in one sentence: the problem, its place, and a remedy."""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unicodedata import category

# Error number of an operation on a file -> remedy for the user.
_FILE_SYSTEM_REMEDIES = {
    errno.ENOSPC: "free space and run again",
    errno.EDQUOT: "free space or raise the quota, and run again",
    errno.EROFS: "mount it writable and run again",
    errno.EIO: "find the cause with dmesg; use another file system or replace the drive",
}
# Fewest free bytes with which a measurement begins. A record has 10 kB to 2 MB, and while a record
# is written, Snakemake and the logs also need some space.
NEEDED_FREE_BYTES = 8 * 1024 * 1024
# Fewest free inodes with which a measurement begins. Each measurement, even a failed one, makes a
# folder and some files, and Snakemake and the logs make more files.
_NEEDED_FREE_INODES = 1000
# Exceptions that Python raises if a document does not have the form that the code that reads it
# expects.
ERRORS_OF_MALFORMED_DOCUMENTS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    StopIteration,
)
# Largest number of characters in each part of an error, since a part can quote a foreign text of
# any length.
_MOST_CHARACTERS_OF_PART = 4000


class MeasurementError(Exception):
    """A point cannot be measured; the text is the reason, which is kept in the point's record."""


class UserError(Exception):
    """A problem that the user can fix: wrong input, a missing tool, a refused drive.

    Args:
        what: the problem, as a clause without a full stop.
        where: the file, key, host or point with the problem.
        remedy: what would be right, or the next step, as a clause.
    """

    def __init__(self, what: str, where: str | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = (self.what, self.where, self.remedy)
        what, where, remedy = (printable_short_line(part or "") for part in parts)
        # A quoted sentence ends with a full stop, which is removed.
        what, remedy = what.removesuffix("."), remedy.removesuffix(".")
        sentence = f"{where}: {what}" if where else what
        return f"{sentence}; {remedy}." if remedy else f"{sentence}."


class CannotMeasureDesignError(UserError):
    """A host or a benchmark cannot measure a design, so the plan leaves the design out."""


def file_system_error(error: OSError, path: Path | None = None) -> UserError | None:
    """Return an error that names a full, read-only or broken file system; None for other errors.

    Args:
        error: what an operation on a file raised.
        path: the file of the operation, for an `error` that has no file name.
    """
    remedy = _FILE_SYSTEM_REMEDIES.get(error.errno or 0)
    named = error.filename or path
    if remedy is None or named is None:
        return None
    what = f"{os.strerror(error.errno or 0)} on the file system {mount_point(Path(named))}"
    return UserError(what, str(named), remedy)


def mount_point(path: Path) -> Path:
    """Return the folder where the file system of a file is mounted; the file need not exist."""
    folders = path.absolute().parents
    return next(folder for folder in folders if folder.exists() and os.path.ismount(folder))


def check_free_space(folder: Path, needed_bytes: int = NEEDED_FREE_BYTES) -> None:
    """Check that a file system has space, so that each measured record can be kept.

    Raises:
        UserError: fewer than `needed_bytes` bytes, or too few inodes, are free for this user.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    status = os.statvfs(existing)
    lacks = None
    if (free := status.f_bavail * status.f_frsize) < needed_bytes:
        lacks = f"{free} bytes free, {needed_bytes} are needed"
    elif status.f_files and status.f_favail < _NEEDED_FREE_INODES:
        # A file system without a limit reports 0 of 0 inodes.
        lacks = (
            f"{status.f_favail} inodes free, one for each file, {_NEEDED_FREE_INODES} are needed"
        )
    if lacks:
        what = f"the file system {mount_point(existing / 'file')} has {lacks}"
        raise UserError(what, str(folder), "free space and run again")


def printable_text(text: str) -> str:
    """Return a text that a terminal can show without harm, even if others wrote it.

    Characters that control a terminal or reverse the direction of writing are replaced by their
    numbers, so that they have no effect. Line breaks stay.
    """
    if text.isprintable():
        return text
    shown = (
        c if c.isprintable() or c == "\n" or category(c) == "Zs" else ascii(c)[1:-1] for c in text
    )
    return "".join(shown)


def printable_short_line(text: str) -> str:
    """Return a text as one line for a terminal; ` ... ` replaces the middle of a long text."""
    line = printable_text(" ".join(text.split("\n"))).strip()
    half = _MOST_CHARACTERS_OF_PART // 2
    return line if len(line) <= _MOST_CHARACTERS_OF_PART else f"{line[:half]} ... {line[-half:]}"


def describe_malformed_document(error: Exception) -> str:
    """Return a phrase on what is wrong with a document, from the exception of its reader."""
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return printable_short_line(str(error) or type(error).__name__)


@contextmanager
def malformed_as_user_error(
    what: str, where: str | None = None, remedy: str | None = None
) -> Iterator[None]:
    """Turn the errors of reading a malformed document into one sentence.

    Raises:
        UserError: the code inside the ``with`` block raised one of `ERRORS_OF_MALFORMED_DOCUMENTS`,
        or an OSError. The
            error has the arguments of this function.
    """
    try:
        yield
    except (OSError, *ERRORS_OF_MALFORMED_DOCUMENTS) as error:
        raise UserError(f"{what}: {describe_malformed_document(error)}", where, remedy) from error


def suggest_allowed_names(name: str, allowed: Iterable[str]) -> str:
    """Return a remedy for an unknown name: the most similar allowed name, and all allowed names."""
    known = sorted(map(str, allowed))
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"allowed: {', '.join(known) or 'nothing'}"
    return f"did you mean {near[0]}? {listed}" if near else listed


def check_name_is_allowed(
    name: str, allowed: Iterable[str], problem: str, where: str | None
) -> None:
    """Check that a name is one of the allowed names.

    Raises:
        UserError: the name is not allowed; the remedy in the error lists the allowed names.
    """
    known = list(allowed)
    if name not in known:
        raise UserError(problem, where, suggest_allowed_names(name, known))
