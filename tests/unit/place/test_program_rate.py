"""How fast a program goes, from what it prints."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.errors import UserError
from chaosity.place import placement_search


def sample(begin: int, end: int, **amount: object) -> str:
    said = "".join(f',"{key}":{value}' for key, value in amount.items())
    return f'{{"event":"sample","begin_ns":{begin},"end_ns":{end}{said}}}'


@pytest.mark.parametrize(
    ("source", "amounts", "counted"),
    [
        *(
            (placement_search.SampleSource(), {key: 7}, 7)
            for key in ("bytes", "elements", "passes")
        ),
        (placement_search.SampleSource("turns"), {"bytes": 7, "turns": 2}, 2),
    ],
)
def test_samples_count_with_any_key_for_the_amount_or_with_the_given_one(source, amounts, counted):
    source.read_line(sample(1_000, 3_000, **amounts), 0.0)
    assert source.series == [pytest.approx((1e-6, 3e-6, counted))]


@given(st.text())
def test_other_lines_are_not_samples(text):
    found = placement_search.SampleSource()
    found.read_line(text, 0.0)
    found.read_line('{"event":"sample"' + text, 0.0)
    found.read_line('{"event":"sample","begin_ns":1,"end_ns":2}', 0.0)
    assert found.series == []


def test_lines_count_from_the_line_before():
    found = placement_search.LineSource(r"Iteration\s+\d+")
    for now, line in enumerate(["start", "Iteration 1", "other", "Iteration 2", "Iteration 3"]):
        found.read_line(line, float(now))
    assert found.series == [(1.0, 3.0, 1.0), (3.0, 4.0, 1.0)]


@pytest.mark.parametrize("text", ["", "lines=", "lines", "instructions=1", "bytes"])
def test_an_unknown_rate_source_is_refused(text):
    with pytest.raises(UserError, match="samples, samples=KEY, lines=REGEX or instructions"):
        placement_search.check_rate_is_readable(text)


def test_a_refusal_to_count_instructions_keeps_its_reason(monkeypatch):
    monkeypatch.setattr(placement_search.event_counters, "INSTRUCTIONS", {"type": 1, "config": 99})
    with pytest.raises(UserError, match="has no such counter"):
        placement_search.check_rate_is_readable("instructions")


def test_instructions_are_counted_or_refused_with_the_reason():
    try:
        placement_search.check_rate_is_readable("instructions")
    except UserError as error:
        assert "instructions cannot be counted:" in str(error)
        return
    counter = placement_search.InstructionSource(os.getpid())
    counter.add_progress_until_now()
    assert counter.series[0][2] > 1000.0


class Steady:
    """A program that reports in steady steps while it is let go on."""

    def __init__(
        self, source: placement_search.SampleSource, step: float, ends: float = 1e9
    ) -> None:
        self.source, self.step, self.ends = source, step, time.monotonic() + ends
        self.at = time.monotonic()

    def let_program_run(self, seconds: float) -> bool:
        time.sleep(seconds)
        while self.at + self.step < time.monotonic():
            begin, self.at = self.at, self.at + self.step
            self.source.read_line(sample(int(begin * 1e9), int(self.at * 1e9), steps=1), self.at)
        return self.at < self.ends


def test_a_steady_rate_is_measured_quickly_without_samples_from_before():
    source = placement_search.SampleSource()
    source.read_line(sample(0, 10, steps=10**9), 0.0)
    rate = placement_search.RateMeter(source, Steady(source, 0.005).let_program_run)()
    assert rate.value == pytest.approx(200.0, rel=1e-3)
    assert rate.relative_half_width <= placement_search.PRECISION
    assert rate.seconds >= placement_search.SHORTEST


def test_too_few_reports_give_a_remedy(monkeypatch):
    monkeypatch.setattr(placement_search, "HOPELESS_SECONDS", 0.6)
    source = placement_search.SampleSource()
    with pytest.raises(UserError, match=r"reported \d times in 1 s, .* --rate lines=REGEX"):
        placement_search.RateMeter(source, Steady(source, 0.2).let_program_run)()


def test_a_program_that_ends_has_no_rate():
    source = placement_search.SampleSource()
    with pytest.raises(placement_search.ProgramEndedError):
        placement_search.RateMeter(source, Steady(source, 0.01, ends=0.1).let_program_run)()
