"""The history of a component has each of its states once, with its start."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime

import pytest

from chaosity.components.component_documents import (
    read_component_documents,
    write_changed_components,
)
from chaosity.components.component_history import HISTORY_FOLDER, read_component_histories
from chaosity.records.record_files import format_utc

OLD, NEW = {"serial": "A"}, {"serial": "B"}


def contents(folder, name="drive0"):
    return [state.content for state in read_component_histories(folder).get(name, [])]


def since(folder, name="drive0"):
    return [state.since for state in read_component_histories(folder)[name]]


def test_a_replaced_drive_has_two_states(tmp_path):
    write_changed_components(tmp_path, {"drive0": OLD, "node0": {}})
    path = tmp_path / HISTORY_FOLDER / "node0.jsonl"
    before = path.stat().st_mtime_ns
    (tmp_path / "node0.json").touch()
    write_changed_components(tmp_path, {"drive0": NEW, "node0": {}})
    assert contents(tmp_path) == [OLD, NEW]
    assert contents(tmp_path, "node0") == [{}]  # what is unchanged adds no state
    assert path.stat().st_mtime_ns == before
    first, second = since(tmp_path)
    assert first < second


# As far ahead as the clock of a file server may be, and long ago.
@pytest.mark.parametrize("ahead", [True, False])
def test_a_persons_edit_is_a_state_from_the_time_of_the_edit_in_order(tmp_path, ahead):
    edited = int(time.time()) + 30 if ahead else 0
    write_changed_components(tmp_path, {"drive0": OLD})
    path = tmp_path / "drive0.json"
    path.write_text(json.dumps({**OLD, "note": "reseated"}))
    os.utime(path, (edited, edited))
    write_changed_components(tmp_path, {"drive0": OLD})
    assert contents(tmp_path) == [OLD, {**OLD, "note": "reseated"}]
    assert since(tmp_path) == sorted(since(tmp_path))
    if ahead:
        assert since(tmp_path)[1] == format_utc(datetime.fromtimestamp(edited, UTC))


def test_a_component_that_returns_unchanged_has_one_state(tmp_path):
    for drives in ({"drive0": OLD}, {}, {"drive0": OLD}):
        write_changed_components(tmp_path, drives)
    assert contents(tmp_path) == [OLD]
    write_changed_components(tmp_path, {})
    write_changed_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path) == [OLD, NEW]


def test_a_broken_line_is_ignored_and_a_broken_file_is_kept_as_text(tmp_path):
    (tmp_path / "drive0.json").write_text(json.dumps(OLD))  # without history: its first state
    write_changed_components(tmp_path, {"drive0": OLD})
    history = tmp_path / HISTORY_FOLDER / "drive0.jsonl"
    history.write_text(history.read_text() + '{"since": \n[1]\n')
    (tmp_path / "drive0.json").write_text("no JSON")
    write_changed_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path)[0] == OLD
    assert {"unreadable": "no JSON"} in contents(tmp_path)


@pytest.mark.parametrize("left", [b"", b"\0" * 40, b"\n"])
def test_an_emptied_file_gets_its_last_content_again_and_is_no_change(tmp_path, left):
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    (tmp_path / "drive0.json").write_text(json.dumps(NEW))  # a person's edit
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    for name in ("drive0", "drive1"):
        (tmp_path / f"{name}.json").write_bytes(left)
    (tmp_path / HISTORY_FOLDER / "drive1.jsonl").unlink()
    write_changed_components(tmp_path, {"drive0": OLD, "drive1": OLD})
    assert json.loads((tmp_path / "drive0.json").read_text()) == NEW
    assert json.loads((tmp_path / "drive1.json").read_text()) == OLD
    assert contents(tmp_path) == [OLD, NEW]


def test_files_that_are_nested_too_deeply_are_left_out(tmp_path):
    (tmp_path / HISTORY_FOLDER).mkdir()
    for path in (tmp_path / "a.json", tmp_path / HISTORY_FOLDER / "a.jsonl"):
        path.write_text("[" * 100_000)
    assert read_component_documents(tmp_path) == {}
    assert read_component_histories(tmp_path) == {}
