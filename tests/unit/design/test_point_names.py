"""A point's name reads aloud and parses back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from parsed_point_names import parse_point_name

from chaosity.design.loads import LoadName, make_point_name

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


@settings(max_examples=10)
@given(LOADS)
def test_names_parse_back(loads):
    names = [LoadName(load, *rest) for load, rest in loads.items()]
    assert parse_point_name(make_point_name(names)) == sorted(names, key=lambda one: one.load)
