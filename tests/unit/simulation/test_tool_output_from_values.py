"""What the simulation writes is read back by the code that reads real tools' output."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaosity.simulation.simulated_records import text_with_value_as_first_group

PATTERNS = [
    r"^MByte/s:\s+([0-9.]+)",
    r"^Using ([0-9]+) threads",
    r"^Size \(Byte\):\s+([0-9]+)",
    r"^Number of Threads counted = ([0-9]+)",
    r"<float[0-9]*>([0-9.e+]+)</float",
    r"^\s*Compute units\s*: ([0-9]+)",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(deadline=None)  # a busy machine is slow now and then
@given(number=st.integers(0, 10**12))
def test_a_pattern_finds_the_number_in_the_text_made_for_it(pattern, number):
    assert re.findall(pattern, text_with_value_as_first_group(pattern, str(number)), re.M) == [
        str(number)
    ]


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"^Platform: (.*?)\s*$", "Portable Computing Language"),
        (r"^Solution (Validates|Does not validate)", "Validates"),
        (r"^Test: ([a-z]+(?:_mem)?)", "stream_mem"),
    ],
)
def test_a_pattern_finds_the_text_made_for_it(pattern, value):
    assert re.findall(pattern, text_with_value_as_first_group(pattern, value), re.M) == [value]
