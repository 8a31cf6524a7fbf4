"""What a component was is kept, with the time since when, and never twice."""

from __future__ import annotations

import json
import os

from chaosity.components import read_component_histories, write_components
from chaosity.components.component_history import HISTORY

OLD, NEW = {"serial": "A"}, {"serial": "B"}


def contents(folder, name="drive0"):
    return [state.content for state in read_component_histories(folder).get(name, [])]


def since(folder, name="drive0"):
    return [state.since for state in read_component_histories(folder)[name]]


def test_a_replaced_drive_has_two_states(tmp_path):
    write_components(tmp_path, {"drive0": OLD, "node0": {}})
    write_components(tmp_path, {"drive0": NEW, "node0": {}})
    assert contents(tmp_path) == [OLD, NEW]
    assert contents(tmp_path, "node0") == [{}]
    first, second = since(tmp_path)
    assert first < second


def test_nothing_new_is_not_written(tmp_path):
    write_components(tmp_path, {"drive0": OLD})
    path = tmp_path / HISTORY / "drive0.jsonl"
    before = path.stat().st_mtime_ns
    (tmp_path / "drive0.json").touch()
    write_components(tmp_path, {"drive0": OLD})
    assert path.stat().st_mtime_ns == before


def test_what_a_person_wrote_is_a_state_since_it_was_written(tmp_path):
    write_components(tmp_path, {"drive0": OLD})
    path = tmp_path / "drive0.json"
    path.write_text(json.dumps({**OLD, "note": "reseated"}))
    os.utime(path, (4102444800, 4102444800))  # 2100-01-01
    write_components(tmp_path, {"drive0": OLD})
    assert contents(tmp_path) == [OLD, {**OLD, "note": "reseated"}]
    assert since(tmp_path)[1] == "2100-01-01T00:00:00.000Z"


def test_an_old_time_stamp_does_not_turn_the_order(tmp_path):
    write_components(tmp_path, {"drive0": OLD})
    path = tmp_path / "drive0.json"
    path.write_text(json.dumps(NEW))
    os.utime(path, (0, 0))
    write_components(tmp_path, {"drive0": OLD})
    assert contents(tmp_path) == [OLD, NEW]
    assert since(tmp_path) == sorted(since(tmp_path))


def test_a_component_that_was_gone_for_a_while_is_the_one_it_was(tmp_path):
    for drives in ({"drive0": OLD}, {}, {"drive0": OLD}):
        write_components(tmp_path, drives)
    assert contents(tmp_path) == [OLD]
    write_components(tmp_path, {})
    write_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path) == [OLD, NEW]


def test_files_from_before_there_was_a_history_begin_it(tmp_path):
    (tmp_path / "drive0.json").write_text(json.dumps(OLD))
    write_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path) == [OLD, NEW]


def test_a_broken_line_is_left_out_and_broken_files_are_kept_as_text(tmp_path):
    write_components(tmp_path, {"drive0": OLD})
    history = tmp_path / HISTORY / "drive0.jsonl"
    history.write_text(history.read_text() + '{"since": \n[1]\n')
    (tmp_path / "drive0.json").write_text("no JSON")
    write_components(tmp_path, {"drive0": NEW})
    assert contents(tmp_path)[0] == OLD
    assert {"unreadable": "no JSON"} in contents(tmp_path)
