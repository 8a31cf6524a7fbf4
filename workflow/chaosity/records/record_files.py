"""Read and write records, write files atomically, and format times."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from chaosity.errors import ERRORS_OF_MALFORMED_DOCUMENTS, describe_malformed_document
from chaosity.records.record_format import (
    VALID,
    Check,
    Point,
    Record,
    UnfinishedRecord,
    make_verdict,
    point_key,
)

SCHEMA_VERSION = 1
# File with the digests of the attempts in a folder. `sha256sum --check SHA256SUMS` checks the
# attempts against the digests.
DIGESTS_FILE = "SHA256SUMS"
# Environment variable with the time when the run began, in the form of `utc_now_text`; unset
# outside a run.
RUN_BEGAN_VARIABLE = "CHAOSITY_RUN_BEGAN"


def utc_now_text() -> str:
    """Return the present time, in the form of `format_utc`."""
    return format_utc(datetime.now(UTC))


def format_utc(moment: datetime) -> str:
    """Return a time in UTC as ISO 8601, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_to_the_minute(time: str | None) -> str:
    """Return a time in the form of `format_utc` for a sentence: "2026-11-21 03:30 UTC"."""
    return f"{time[:16].replace('T', ' ')} UTC" if time else "an unknown time"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: write a temporary file, flush it to the disk, and rename it.

    Raises:
        OSError: the disk is full or the folder is not writable. On an error, the old file is
            unchanged, and the error contains the name of the file.
    """
    try:
        _write_and_rename(path, content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write_and_rename(path: Path, content: str | bytes) -> None:
    """Write a file as `write_atomically` does, but raise errors that may lack the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file of results.

    A stranger may have sent the results, so only a regular file is opened: reading a FIFO would
    wait for ever, and reading a device can do anything.

    Raises:
        OSError: the file does not exist, is not a regular file, or cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()


def file_has_text(path: Path, text: str) -> bool:
    """Return whether a file exists and contains exactly the given text."""
    try:
        return read_regular_file(path) == text.encode()
    except OSError:
        return False


def write_if_changed(path: Path, text: str) -> None:
    """Write a file only if its content changes, so that its time stamp shows the last change."""
    if not file_has_text(path, text):
        write_atomically(path, text)


def replicate_numbers(point: Point) -> range:
    """Return the numbers of the replicates of a planned point: 1, 2, ..."""
    return range(1, 1 + len(point["orders"]))


def current_record_path(experiment: str, point: str, replicate: int) -> str:
    """Return the path of a replicate's current record below ``results/<host>/<configuration>``."""
    return f"{experiment}/{point}/rep{replicate}.json"


def has_valid_record(folder: Path, point: Point, replicate: int) -> bool:
    """Return whether a replicate has a valid record with the point's definition.

    `folder` is ``results/<host>/<configuration>``.
    """
    try:
        record = load_record(folder / current_record_path(*point_key(point), replicate))
    except ValueError:
        return False
    same = record["point"]["definition"] == point["definition"]
    return same and record["verdict"]["status"] == VALID


def time_in_file_name(moment: str) -> str:
    """Return a time in the form for names of attempt files, so that these names sort by time."""
    return moment.replace("-", "").replace(":", "")


def file_time(path: Path) -> str:
    """Return the time stamp of a file's last change, in the form of `format_utc`."""
    return format_utc(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def begin_record(point: Point, replicate: int, measured_on: str) -> UnfinishedRecord:
    """Return the record of a measurement that begins now, without its loads.

    `measured_on` is the name of the machine.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "point": point,
        "replicate": replicate,
        "order": point["orders"][replicate - 1],
        "stopping": point["stopping"],
        "began_at": utc_now_text(),
        "measured_on": measured_on,
        "loads": [],
    }


def finish_record(record: UnfinishedRecord, checks: list[Check]) -> Record:
    """Return the record of a measurement that ends now, with the verdict of its checks."""
    return {**record, "finished_at": utc_now_text(), "verdict": make_verdict(checks)}


def measurement_seconds(record: Record) -> float:
    """Return how many seconds a measurement took, including placement and verification."""
    began, finished = map(datetime.fromisoformat, (record["began_at"], record["finished_at"]))
    return (finished - began).total_seconds()


def save_record(record: Record, path: Path) -> None:
    """Save a record as an attempt and make it the current record.

    The attempt is a new file in the folder ``attempts/`` next to `path`, and never changes. `path`
    (``rep<N>.json``) becomes a link to the attempt or a copy of the attempt. So a retry, or a new
    run after a repair, deletes no earlier attempt. The digest in ``attempts/SHA256SUMS`` shows
    whether somebody edits the attempt later.
    """
    attempt = path.parent / "attempts" / _attempt_of_record(record)
    content = json.dumps(record, indent=1, sort_keys=True) + "\n"
    write_atomically(attempt, content)
    digests = attempt.with_name(DIGESTS_FILE)
    before = read_regular_file(digests) if digests.is_file() else b""
    if not before.endswith(b"\n"):  # the file of digests is new, or its end was cut off
        before += b"\n" if before else b""
    line = f"{hashlib.sha256(content.encode()).hexdigest()}  {attempt.name}\n"
    write_atomically(digests, before + line.encode())
    link_current_record(attempt, path)


def _attempt_of_record(record: Record) -> str:
    """Return the file name of a record's attempt: ``rep2.20261121T033000.123Z.valid.json``."""
    time, status = time_in_file_name(record["finished_at"]), record["verdict"]["status"]
    return f"rep{record['replicate']}.{time}.{status}.json"


def attempts_folder(path: Path) -> Path:
    """Return the folder of all attempts of a record's point; `path` is an attempt or ``rep<N>``."""
    return path.parent if path.parent.name == "attempts" else path.parent / "attempts"


def _is_edited_by_hand(path: Path, record: Record, content: bytes) -> bool:
    """Return whether somebody edited a record.

    An edited record differs from the attempt file that was saved after the measurement. Attempts
    without a digest, which versions before 2026-11-24 wrote, cannot be verified and count as
    unedited.
    """
    folder = attempts_folder(path)
    if not (folder / DIGESTS_FILE).is_file():
        return False
    try:
        name = _attempt_of_record(record)
        if (path.parent == folder and path.name != name) or not (folder / name).exists():
            # No attempt file has this name, so the time, replicate or status in the record was
            # edited.
            return True
    except (OSError, *ERRORS_OF_MALFORMED_DOCUMENTS):
        # A value for the name of the attempt file was edited, so that it gives no name.
        return True
    lines = read_regular_file(folder / DIGESTS_FILE).decode(errors="replace").splitlines()
    written = [line for line in lines if line.endswith(f"  {name}")]
    return bool(written) and f"{hashlib.sha256(content).hexdigest()}  {name}" not in written


def link_current_record(attempt: Path, path: Path) -> None:
    """Make `path` (``rep<N>.json``) a hard link to an attempt's file, or else a copy of it.

    Some file systems have no hard links: exFAT, FAT, and shares of some servers.
    """
    link = path.with_name(f".{path.name}.{os.getpid()}")
    link.unlink(missing_ok=True)
    try:
        os.link(attempt, link)
    except OSError:
        write_atomically(path, attempt.read_bytes())
    else:
        link.replace(path)


def load_record(path: Path) -> Record:
    """Read a record from its file.

    Raises:
        ValueError: the file is not a complete record of this version, or somebody edited it.
    """
    try:
        content = read_regular_file(path)
        document = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        what = f"{path} is not a complete record: {describe_malformed_document(error)}"
        raise ValueError(f"{what}; the next run measures the point again") from error
    record = record_from_json_document(document, str(path))
    if _is_edited_by_hand(path, record, content):
        what = f"{path} was edited after its measurement: {DIGESTS_FILE} has another digest"
        raise ValueError(f"{what}; restore the file, or delete it to measure the point again")
    return record


def record_from_json_document(document: Any, source: str) -> Record:
    """Check a JSON document and return it as a record; `source` is the name of file or sender.

    Raises:
        ValueError: the document is not a record, or is a record of another version.
    """
    if not isinstance(document, dict) or "verdict" not in document:
        raise ValueError(f"{source} is not a record: it has no verdict")
    if (version := document.get("schema_version")) != SCHEMA_VERSION:
        what = f"{source} has record version {version}, not {SCHEMA_VERSION}"
        raise ValueError(f"{what}; read it with the version of this program that wrote it")
    return cast(Record, document)


def newest_attempt_since_run_began(point: Point, replicate: int, path: Path) -> Path | None:
    """Return the newest attempt of a replicate since the run began; None if there is none.

    Several measurements share a Slurm job. If the job is cancelled, exceeds its time or loses its
    node, Snakemake repeats all measurements of the job. A repeated measurement that had already
    finished uses the attempt of this run again. A record of another definition does not count.
    `path` is the path of the current record.
    """
    began = os.environ.get(RUN_BEGAN_VARIABLE)
    if not began:
        return None
    for attempt in sorted(path.parent.glob(f"attempts/rep{replicate}.*.json"), reverse=True):
        try:
            record = load_record(attempt)
        except ValueError:
            continue
        same = record["point"].get("definition") == point["definition"]
        # The clock of the host may be ahead of the controller's clock, so both the time in the
        # record and the time stamp of the file must be from this run.
        in_run = record["began_at"] >= began and file_time(attempt) >= began
        if same and record["replicate"] == replicate and in_run:
            return attempt
    return None
