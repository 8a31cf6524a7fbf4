"""Set damaged files of results aside before a run, so that the run makes them again.

A file can be empty, cut or garbage after a crash of the machine or an interrupted copy. Something
else can also stand in its place: a folder, a FIFO, a link to nothing. Snakemake sees only that the
file exists. Nothing is deleted: the file keeps its content under another name.

Every start of the workflow imports this module, so it imports no library of the analysis.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from chaosity.campaign.kept_page_weights import FILE as WEIGHTS_FILE
from chaosity.design.host_plan import HostPlan
from chaosity.errors import MALFORMED, UserError, describe_malformed
from chaosity.records.record_files import (
    read_regular_file,
    record_file,
    replicate_numbers,
    time_in_file_name,
    utc_now_text,
)
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.rounds.round_types import ROUNDS_FOLDER, point_key

_REPORT = "report.html"
# Read by every start, so they are always checked.
_READ_ALWAYS = (_REPORT, WEIGHTS_FILE)
# Outputs of rules that are one file, and those that are a folder of files.
_FILES = ("topology.svg", "findings.json", "summary.json", "summary.txt")
_FOLDERS = ("figures", "exports", ROUNDS_FOLDER)
# How a whole file ends.
_ENDS = {
    ".html": (b"</html>",),
    ".json": (b"}", b"]"),
    ".parquet": (b"PAR1",),
    ".png": (b"IEND\xaeB`\x82",),
    ".svg": (b"</svg>",),
}
_END_BYTES = 64


def set_damaged_derived_files_aside(folder: Path) -> Iterator[str]:
    """Rename damaged files that were computed from records; yield a sentence for each.

    A complete report has read all files that are older than the report, so only younger files are
    read.

    Args:
        folder: ``results/<host>/<configuration>``.
    """
    for name in _READ_ALWAYS:
        if reason := _damage(folder / name, 0):
            yield _set_aside(folder / name, f"the file is {reason}", "computed")
    read_at = _changed_ns(folder / _REPORT) or 0
    for path in (*(folder / name for name in _FILES), *sorted(folder.glob("*.parquet"))):
        if reason := _damage(path, read_at):
            yield _set_aside(path, f"the file is {reason}", "computed")
    for output in (folder / name for name in _FOLDERS):
        for path in sorted(output.glob("[!.]*")):
            if reason := _damage(path, read_at):
                yield _set_aside(output, f"{path.name} is {reason}", "computed")
                break


def set_damaged_records_aside(plan: HostPlan, folder: Path) -> Iterator[str]:
    """Rename damaged records of a plan; yield a sentence for each.

    A record that is older than the tidy table was read for it, so only its end is read again.

    Args:
        plan: the plan of the host.
        folder: ``results/<host>/<configuration>``.
    """
    read_at = _changed_ns(folder / MEASUREMENTS_FILE) or 0
    for point in plan.points:
        for replicate in replicate_numbers(point):
            path = folder / record_file(*point_key(point), replicate)
            if reason := _damage(path, read_at, "verdict"):
                yield _set_aside(path, f"the record is {reason}", "measured")


def _changed_ns(path: Path) -> int | None:
    """Return when a file or its place last changed, in ns since 1970; None if it does not exist."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _damage(path: Path, read_at: int, key: str | None = None) -> str | None:
    """Return what is wrong with a file; None for a whole one, and for one that does not exist.

    Args:
        path: the file.
        read_at: time in ns since 1970 at which all files were read that have not changed since.
        key: a key that the JSON object in the file must have; None for other files.
    """
    changed = _changed_ns(path)
    if changed is None:
        return None
    try:
        if not path.is_file():
            return "not a regular file"
        _check_end(path)
        if changed > read_at:
            _check_content(path, key)
    except MALFORMED as error:
        return f"damaged ({describe_malformed(error)})"
    except OSError:  # such as a missing permission, which the reader of the file will name
        pass
    return None


def _check_end(path: Path) -> None:
    """Raise an error of `MALFORMED` if a file is empty or cut."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _END_BYTES))
        end = stream.read().rstrip()
    if not end:
        raise ValueError("it is empty")
    if not end.endswith(_ENDS.get(path.suffix, (b"",))):
        raise ValueError("its end is missing")


def _check_content(path: Path, key: str | None) -> None:
    """Raise an error of `MALFORMED` if a file has no content of its kind."""
    if path.suffix == ".json":
        document = json.loads(read_regular_file(path))
        if key is not None:
            dict(document)[key]
    elif path.suffix == ".parquet":
        from chaosity.store.tidy_table_parquet import read_parquet_table

        try:
            read_parquet_table(path)
        except UserError as error:
            raise ValueError(error.what) from error
    elif path.suffix != ".png":
        read_regular_file(path).decode()


def _set_aside(path: Path, what: str, again: str) -> str:
    """Rename a file or folder, and return a sentence that says so."""
    kept = path.with_name(f"{path.name}.damaged-{time_in_file_name(utc_now_text())}")
    path.rename(kept)
    return f"{path}: {what}; it is kept as {kept.name}, and {again} again."
