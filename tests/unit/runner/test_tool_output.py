"""Reading figures out of tools' output, whole and broken."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.runner.tool_output import (
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


@pytest.mark.parametrize(
    ("source", "text", "values"),
    [
        ({"json": "global options.direct"}, FIO, ["1"]),
        # Messages before the document, and lines that are no event, are skipped.
        ({"json": "jobs[*].error"}, f"\nfio: terminating on signal 2\n{FIO}\n", [0, 0]),
        ({"event": "done", "key": "valid"}, KERNEL, [True]),
    ],
)
def test_values(source, text, values):
    assert extract_values(source, {"stdout": text}) == values


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
        ({"regex": "T (.*)", "amount": 1}, {"stdout": "T 0.0"}, r"from a time of 0\.0 s"),
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
