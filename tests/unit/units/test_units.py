from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.units import (
    choose_scale,
    format_binary_bytes,
    format_count,
    format_decimal_bytes,
    format_duration,
    format_percent,
    format_quantity,
    format_with_interval,
    metric_in_words,
)


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        ("bandwidth_bytes_per_second", 41.2e9, "41.2 GB/s"),
        ("bandwidth_bytes_per_second", 999.7e6, "1.00 GB/s"),
        ("bandwidth_bytes_per_second", 512e6, "512 MB/s"),
        ("bandwidth_bytes_per_second", 1.5e3, "1.50 kB/s"),
        ("latency_ns", 92.37, "92.4 ns"),
        ("latency_ns", 1234.0, "1.23 µs"),
        ("elapsed_seconds", 0.0042, "4.20 ms"),
        ("frequency_hertz", 3.63e9, "3.63 GHz"),
        ("rate_operations_per_second", 1.2e6, "1.20 Mop/s"),
        ("elements_per_second", 67680227.0, "67.7 Melem/s"),
        ("loss_percent", 33.0, "33.0 %"),
        ("bandwidth_bytes_per_second", 0.0, "0 B/s"),
        ("speedup", 1.25, "1.25"),
        ("latency_ns", None, "unknown"),
        ("latency_ns", math.nan, "unknown"),
    ],
)
def test_a_value_is_formatted_with_its_best_unit(metric, value, text):
    assert format_quantity(metric, value) == text


def test_all_values_of_a_figure_share_the_unit_of_the_largest():
    scale = choose_scale("bandwidth_bytes_per_second", [9.5e8, 41.2e9, math.nan])
    assert scale.symbol == "GB/s"
    assert [scale.number(value) for value in (9.5e8, 41.2e9)] == ["0.9", "41.2"]


@given(st.floats(min_value=1.0, max_value=9e17))
def test_a_rate_has_at_most_three_digits_before_the_point(value):
    number = format_quantity("bandwidth_bytes_per_second", value).split()[0]
    assert len(number.split(".")[0]) <= 4
    assert float(number) < 1000.0


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (format_decimal_bytes, (2_000_398_934_016,), "2.00 TB"),
        (format_decimal_bytes, (512,), "512 B"),
        (format_decimal_bytes, (None,), "unknown"),
        (format_binary_bytes, (32 * 2**30,), "32 GiB"),
        (format_binary_bytes, (25769402368,), "24.0 GiB"),
        (format_binary_bytes, (None,), "unknown"),
        (format_duration, (0.42,), "0.4 s"),
        (format_duration, (52.4,), "52 s"),
        (format_duration, (60,), "1 min"),
        (format_duration, (250,), "4 min 10 s"),
        (format_duration, (3599.7,), "1 h 00 min"),
        (format_duration, (11100,), "3 h 05 min"),
        (format_duration, (11140,), "3 h 06 min"),
        (format_duration, (187200,), "2 d 04 h"),
        (format_duration, (None,), "unknown"),
        (format_count, (1, "point"), "1 point"),
        (format_count, (2040, "point"), "2\N{THIN SPACE}040 points"),
        (metric_in_words, ("bandwidth_bytes_per_second",), "bandwidth"),
        (metric_in_words, ("latency_ns",), "latency"),
        (metric_in_words, ("elements_per_second",), "speed"),
        (format_with_interval, ("latency_ns", 208.0, 200.0, 210.0), "208 ns (200 to 210)"),
        (format_with_interval, ("latency_ns", 208.0, 207.7, 208.2), "208 ns ± 0.2 %"),
        (format_with_interval, ("latency_ns", 208.0, 208.0, 208.0), "208 ns ± 0.1 %"),
        (format_percent, (0.034,), "3.4 %"),
        (format_percent, (0.33,), "33 %"),
        (format_percent, (0.0,), "0 %"),
    ],
)
def test_sizes_times_counts_and_percentages_are_formatted(function, arguments, text):
    assert function(*arguments) == text
