"""Reading figures out of tools' output, whole and broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.runner.parse_tool_output import (
    ExtractionError,
    extract_number,
    extract_values,
    values_at_path,
)

FIO = json.dumps(
    {
        "global options": {"direct": "1"},
        "jobs": [
            {"error": 0, "read": {"bw_bytes": 100, "io_bytes": 5}},
            {"error": 0, "read": {"bw_bytes": 250, "io_bytes": 7}},
        ],
    }
)
STREAM = """Function    Best Rate MB/s  Avg time     Min time     Max time
Copy:           52256.5     0.031099     0.030618     0.032161
Triad:          45165.4     0.054779     0.053138     0.059605
"""
KERNEL = '{"event":"ready","kernel":"triad"}\nnoise\n{"event":"done","valid":true,"passes":7}\n'


def test_sums_over_jobs():
    source = {"in": "result.json", "json": "jobs[*].read.bw_bytes", "combine": "sum"}
    assert extract_number(source, {"result.json": FIO}) == 350


def test_keys_with_blanks():
    found = extract_values({"in": "r", "json": "global options.direct"}, {"r": FIO})
    assert found == ["1"]


def test_messages_before_the_document_are_skipped():
    text = f"\nfio: terminating on signal 2\n{FIO}\n"
    assert extract_values({"json": "jobs[*].error"}, {"stdout": text}) == [0, 0]


def test_regex_with_scale():
    source = {"regex": r"^Triad:\s+([0-9.]+)", "scale": 1e6}
    assert extract_number(source, {"stdout": STREAM}) == pytest.approx(45165.4e6)


def test_an_amount_and_its_time_give_a_rate():
    average = {"regex": r"^Triad:\s+[0-9.]+\s+([0-9.]+)", "amount": "240000000"}
    assert extract_number(average, {"stdout": STREAM}) == pytest.approx(240e6 / 0.054779)


def test_a_time_of_zero_gives_no_rate():
    average = {"regex": "time ([0-9.]+)", "amount": 1}
    with pytest.raises(ExtractionError, match=r"no rate can be computed from a time of 0\.0 s"):
        extract_number(average, {"stdout": "time 0.000000"})


def test_events_among_other_lines():
    assert extract_values({"event": "done", "key": "valid"}, {"stdout": KERNEL}) == [True]


@pytest.mark.parametrize(
    ("source", "outputs", "message"),
    [
        ({"json": "jobs[*].x"}, {"stdout": "Segmentation fault"}, "not JSON"),
        ({"json": "jobs[*].x"}, {"stdout": FIO[: len(FIO) // 2]}, "not JSON"),
        ({"json": "jobs[*].write.bw"}, {"stdout": FIO}, "no value at"),
        ({"in": "result.json", "json": "jobs"}, {"stdout": ""}, "wrote no output result.json"),
        ({"json": "jobs[*].error"}, {"stdout": FIO}, "2 values"),
        ({"json": "global options"}, {"stdout": FIO}, "not a number"),
        ({"event": "done", "key": "valid"}, {"stdout": '{"event":"done","val'}, "incomplete JSON"),
        ({"regex": "Add: (.*)"}, {"stdout": STREAM}, "no line of the output matches"),
    ],
)
def test_wrong_output_is_an_error(source, outputs, message):
    with pytest.raises(ExtractionError, match=message):
        extract_number(source, outputs)


@given(st.lists(st.integers(-(2**53), 2**53), min_size=1))
def test_every_item_of_a_list_is_found(numbers):
    assert values_at_path({"a": [{"b": n} for n in numbers]}, "a[*].b") == numbers


@given(st.text("abc0123456789. -", min_size=1), st.integers())
def test_a_quoted_key_may_have_dots(key, number):
    path = f'a[0].percentile["{key}"].ns'
    assert values_at_path({"a": [{"percentile": {key: {"ns": number}}}]}, path) == [number]


def test_output_that_is_nested_too_deeply_is_no_json():
    for text in ("[" * 100_000, "{" + '"a":{' * 100_000):
        with pytest.raises(ExtractionError, match=r"nested|incomplete|not JSON"):
            extract_number({"json": "a"}, {"stdout": text})
