"""A table from kept readings is the table of a full read, whatever happened to the records."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_measurements import DAYS, Results, point

from chaosity.store import tidy_table_from_records
from chaosity.store.tidy_table_from_records import KEPT_READINGS_FOLDER, build_tidy_table

POINTS = ("storage=node0+drive0", "storage=node1+drive0")
# Longer than the steps of the time stamps of the file systems on which tests run.
TICK_SECONDS = 0.02


@pytest.fixture(autouse=True)
def _short_resolution(monkeypatch):
    monkeypatch.setattr(
        tidy_table_from_records, "_TIME_STAMP_RESOLUTION_NS", int(1e9 * TICK_SECONDS)
    )


class Host(Results):
    """Results with two points, of which the second has a ratio to the first."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.day = 0
        self.component("system", (DAYS[0], {"kernel": "6.1"}))
        self.component("drive0", (DAYS[0], {"serial": "A"}), (DAYS[4], {"serial": "B"}))
        self.plan("A", 2)

    def plan(self, definition: str, replicates: int) -> None:
        ratio = {"name": "ratio", "load": "storage", "metric": "bandwidth_bytes_per_second"}
        to = {"point": POINTS[0], "load": "storage"}
        for name in POINTS:
            planned = point(serial=definition) | {"point": name, "orders": [*range(replicates)]}
            planned["relative"] = [{**ratio, "to": to}] if name == POINTS[1] else []
            (self.folder / f"points/e/{name}.json").write_text(json.dumps(planned))

    def measure(self, name: str, replicate: int, amount: int, passed: bool) -> None:
        """Save an attempt; each is a moment later than the one before, over two periods."""
        self.day += 1
        at = f"2026-01-0{1 + self.day % 8}T00:00:{self.day:02}.000Z"
        self.attempt(at, float(amount), replicate, passed, name=name)

    def records(self, name: str) -> list[Path]:
        return sorted((self.folder / "e" / name).rglob("rep*.json"))

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return build_tidy_table(self.folder / "points", self.folder), self.history()


def change(host: Host, name: str, step: tuple[str, int, int]) -> None:
    """Change the records of a point, or the plan, in one of the ways in which they change."""
    kind, number, amount = step
    records = host.records(name)
    if kind == "measure":
        host.measure(name, 1 + number % 2, amount, passed=number < 6)
    elif kind == "plan":
        host.plan("AB"[number % 2], 1 + number % 3)
    elif kind == "forget digests":
        (host.folder / "e" / name / "attempts/SHA256SUMS").unlink(missing_ok=True)
    elif records:
        chosen = records[number % len(records)]
        if kind == "remove":
            chosen.unlink()
        elif kind == "edit":  # of the same size, and with the older time stamp
            edit_and_hide(chosen, f'"order": {amount % 10}'.encode())


def edit_and_hide(record: Path, order: bytes) -> None:
    before = record.stat()
    text = record.read_bytes()
    at = text.index(b'"order": ')
    with record.open("r+b") as stream:  # in place, so that the inode stays
        stream.write(text[:at] + order + text[at + len(order) :])
    os.utime(record, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert record.stat().st_size == before.st_size


STEPS = st.tuples(
    st.sampled_from(["measure", "measure", "measure", "edit", "remove", "plan", "forget digests"]),
    st.integers(0, 7),
    st.integers(1000, 9999),
)


@pytest.mark.thorough
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(POINTS), STEPS), min_size=1, max_size=8))
def test_the_tables_are_those_of_a_full_read_after_any_changes(steps):
    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name))
        for place, step in steps:
            change(host, place, step)
            time.sleep(1.5 * TICK_SECONDS)
            found = host.tables()
            kept = host.folder / "kept"
            if (host.folder / KEPT_READINGS_FOLDER).exists():
                (host.folder / KEPT_READINGS_FOLDER).rename(kept)
            for incremental, full in zip(found, host.tables(), strict=True):
                pd.testing.assert_frame_equal(incremental, full)
            shutil.rmtree(host.folder / KEPT_READINGS_FOLDER, ignore_errors=True)
            if kept.exists():
                kept.rename(host.folder / KEPT_READINGS_FOLDER)


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path)
    for name in POINTS:
        for replicate in (1, 2):
            made.measure(name, replicate, 1000 * replicate, passed=True)
    time.sleep(1.5 * TICK_SECONDS)
    return made


@pytest.fixture
def read(monkeypatch):
    """Paths of the records that were read, in turn."""
    paths: list[Path] = []
    load = tidy_table_from_records.load_record

    def note_and_load(path):
        paths.append(path)
        return load(path)

    monkeypatch.setattr(tidy_table_from_records, "load_record", note_and_load)
    return paths


def test_a_second_table_reads_no_record_and_is_equal(host, read):
    first = host.tables()
    assert len(read) == 4 + len(host.history().drop_duplicates(["point", "replicate", "era"]))
    read.clear()
    for again, before in zip(host.tables(), first, strict=True):
        pd.testing.assert_frame_equal(again, before)
    assert read == []


def test_only_the_point_that_was_measured_again_is_read(host, read):
    host.tables()
    read.clear()
    host.measure(POINTS[1], 2, 9000, passed=True)
    host.tables()
    assert read
    assert all(POINTS[1] in str(path) for path in read)


def test_an_edited_record_is_noticed_even_with_its_older_time_stamp_and_size(host):
    host.tables()
    edit_and_hide(host.folder / "e" / POINTS[0] / "rep1.json", b'"order": 7')
    rows = host.tables()[0]
    own = rows[(rows["point"] == POINTS[0]) & (rows["replicate"] == 1)]
    assert list(own["status"]) == ["failed"]
    assert "was edited after its measurement" in own["reason"].iloc[0]


def test_a_record_of_this_moment_is_read_again_since_a_second_change_could_look_the_same(
    host, read, monkeypatch
):
    monkeypatch.setattr(tidy_table_from_records, "_TIME_STAMP_RESOLUTION_NS", 10**12)
    host.tables()
    read.clear()
    host.tables()
    assert len(read) >= 4


def test_another_version_of_the_program_reads_everything(host, read, monkeypatch):
    host.tables()
    read.clear()
    monkeypatch.setattr(tidy_table_from_records, "_program_digest", lambda: "another")
    host.tables()
    assert len(read) >= 4


@pytest.mark.parametrize("content", [b"", b"PAR1"])
def test_a_damaged_file_of_readings_is_replaced(host, read, content):
    before = host.tables()[0]
    file = host.folder / KEPT_READINGS_FOLDER / "measurements.parquet"
    file.write_bytes(content)
    read.clear()
    pd.testing.assert_frame_equal(host.tables()[0], before)
    assert len(read) == 4
    read.clear()
    host.tables()
    assert read == []
