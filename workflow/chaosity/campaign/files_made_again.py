"""Rename damaged files of results, so that a run makes them again; say why records are repeated.

After a crash of the machine or an interrupted copy, a file can be empty, cut off or garbage, or a
folder, a FIFO or a broken link can have its name. Snakemake sees only that the file exists. Nothing
is deleted: a damaged file keeps its content under another name.

Every start of the workflow imports this module, so this module imports no library of the analysis.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chaosity.campaign.measured_page_weights import WEIGHTS_FILE
from chaosity.design.host_plan import HostPlan
from chaosity.errors import (
    ERRORS_OF_MALFORMED_DOCUMENTS,
    UserError,
    describe_malformed_document,
    printable_short_line,
)
from chaosity.records.record_files import (
    current_record_path,
    load_record,
    read_regular_file,
    replicate_numbers,
    time_in_file_name,
    utc_now_text,
)
from chaosity.records.record_format import VALID, Point, point_key
from chaosity.result_folders import MEASUREMENTS_FILE
from chaosity.rounds.budget import ROUNDS_FOLDER
from chaosity.units import format_count, join_with_and

_REPORT_FILE = "report.html"
# Every start of a run reads the report and the weights, so these two files are always checked.
_FILES_CHECKED_AT_EVERY_START = (_REPORT_FILE, WEIGHTS_FILE)
# Files and folders of files that the rules make from the records.
_RULE_OUTPUT_FILES = ("topology.svg", "findings.json", "summary.json", "summary.txt")
_RULE_OUTPUT_FOLDERS = ("figures", "exports", ROUNDS_FOLDER)
# Suffix of a file -> the bytes with which a complete file of this kind can end.
_LAST_BYTES_BY_SUFFIX = {
    ".html": (b"</html>",),
    ".json": (b"}", b"]"),
    ".parquet": (b"PAR1",),
    ".png": (b"IEND\xaeB`\x82",),
    ".svg": (b"</svg>",),
}
_BYTES_READ_AT_END = 64


def set_damaged_derived_files_aside(folder: Path) -> Iterator[str]:
    """Rename damaged files that were computed from records; yield a sentence for each.

    The report and ``weights.json`` are always read. A complete report shows that all files older
    than the report could be read, so only the other files that are newer than the report are read.
    `folder` is ``results/<host>/<configuration>``.
    """
    for name in _FILES_CHECKED_AT_EVERY_START:
        if reason := _describe_damage(folder / name, 0):
            yield _rename_damaged_file(folder / name, f"the file is {reason}", "computed")
    read_at = _change_time_ns(folder / _REPORT_FILE) or 0
    for path in (
        *(folder / name for name in _RULE_OUTPUT_FILES),
        *sorted(folder.glob("*.parquet")),
    ):
        if reason := _describe_damage(path, read_at):
            yield _rename_damaged_file(path, f"the file is {reason}", "computed")
    for output in (folder / name for name in _RULE_OUTPUT_FOLDERS):
        for path in sorted(output.glob("[!.]*")):
            if reason := _describe_damage(path, read_at):
                yield _rename_damaged_file(output, f"{path.name} is {reason}", "computed")
                break


def set_damaged_records_aside(plan: HostPlan, folder: Path) -> Iterator[str]:
    """Rename damaged records of a plan; yield a sentence for each.

    A record that is older than the tidy table could be read for this table, so only the end of the
    record is read again. `folder` is ``results/<host>/<configuration>`` of the plan's host.
    """
    read_at = _change_time_ns(folder / MEASUREMENTS_FILE) or 0
    for point in plan.points:
        for replicate in replicate_numbers(point):
            path = folder / current_record_path(*point_key(point), replicate)
            if reason := _describe_damage(path, read_at, "verdict"):
                yield _rename_damaged_file(path, f"the record is {reason}", "measured")


def _change_time_ns(path: Path) -> int | None:
    """Return when a file or its name last changed, in ns since 1970; None for a missing file."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return max(found.st_mtime_ns, found.st_ctime_ns)


def _describe_damage(path: Path, read_at: int, key: str | None = None) -> str | None:
    """Return what is wrong with a file; None if it is complete or does not exist."""
    # A file that has not changed since `read_at` (in ns since 1970) could be read at that time. If
    # `key` is given, the JSON object in the file must have this key.
    changed = _change_time_ns(path)
    if changed is None:
        return None
    try:
        if not path.is_file():
            return "not a regular file"
        _check_end_of_file(path)
        if changed > read_at:
            _check_content_fits_suffix(path, key)
    except ERRORS_OF_MALFORMED_DOCUMENTS as error:
        return f"damaged ({describe_malformed_document(error)})"
    except OSError:
        # For example, a permission is missing; the later reader of the file reports this error.
        pass
    return None


def _check_end_of_file(path: Path) -> None:
    """Raise a ValueError if a file is empty or its end is missing."""
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _BYTES_READ_AT_END))
        end = stream.read().rstrip()
    if not end:
        raise ValueError("it is empty")
    if not end.endswith(_LAST_BYTES_BY_SUFFIX.get(path.suffix, (b"",))):
        raise ValueError("its end is missing")


def _check_content_fits_suffix(path: Path, key: str | None) -> None:
    """Raise one of `ERRORS_OF_MALFORMED_DOCUMENTS` if the content does not fit the suffix."""
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


def _rename_damaged_file(path: Path, what: str, again: str) -> str:
    """Rename a file or folder; return a sentence with the new name and with the clause `again`."""
    kept = path.with_name(f"{path.name}.damaged-{time_in_file_name(utc_now_text())}")
    path.rename(kept)
    return f"{path}: {what}; it is kept as {kept.name}, and {again} again."


# Keys of a point on which its definition depends, see `design.point_expansion`.
_KEYS_OF_DEFINITION = ("loads", "stopping")


def describe_repetitions(
    measurements: Iterable[tuple[Path, Sequence[str], Point]],
) -> str | None:
    """Return a sentence on how many records are measured again and why; None if no record is.

    `measurements` has, for each measurement that is going to run, the file of the record, the files
    of the components that changed, and the planned point.
    """
    reasons = Counter(_reason_for_repetition(*each) for each in measurements if each[0].exists())
    if not reasons:
        return None
    listed = "; ".join(f"{reason} ({number})" for reason, number in reasons.most_common())
    verb = "is" if reasons.total() == 1 else "are"
    return f"{format_count(reasons.total(), 'record')} {verb} measured again: {listed}"


def _reason_for_repetition(path: Path, changed_components: Sequence[str], point: Point) -> str:
    """Return a clause that says why the record in a file is measured again."""
    if changed_components:
        return f"{join_with_and([Path(file).stem for file in changed_components])} changed"
    try:
        record = load_record(path)
    except ValueError:
        return "damaged"
    if record["point"]["definition"] != point["definition"]:
        before, now = map(dict, (record["point"], point))
        found = (
            _first_json_difference(before.get(key), now[key], key) for key in _KEYS_OF_DEFINITION
        )
        return f"another definition: {next(filter(None, found), 'a new version')}"
    return "failed before" if record["verdict"]["status"] != VALID else "asked for"


def _first_json_difference(before: Any, now: Any, place: str) -> str | None:
    """Return a text on the first difference of two JSON documents; None if they are equal."""
    if before == now:
        return None
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            if found := _first_json_difference(before.get(key), now.get(key), f"{place}.{key}"):
                return found
    return printable_short_line(f"{place} was {before!r}, is {now!r}")
