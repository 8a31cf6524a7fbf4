"""CPU sets are equal after writing and reading, also sparse and large sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaosity.cpusets import format_cpu_list, format_mask, make_cpu_set, parse_cpu_list, parse_mask

SETS = st.frozensets(st.integers(0, 1100), max_size=60).map(make_cpu_set)
RUNS = st.tuples(st.integers(0, 500), st.integers(1, 300)).map(lambda r: tuple(range(r[0], sum(r))))


@given(SETS | RUNS)
def test_lists_are_equal_after_writing_and_reading(cpus):
    assert parse_cpu_list(format_cpu_list(cpus)) == cpus


@given(SETS | RUNS)
def test_masks_are_equal_after_writing_and_reading(cpus):
    mask = format_mask(cpus)
    assert parse_mask(mask) == cpus
    assert parse_mask(mask.replace("0x", "")) == cpus  # as the kernel writes them
    first, *words = mask.split(",")  # words that are zero may be left out
    assert parse_mask(",".join([first, *(w.replace("0x00000000", "") for w in words)])) == cpus


@given(RUNS)
def test_a_run_is_written_as_one_range(cpus):
    expected = f"{cpus[0]}-{cpus[-1]}" if len(cpus) > 1 else str(cpus[0])
    assert format_cpu_list(cpus) == expected


@given(st.lists(st.integers(0, 300)))
def test_order_and_repetition_do_not_matter(indexes):
    assert format_cpu_list(indexes) == format_cpu_list(reversed(indexes))
    assert parse_cpu_list(",".join(map(str, indexes))) == make_cpu_set(indexes)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", ()),
        ("  \n", ()),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("72-73,45,45", (45, 72, 73)),
        ("7", (7,)),
    ],
)
def test_lists_as_linux_writes_them(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_a_mask_of_hwloc_from_a_machine_with_272_processing_units():
    mask = "0x3ffff000,,0x03ffff00,,0x003ffff0,,0x0003ffff"
    expected = "0-17,68-85,136-153,204-221"
    assert format_cpu_list(parse_mask(mask)) == expected


@pytest.mark.parametrize("text", ["a", "3-1", "1-", "-1", "1,,2", "0-3;8", "²"])
def test_text_that_is_not_a_list_is_refused(text):
    with pytest.raises(ValueError, match=r"is neither|runs backwards"):
        parse_cpu_list(text)


@pytest.mark.parametrize("text", ["0xf...f", "0x", "xyz", "0x123456789", "-1"])
def test_text_that_is_not_a_mask_is_refused(text):
    with pytest.raises(ValueError, match="not a mask"):
        parse_mask(text)


@pytest.mark.parametrize("text", ["0-99999999999", "2000000", "9" * 5000, "\N{SUPERSCRIPT TWO}"])
def test_a_list_whose_set_would_fill_the_memory_is_an_error(text):
    with pytest.raises(ValueError, match="index"):
        parse_cpu_list(text)


def test_a_mask_whose_set_would_fill_the_memory_is_an_error():
    with pytest.raises(ValueError, match="no machine more than 2048"):
        parse_mask(",".join(["0x1"] * 2049))
