"""A point's name reads aloud and parses back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed_point_names import parse_point_name

from chaosity.design.point_names import LoadName, make_point_name

PART = st.from_regex(r"[A-Za-z0-9_,\-]+", fullmatch=True)
KERNEL = st.from_regex(r"[A-Za-z0-9_,]+", fullmatch=True)
WORD = st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True)
LEVELS = st.lists(st.tuples(WORD, PART), max_size=3).map(tuple)
LOADS = st.dictionaries(
    WORD,
    st.tuples(PART, PART, st.one_of(st.none(), KERNEL), LEVELS),
    min_size=1,
    max_size=4,
)


@given(LOADS)
def test_names_parse_back(loads):
    names = [LoadName(load, *rest) for load, rest in loads.items()]
    assert parse_point_name(make_point_name(names)) == sorted(names, key=lambda one: one.load)


def test_the_name_of_the_design_document():
    name = "memory=node3+node3+triad.storage=node3+node3drives2"
    [memory, storage] = parse_point_name(name)
    assert (memory.initiator, memory.target, memory.kernel) == ("node3", "node3", "triad")
    assert (storage.target, storage.kernel) == ("node3drives2", None)


def test_what_was_varied_is_in_the_name():
    [chase] = parse_point_name("chase=pu3+node4+bytes-64MiB+pages-2M")
    assert (chase.initiator, chase.kernel) == ("pu3", None)
    assert chase.levels == (("bytes", "64MiB"), ("pages", "2M"))


@pytest.mark.parametrize(
    "name",
    ["", "memory", "memory=node1", "=node1+node2", "a=b+c+d+e", "a=b+", "a=b+c+k-1+d", "a=b+c+k-"],
)
def test_no_other_text_is_taken_for_a_name(name):
    with pytest.raises(ValueError):
        parse_point_name(name)
