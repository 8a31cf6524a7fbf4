"""Every parser of foreign input, with good, changed and generated inputs, the same each time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.parser_list import all_parsers
from fuzz.watched_parser import limits, run_watched

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", sorted(all_parsers()))
def test_the_parser_returns_a_value_or_one_sentence(name):
    parser = all_parsers()[name]

    @settings(
        max_examples=parser.examples,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(parser.strategy)
    def check(value):
        run_watched(parser, value, folder)

    with limits() as folder:
        check()
