"""Sentences from templates/texts."""

from __future__ import annotations

import jinja2
import pytest
import yaml

from chaosity.cli.shared import print_line, print_table
from chaosity.text_templates import TEMPLATES, sentences_of_macro, text_of_macro, texts_of_yaml_file
from chaosity.units import group_thousands


def test_line_breaks_become_spaces_and_thin_spaces_stay():
    pair = {"factor": "kernel", "level": "add", "against": group_thousands(2000), "adjusted": None}
    difference = {"excludes_zero": True, "ratio": 2.0, "low": None, "high": None}
    text = text_of_macro(
        "variance_analysis",
        "extremes",
        pair={**pair, "difference": difference},
        metric="bandwidth_bytes_per_second",
        confidence="95 %",
    )
    expected = "Largest difference: the mean of kernel add is 2.000 times the mean of kernel "
    assert text == f"{expected}2\N{THIN SPACE}000."


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        text_of_macro("variance_analysis", "remote", share=None)


def test_lines_with_two_hyphens_are_between_sentences():
    values = {"missing": [(0, 1), (1, 0)], "is_interleaved": True}
    first, second = sentences_of_macro("anomalies", "slit_notes", **values)
    assert first == "The SLIT has no entry for 0->1 and 1 more."
    assert second.startswith("The SLIT has different distances")
    assert sentences_of_macro("anomalies", "slit_notes", missing=[], is_interleaved=False) == []


def test_values_on_the_terminal_are_no_markup(capsys):
    print_line(":100: [bold]")
    print_table([("[red]near", 2, "0->1")], ["group"], ["[b]n"], ["cell"])
    line, head, row = capsys.readouterr().out.splitlines()
    assert line == ":100: [bold]"
    assert (head.split(), row.split()) == (["group", "[b]n", "cell"], ["[red]near", "2", "0->1"])


def test_fixed_texts_have_no_line_breaks():
    for path in (TEMPLATES / "texts").glob("*.yaml"):
        assert texts_of_yaml_file(path.stem) == yaml.safe_load(path.read_text())
